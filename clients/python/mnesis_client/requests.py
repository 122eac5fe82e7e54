"""Requests as values, the types of what callers put into them, and the local files that they send or write.

Both clients make their requests here, and differ only in how they send one.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, BinaryIO, Literal, NotRequired, TypedDict
from urllib.parse import quote

TUS = "1.0.0"
PIECE_BYTES = 4_194_304
"""A larger file is uploaded in pieces of this size by the tus protocol, which resumes after a break."""
Spoken = str | list[dict[str, Any]]
"""A text, or parts: ``text``, ``reasoning``, ``refusal``, ``citation``, ``tool`` and ``provider_tool`` with their results,
``file_ref``, ``image``, ``audio`` and ``document`` by their file, and ``provider``: what goes back to one provider."""


class Tool(TypedDict):
    """A tool that the caller runs; ``parameters`` is JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolResult(TypedDict):
    """The result of one of the caller's tools: ``output`` or ``error``. Of ``ask_user`` it may be ``answers``."""

    tool_call_id: str
    output: NotRequired[str]
    error: NotRequired[str]
    answers: NotRequired[list[list[str]]]


class SessionSettings(TypedDict, total=False):
    title: str
    labels: dict[str, str]
    config: dict[str, Any]
    host_mode: bool
    peer_name: str
    project_id: str
    """An empty text for no project."""


class SessionChanges(SessionSettings, total=False):
    pinned: bool


class ShareValues(TypedDict, total=False):
    audience: Literal["site", "people", "anyone"]
    people: list[str]
    message_id: str
    expires_at: str


class ProjectSettings(TypedDict, total=False):
    name: str
    instructions: str
    model: str
    config: dict[str, Any]
    """The configuration of sessions that begin in the project, in the form of a session's: ``parameters``, ``turn``, ``max_output_tokens`` and ``limits``."""


class PromptSettings(TypedDict, total=False):
    name: str
    """The word after ``/``: lowercase letters, digits and hyphens."""
    title: str
    text: str
    """``{{variable}}`` and ``{{variable=default}}`` are asked for in the composer."""
    is_shared: bool


class AssistantSettings(TypedDict, total=False):
    name: str
    description: str
    instructions: str
    model: str
    config: dict[str, Any]
    """In the form of a session's: ``parameters``, ``turn``, ``max_output_tokens`` and ``limits``."""
    starters: Sequence[str]
    for_everyone: bool
    people: Sequence[str]
    """Usernames."""
    groups: Sequence[str]


class SessionValues(SessionSettings, total=False):
    model: str
    agent: str
    system_prompt: str
    parent_id: str
    assistant_id: str
    """The session keeps the version that is the newest now."""
    temporary: bool
    """A temporary chat, if the site permits it."""


class SessionFilters(TypedDict, total=False):
    label: str
    """``key=value``."""
    q: str
    """A word in the title."""
    archived: bool
    pinned: bool
    parent_id: str
    sub_agents: bool
    """True for only the sessions that turns have launched, false for only the others."""
    trashed: bool
    """True for only the sessions in the trash."""
    project_id: str


class Limits(TypedDict, total=False):
    tokens: int
    cost_micros: int
    seconds: float
    tool_calls: int


class Parameters(TypedDict, total=False):
    """What the model is asked with in one turn, before what its session and the model's entry have."""

    temperature: float
    top_p: float
    max_output_tokens: int
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    verbosity: Literal["low", "medium", "high"]
    stop: str | Sequence[str]
    seed: int
    tool_choice: str | dict[str, Any]
    """``auto``, ``none``, ``required``, or a function in OpenAI's form."""
    parallel_tool_calls: bool
    response_format: dict[str, Any]
    """``json_object`` or ``json_schema`` in OpenAI's form."""
    provider_tools: Sequence[Literal["web_search", "code_execution", "image_generation"]]
    """Tools that the model's provider runs itself, of those that the model's entry permits."""


class TurnOptions(TypedDict, total=False):
    """Options of one turn. ``files`` are the ids of files that go with the message."""

    files: Sequence[str]
    parts: Sequence[dict[str, Any]]
    """The message as OpenAI's parts, in place of a text: ``text``, ``image_url``, ``file`` (a PDF) and ``input_audio``."""
    tools: Sequence[Tool]
    """Tools that the caller runs. A call to one suspends the turn until ``answer_tools``."""
    system_prompt: str
    limits: Limits
    on_doom_loop: Literal["continue", "stop"]
    parameters: Parameters
    host_mode: bool
    """Switch the host mode of the session on or off, from this turn on."""
    model: str
    """The model to ask in this turn in place of the session's."""
    parent_id: str
    """The message that it continues, or ``root`` for none; by default the last one of the chosen branch."""
    idempotency_key: str
    """A random one by default."""


class Tokens(TypedDict, total=False):
    """The counts of the caller's provider. ``input`` is the whole prompt, cached or not."""

    input: int
    output: int
    cache_read: int
    cache_write: int


class RecordedValues(TypedDict, total=False):
    tokens: Tokens
    cost: float
    """The cost in the currency unit of the model's price."""
    finish_reason: str | None
    model: str
    idempotency_key: str
    """A random one by default."""


class Quote(TypedDict):
    """Words that a message has exactly so, in one of its texts."""

    message_id: str
    text: str


class FactValues(TypedDict, total=False):
    """Values of a fact besides its statement; times are ISO 8601. A correction keeps what is left out."""

    subject: str
    """A later fact of the same subject and kind supersedes an earlier one."""
    valid_from: str
    valid_to: str
    salience: int
    """0 to 100."""
    quote: Quote
    """What it rests on. Without one you are its source."""


class FactFilters(TypedDict, total=False):
    q: str
    """Words that a fact has."""
    kind: str
    subject: str
    state: Literal["live", "superseded", "withdrawn", "forbidden"]
    at: str
    """A time (ISO 8601): facts that were true then, as far as is known now."""


class InteractionFilters(TypedDict, total=False):
    turn_id: str
    tool: str
    status: Literal["PENDING", "SUCCESS", "ERROR"]


class FileSearchOptions(TypedDict, total=False):
    mode: Literal["text", "regex"]
    limit: int
    cursor: str


class SearchOptions(TypedDict, total=False):
    """``since`` and ``until`` are ISO 8601; ``speaker`` is a role or a name; ``file`` a part of a path."""

    mode: Literal["ranked", "text", "regex"]
    scope: str
    summary_id: str
    since: str
    until: str
    speaker: str
    tool: str
    file: str
    branch: int
    project_id: str
    compacted: bool
    around: int
    max_tokens: int
    limit: int
    cursor: str


class MapValues(TypedDict, total=False):
    """Values of a new run. Either ``file_id`` or ``items`` is required."""

    file_id: str
    items: Sequence[Any]
    session_id: str
    output_schema: dict[str, Any]
    native_schema: bool
    model: str
    system_prompt: str
    concurrency: int
    max_retries: int
    timeout_seconds: float
    temperature: float
    limits: Limits
    idempotency_key: str
    """A random one by default."""


class AgenticMapValues(MapValues, total=False):
    read_only: bool
    tools: Sequence[str]
    max_turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    form: dict[str, str] | None = None
    attached: tuple[tuple[str, tuple[str, bytes | BinaryIO]], ...] = ()
    """The field, name and content of each file that is sent with ``form``."""
    is_safe: bool = False
    """Whether sending it twice is the same as once, so that it is sent again when no answer arrives."""

    def page(self, parameter: str, cursor: str | int | None) -> Request:
        return self if cursor is None else replace(self, params={**self.params, parameter: cursor})


def get(*steps: str, **params: Any) -> Request:
    """Leave out the parameters that are ``None``, as all functions here do."""
    return Request(method="GET", path=_path(*steps), params=_given(params), is_safe=True)


def post(*steps: str, **body: Any) -> Request:
    return Request(method="POST", path=_path(*steps), body=_given(body))


def put(*steps: str, **body: Any) -> Request:
    return Request(method="PUT", path=_path(*steps), body=_given(body), is_safe=True)


def patch(*steps: str, **body: Any) -> Request:
    return Request(method="PATCH", path=_path(*steps), body=_given(body), is_safe=True)


def delete(*steps: str) -> Request:
    return Request(method="DELETE", path=_path(*steps))


def post_keyed(*steps: str, **body: Any) -> Request:
    """Post with an idempotency key, so that the request is safe to send again."""
    given = {"idempotency_key": secrets.token_hex(16)} | _given(body)
    return Request(method="POST", path=_path(*steps), body=given, is_safe=True)


def upload(session_id: str, name: str, content: bytes) -> Request:
    # The server keeps a file once by its content, so a second upload is the file of the first.
    return _post_form("files", form={"session_id": session_id}, files=[(name, content)])


def upload_of_assistant(assistant_id: str, step: str, name: str, content: BinaryIO) -> Request:
    # The same bytes again make no other version.
    return _post_form("assistants", assistant_id, step, form={}, files=[(name, content)])


def import_files(files: Sequence[tuple[str, BinaryIO]], model: str | None) -> Request:
    # A second import of the same files adds nothing.
    return _post_form("sessions", "import", form=_given({"model": model}), files=files)


def begin_upload(session_id: str, name: str, size: int) -> Request:
    facts = {"filename": name, "session_id": session_id}
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in facts.items())
    headers = {"Tus-Resumable": TUS, "Upload-Length": str(size), "Upload-Metadata": metadata}
    return Request(method="POST", path=_path("uploads"), headers=headers, is_safe=True)


def upload_offset(upload_id: str) -> Request:
    return Request(method="HEAD", path=_path("uploads", upload_id), headers={"Tus-Resumable": TUS}, is_safe=True)


def upload_piece(upload_id: str, offset: int, content: bytes) -> Request:
    headers = {"Tus-Resumable": TUS, "Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
    return Request(method="PATCH", path=_path("uploads", upload_id), headers=headers, content=content)


def _post_form(*steps: str, form: dict[str, str], files: Sequence[tuple[str, bytes | BinaryIO]]) -> Request:
    attached = tuple(("file", file) for file in files)
    return Request(method="POST", path=_path(*steps), form=form, attached=attached, is_safe=True)


def _path(*steps: str) -> str:
    return "/api/" + "/".join(quote(step, safe="") for step in steps)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


class LocalFile:
    """A file that is uploaded piece by piece, and the name that it gets on the server."""

    def __init__(self, path: str | Path, name: str | None) -> None:
        self._path = Path(path)
        self.name = name or self._path.name
        self.size = self._path.stat().st_size

    def piece(self, offset: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(min(PIECE_BYTES, max(self.size - offset, 0)))

    def digest(self) -> str:
        """Return the SHA-256 of the content, which is the server's ``content_id``."""
        with self._path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def opened_files(paths: Sequence[str | Path]) -> Iterator[list[tuple[str, BinaryIO]]]:
    """Keep files open, each with its name, until they were sent."""
    with ExitStack() as stack:
        yield [(Path(path).name, stack.enter_context(Path(path).open("rb"))) for path in paths]


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Write a file that gets its name only once it is whole: a failure leaves an older file as it was."""
    target = Path(path)
    with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            yield file
        except BaseException:
            Path(file.name).unlink()
            raise
    Path(file.name).replace(target)
