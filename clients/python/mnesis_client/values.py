"""The JSON objects that the server answers. Fields may be added to them; none is ever renamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

Item = TypeVar("Item")


class Page(TypedDict, Generic[Item]):
    items: list[Item]
    next_cursor: str | int | None


class ErrorInfo(TypedDict):
    code: str
    message: str
    details: NotRequired[dict[str, Any]]


class Usage(TypedDict):
    """Tokens, and money in millionths of the currency unit; ``source`` says who counted."""

    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    source: str | None
    cost_micros: int | None


class Session(TypedDict):
    """A session. Lists leave out the fields that are not required."""

    id: str
    state: str
    model: str
    agent: str
    title: str
    archived: bool
    pinned: bool
    unread: bool
    trashed: bool
    labels: dict[str, str]
    config: dict[str, Any]
    origin: str
    parent_id: str | None
    host_mode: bool
    peer_name: str
    project_id: str | None
    assistant_version_id: str | None
    temporary: bool
    running_turn_id: str | None
    last_seq: int
    message_count: int
    turn_count: int
    created_at: str
    updated_at: str
    system_prompt: NotRequired[str]
    assistant_instructions: NotRequired[str]
    context: NotRequired[dict[str, Any]]
    billing: NotRequired[dict[str, Any]]
    turn_id: NotRequired[str | None]


class Waiting(TypedDict):
    """A tool call that a suspended turn waits for: ``reason`` is ``caller``, ``approval`` or ``answer``."""

    part_id: str
    tool_call_id: str
    tool_name: str
    input: str
    reason: str


class Turn(TypedDict):
    id: str
    session_id: str
    seq: int
    state: str
    model: str
    error: ErrorInfo | None
    message_ids: list[str]
    usage: Usage
    cost_micros: int | None
    created_at: str
    ended_at: str | None
    waits_for: NotRequired[list[Waiting]]


class InboxMessage(TypedDict):
    """A message to a session in host mode; ``turn_id`` is the turn that took it, ``sender_id`` the session that sent it."""

    id: str
    session_id: str
    seq: int
    sender_id: str | None
    kind: Literal["message", "request", "response"]
    in_reply_to: str | None
    text: str
    hops: int
    turn_id: str | None
    created_at: str


class Part(TypedDict):
    """A part of a message; which fields say something depends on ``type``."""

    id: str
    index: int
    type: str
    token_estimate: int
    text: NotRequired[str | None]
    tool_name: NotRequired[str | None]
    tool_call_id: NotRequired[str | None]
    input: NotRequired[str | None]
    output: NotRequired[str | None]
    error: NotRequired[str | None]
    state: NotRequired[str | None]
    compacted_at: NotRequired[str | None]
    file_id: NotRequired[str | None]
    label: NotRequired[str | None]
    details: NotRequired[dict[str, Any] | None]
    """What else pictures, sounds, documents, sources and parts of providers hold, such as ``media_type``, ``url``, ``data``."""


class Project(TypedDict):
    """A folder of sessions with instructions, as one of its members sees it."""

    id: str
    name: str
    instructions: str
    model: str
    config: dict[str, Any]
    owner_name: str
    is_owner: bool
    created_at: str
    updated_at: str


class AssistantFile(TypedDict):
    """A file of an assistant, which each session that begins with it gets with its first message."""

    id: str
    path: str
    size: int
    content_id: str


class Assistant(TypedDict):
    """A version of an assistant, as one of the people sees it who may use it."""

    id: str
    version_id: str
    version: int
    is_newest: bool
    name: str
    description: str
    instructions: str
    model: str
    config: dict[str, Any]
    starters: list[str]
    files: list[AssistantFile]
    picture: str | None
    owner_name: str
    is_owner: bool
    for_everyone: bool
    people: list[str]
    groups: list[str]
    created_at: str


class SavedPrompt(TypedDict):
    """A text to begin a message with, as one of the people sees it who may use it."""

    id: str
    name: str
    title: str
    text: str
    is_shared: bool
    owner_name: str
    is_owner: bool
    created_at: str
    updated_at: str


class ProjectFile(TypedDict):
    id: str
    path: str
    size: int
    content_id: str
    added_at: str


class ProjectMember(TypedDict):
    id: str
    name: str
    is_owner: bool
    added_at: str


class ShareReader(TypedDict):
    """Who opened a share; without a name everybody who was not signed in."""

    name: str | None
    last_opened_at: str
    days: int


class Share(TypedDict):
    """A link to a session as it was; ``path`` is its address on the site."""

    id: str
    session_id: str
    message_id: str
    title: str
    audience: str
    people: list[str]
    state: str
    path: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    reader_count: int
    readers: list[ShareReader]


class Rating(TypedDict):
    """What a session's owner said of an answer; an empty ``thumb`` took an earlier one back."""

    id: str
    session_id: str
    message_id: str
    thumb: Literal["up", "down", ""]
    comment: str
    created_at: str


class Branch(TypedDict):
    """A line of messages. Branch 0 begins with the session; another one after a message of its ``parent``."""

    number: int
    is_chosen: bool
    parent: int | None
    after_message_id: str | None
    """``None`` where it begins before the first message."""
    last_message_id: str | None
    messages: int
    """Its own, without those before it."""


class Message(TypedDict):
    id: str
    seq: int
    branch: int
    parent_id: str | None
    """The message before it on its path."""
    turn_id: str | None
    role: Literal["system", "user", "assistant"]
    is_summary: bool
    created_at: str
    parts: list[Part]
    usage: Usage
    finish_reason: str | None
    outcome: str | None
    error: ErrorInfo | None


class ModelCall(TypedDict):
    id: str
    session_id: str
    turn_id: str | None
    message_id: str | None
    purpose: str
    state: str
    model: str
    provider_model: str
    manifest: list[Any]
    context_seq: int
    digest: str
    estimated_tokens: int
    usage: Usage
    usage_said: str | None
    """The provider's own token counts as JSON, even those that cannot be true."""
    outcome: str | None
    finish_reason: str | None
    stop_sequence: str | None
    first_token_ms: int | None
    """Milliseconds to the first piece of a streamed answer."""
    cache_write_1h_tokens: int | None
    """How many of ``usage["cache_write_tokens"]`` the cache keeps for an hour; the others are kept for 5 minutes."""
    error: ErrorInfo | None
    created_at: str
    ended_at: str | None
    digest_matches: NotRequired[bool]


class Event(TypedDict):
    seq: int
    type: str
    data: dict[str, Any]
    created_at: str


class Frame(TypedDict):
    """An event, ``caught_up``, or a ``delta`` with more text of a running answer."""

    type: str
    seq: NotRequired[int]
    data: NotRequired[dict[str, Any]]
    message_id: NotRequired[str]
    part_index: NotRequired[int]
    part_type: NotRequired[str]
    offset: NotRequired[int]
    text: NotRequired[str]


class Context(TypedDict):
    """What the model would see: ``payload`` in the format of a provider, ``messages`` in that of Mnesis."""

    budget: dict[str, Any]
    breakdown: dict[str, int]
    manifest: list[dict[str, Any]]
    digest: str
    left_out: list[dict[str, Any]]
    payload: NotRequired[dict[str, Any]]
    messages: NotRequired[list[dict[str, Any]]]


class FactQuote(TypedDict):
    """Characters of a message's part, counted from 0."""

    message_id: str
    seq: int
    role: str
    part_id: str
    start: int
    end: int
    text: str


class Fact(TypedDict):
    """What was said and holds while its ``state`` is ``live``."""

    id: str
    session_id: str
    scope: str
    kind: str
    subject: str
    statement: str
    state: str
    said_at: str
    said_seq: int
    valid_from: str | None
    valid_to: str | None
    salience: int
    method: str
    model: str
    superseded_by: str | None
    held_for: str
    """The reach of the fact: the prompts of its ``session``, of a ``person``'s sessions, or of an ``organisation``'s."""
    of_fact_id: str
    """The fact of another session that this is a copy of, or empty."""
    of_session_id: str
    still_held: bool
    quotes: list[FactQuote]
    created_at: str
    created_seq: int


class HeldFact(TypedDict):
    """A fact that reaches your sessions; where it was said is told if ``is_own``."""

    id: str
    held_for: str
    kind: str
    subject: str
    statement: str
    said_at: str
    is_own: bool
    session_id: str | None
    session_title: str | None
    said_seq: int | None
    project_id: str | None


class LetGo(TypedDict):
    """A fact that reaches no other session any more."""

    id: str
    held_for: str


class ToolInteraction(TypedDict):
    """A tool call with its result; ``status`` is ``PENDING``, ``SUCCESS`` or ``ERROR``."""

    tool_call_id: str
    turn_id: str
    tool_name: str
    arguments: str
    result: str | None
    error: str | None
    status: str
    part_id: str
    message_id: str
    seq: int
    started_at: str | None
    completed_at: str | None


class Line(TypedDict):
    """One message of a passage."""

    handle: str
    message_id: str
    seq: int
    role: str
    speaker: str
    tool_name: str
    said_at: str
    text: str
    is_hit: bool


class Hit(TypedDict):
    session_id: str
    session_title: str
    kind: str
    message_id: str | None
    message_seq: int
    branch: int
    part_id: str | None
    summary_id: str | None
    file_id: str | None
    covered_by: str | None
    snippet: str
    matches: list[tuple[int, int]]
    passage: list[Line]
    """The message among those around it; empty for a summary or a file."""


class Found(TypedDict):
    """A page of hits, and how much of the record was searched."""

    mode: str
    """The one that found them, and why where it is not the one that was asked for."""
    note: str
    items: list[Hit]
    messages_searched: int
    messages_total: int
    cut_off: bool
    more: bool
    next_cursor: str | None


class Summary(TypedDict):
    id: str
    kind: str
    depth: int
    level: int
    text: str
    token_count: int
    first_seq: int
    last_seq: int
    message_count: int
    branch: int
    """The branch that it was made for."""
    source_ids: list[str]
    file_ids: list[str]


class Expanded(TypedDict):
    """The messages or summaries that a summary stands for; ``kind`` says which."""

    kind: str
    items: list[Any]
    next_cursor: str | None


class RestsOn(TypedDict):
    """A message that a sentence rests on, through all summaries between them."""

    message_id: str
    part_id: str
    seq: int


class Claim(TypedDict):
    """A sentence of a summary. ``start`` and ``end`` count characters of its text as it is stored, from 0."""

    id: str
    number: int
    start: int
    end: int
    text: str
    support: Literal["quoted", "supported", "partly", "none"]
    share: int
    """Percent of its words that what it rests on has."""
    missing: list[str]
    """Its numbers, dates, names and identifiers that were not said there."""
    messages: list[RestsOn]
    method: str


class Compaction(TypedDict):
    id: str
    state: str
    trigger: str
    turn_ids: list[str]
    outcome: str | None
    level: int | None
    tries: list[dict[str, Any]]
    tokens_before: int | None
    tokens_after: int | None
    summary_ids: list[str]
    cost_micros: int | None
    error: ErrorInfo | None


class Model(TypedDict):
    alias: str
    litellm_model: str
    context_window: int
    max_output_tokens: int


class Verified(TypedDict):
    ok: bool
    checked: dict[str, Any]
    problems: list[dict[str, Any]]


class File(TypedDict):
    """A file. ``size`` is in bytes; ``state`` is ``waiting`` until the file was explored."""

    id: str
    session_id: str
    content_id: str
    path: str
    file_type: str
    token_count: int
    state: Literal["waiting", "explored"]
    exploration_summary: str
    exploration: dict[str, Any] | None
    size: int | None
    created_at: str


class FileLine(TypedDict):
    """A line without its end. ``offset`` is the byte where it begins; ``is_cut`` says that ``text`` is only its beginning."""

    number: int
    offset: int
    text: str
    is_cut: bool


class FileLines(TypedDict):
    """Lines in order. ``total`` counts those of the whole file; it is ``None`` until all are counted."""

    items: list[FileLine]
    total: int | None
    next_line: int | None


class LineHit(TypedDict):
    """A matching line, shortened around its first match, which is at byte ``offset``."""

    number: int
    offset: int
    text: str
    matches: list[tuple[int, int]]
    count: int


class FileFound(TypedDict):
    """A page of matching lines. ``next_cursor`` is ``None`` when all of the file was searched."""

    items: list[LineHit]
    searched_bytes: int
    size: int
    next_cursor: str | None


class MapCounts(TypedDict):
    """The progress of a run. ``items`` is ``None`` while the input is being read."""

    items: int | None
    completed: int
    failed: int
    cancelled: int
    left: int
    tries: int
    tokens_input: int
    tokens_output: int
    cost_micros: int


class MapFailure(TypedDict):
    item: int
    kind: str
    message: str


class MapRun(TypedDict):
    """A run over many items. Lists leave out ``failures``, which has the first ones."""

    id: str
    session_id: str
    turn_id: str
    part_id: str
    kind: Literal["llm", "agentic"]
    state: Literal["pending", "running", "paused", "completed", "cancelled", "failed"]
    reason: str
    counts: MapCounts
    input_file_id: str
    output_file_id: str
    error: ErrorInfo | None
    spec: dict[str, Any]
    created_at: str
    started_at: str | None
    ended_at: str | None
    failures: NotRequired[list[MapFailure]]


class MapItem(TypedDict):
    """An item of a run. Lists leave out its ``tries``."""

    item: int
    state: Literal["pending", "running", "completed", "failed", "cancelled"]
    attempts: int
    error_kind: str
    error: str
    child_session_id: str
    offset: int
    length: int
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int
    started_at: str | None
    ended_at: str | None
    tries: NotRequired[list[dict[str, Any]]]


class MapResult(TypedDict):
    """A line of the results: ``output``, or ``error`` with its kind and message. Only followed results have ``seq``."""

    seq: NotRequired[int]
    item: int
    input: Any
    output: NotRequired[Any]
    error: NotRequired[dict[str, str]]


class Imported(TypedDict):
    """A session that an import made, or that was there already."""

    id: str
    title: str


class Import(TypedDict):
    """An import job. Its progress reads "``done`` of ``total`` ``unit`` ``verb``"; a ``total`` of 0 is not known yet.

    Sessions that were imported before a failure stay, so a failed job may name some in ``sessions``.
    """

    id: str
    state: Literal["waiting", "running", "done", "failed"]
    files: list[str]
    verb: str
    unit: str
    done: int
    total: int
    sessions: list[Imported]
    notes: list[str]
    error: ErrorInfo | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A turn that has stopped, and the text that the model wrote in it."""

    turn: Turn
    text: str
