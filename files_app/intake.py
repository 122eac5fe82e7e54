"""Files taken in for a session, and explored: a worker finds out what one holds, once for all files of the same content.

A file arrives in pieces, or is one of this machine, under one of the site's roots.

If the session names a model for it, that model describes prose, in front of what was counted. A model call is written
before it is made, and no lock is held meanwhile. A process that dies leaves a running call, which the next process that
explores the file closes; until the call is lost, no other process asks again, since each answer is paid for.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath
from typing import IO, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.utils import timezone
from django.utils.translation import gettext_noop
from django_q.tasks import async_task

from files_app.contents import on_disk, put_content, put_stream, read_content
from files_app.queries import bytes_of_person, find_exploration, is_waiting, load_file_reference
from files_app.store import finish_exploration, store_file_reference
from mnesis_core.compaction.requests import (
    KINDS,
    READ_BYTES,
    FileQuestion,
    problem_of,
    question_about,
    with_description,
)
from mnesis_core.config import Config
from mnesis_core.errors import (
    BudgetExhausted,
    CallNotFoundError,
    FileContentNotFound,
    FileNotAllowed,
    FileQuotaExceeded,
    ModelCallAbandoned,
    ModelNotFoundError,
    RequestTooLarge,
    SessionArchived,
)
from mnesis_core.files.detection import BY_NAME, detect
from mnesis_core.files.references import SAMPLE_BYTES, estimate_tokens
from mnesis_core.files.sandbox import ExplorationLimits, explore_alone
from mnesis_core.files.source import Source
from mnesis_core.llm.interface import Model, Outcome, Reply, Request, spec_in_session
from mnesis_core.llm.retrying import patience_of
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.providers.rendering import digest
from mnesis_core.records import FileReference, MessageEnd, SessionRecord
from mnesis_core.spending import Spent
from mnesis_core.text import LONGEST_CHARACTER, text_of_bytes
from mnesis_core.turns.options import end_of_reply
from sessions_app.conf import default_model, get_model, get_spec, session_config, site_config, site_prompts
from sessions_app.database.threads import in_waiting_thread, waiting_for
from sessions_app.llm.calls import ModelCaller, PlannedCall, RunningCall, complete_or_abandon, load_fallbacks
from sessions_app.llm.limits import SpendingLimit, load_limits
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import running_file_calls

TASK = "files_app.tasks.explore"
CALL_SECONDS = 60.0  # of one call, and of all calls about one file together
LOST_AFTER = timedelta(seconds=2 * CALL_SECONDS)  # a call that has run longer has lost its process
CHUNK_BYTES = 1_048_576
_READ = READ_BYTES + LONGEST_CHARACTER  # a little more than a model reads, to find where the last character ends
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe must not wait for its writer; a pipe is refused below.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class AlreadyAsked(Exception):
    """Another process asks about this file, or has asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Describer:
    alias: str
    prompt_version: str
    session: SessionRecord
    config: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a call, which is written in the same transaction as its result."""

    call_id: str
    end: MessageEnd
    attempts: int

    def write(self, record: Change) -> None:
        """Write it, unless another process took the call for lost and has closed it."""
        with suppress(CallNotFoundError):
            turn_store.finish_call(record, self.call_id, self.end, attempts=self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    summary: str
    note: dict[str, Any] | None  # the model, the call and the problem; None when the text was not worth asking about
    ending: Ending | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    alias: str
    question: FileQuestion
    reply: Reply
    problem: str
    ending: Ending


def keep_file(session_id: str | None, *, owner_id: int, path: str, chunks: Iterable[bytes]) -> FileReference:
    """Keep a file that arrives in pieces, for a session, or for a new session named after the file.

    The same content at the same path is the existing file; another content is its next version.

    :raises SessionNotFoundError: there is no such session, or it belongs to another account.
    :raises SessionArchived: it takes nothing new.
    :raises ModelNotFoundError: the account may not use a new session's model.
    :raises RequestTooLarge: the file is larger than files may be.
    :raises FileQuotaExceeded: the account's files would take more than they may.
    """
    if session_id:
        check_room(session_id, owner_id=owner_id, size=0)
    content_id, size = put_stream(chunks, largest=room_of(owner_id))
    if not session_id:
        alias = default_model()
        get_spec(alias, user_id=owner_id)
        owner = get_user_model().objects.get(pk=owner_id)
        session_id = session_store.create_session(owner=owner, model=alias, title=path.rpartition("/")[2])
    return refer(session_id, owner_id=owner_id, path=path, content_id=content_id, size=size)


def keep_path(session_id: str | None, *, owner_id: int, path: str) -> FileReference:
    """Keep a file of this machine, under one of the site's roots, as it is now.

    :raises FileNotAllowed: it may not be taken in.
    :raises MnesisError: see ``keep_file``
    """
    with open_allowed(path) as file:
        return keep_file(session_id, owner_id=owner_id, path=path, chunks=chunks_of(file))


def check_room(session_id: str, *, owner_id: int, size: int) -> None:
    """Check that a session may get a file of ``size`` bytes; raises like ``keep_file``."""
    if load_session(session_id, owner_id=owner_id).archived_at is not None:
        raise SessionArchived(session_id=session_id)
    largest = site_config().files.largest_bytes
    if size > largest:
        raise RequestTooLarge(
            gettext_noop("The file is larger than the %(most)s bytes that are allowed."),
            {"most": largest},
            field="size",
        )
    if size > room_of(owner_id):
        raise FileQuotaExceeded()


def room_of(owner_id: int, *, besides: int = 0) -> int:
    """Return the bytes that an account's files may still take, capped by the largest size of a file.

    :param besides: bytes that were kept just now, and that no file of the account has yet
    """
    config = site_config().files
    if not config.quota_bytes:
        return config.largest_bytes
    return min(max(0, config.quota_bytes - bytes_of_person(owner_id) - besides), config.largest_bytes)


def open_allowed(path: str) -> IO[bytes]:
    """Open an ordinary file under one of the site's roots.

    :raises FileNotAllowed: it is under no root, is reached by a link, is not an ordinary file, or does not exist.
    """
    wanted = PurePosixPath(path)
    if "\0" in path or ".." in wanted.parts:
        raise FileNotAllowed(path=path)
    roots = settings.MNESIS["FILE_ROOTS"]
    root = next((root for root in roots if wanted.is_relative_to(root) and wanted != PurePosixPath(root)), None)
    if root is None:
        raise FileNotAllowed(path=path)

    # Each folder is opened from the one before, without following links: a link could replace a folder after a check.
    steps = wanted.relative_to(root).parts
    try:
        with ExitStack() as opened:
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, folder)
            for step in steps[:-1]:
                folder = os.open(step, _FOLDER, dir_fd=folder)
                opened.callback(os.close, folder)
            handle = os.open(steps[-1], _FILE, dir_fd=folder)
    except (OSError, ValueError):
        raise FileNotAllowed(path=path) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotAllowed(path=path)
    return os.fdopen(handle, "rb")


def chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    while data := file.read(CHUNK_BYTES):
        yield data


def refer(session_id: str, *, owner_id: int, path: str, content_id: str, size: int) -> FileReference:
    about = _look_at(content_id, path, size)
    with change(session_id) as record:
        if record.archived:
            raise SessionArchived(session_id=session_id)
        return load_file_reference(add_file(record, **about), owner_id=owner_id)


def prepare_file(data: bytes, *, owner_id: int, path: str) -> dict[str, Any]:
    """Keep bytes that are to be a file of a session, and return what ``add_file`` takes. Call it before its lock is taken.

    :raises RequestTooLarge: they are more than a file may have.
    :raises FileQuotaExceeded: the account's files would take more than they may.
    """
    if len(data) > site_config().files.largest_bytes:
        raise RequestTooLarge(
            gettext_noop("a file of %(count)s bytes is larger than files may be"), {"count": len(data)}, field="size"
        )
    if len(data) > room_of(owner_id):
        raise FileQuotaExceeded()
    return _look_at(put_content(data), path, len(data))


def _look_at(content_id: str, path: str, size: int) -> dict[str, Any]:
    with on_disk(content_id) as place:
        kind = detect(Source(path=place, name=path, size=size))
        sample = read_content(content_id, 0, SAMPLE_BYTES)
    tokens = estimate_tokens(text_of_bytes(sample), sampled=len(sample), size=size)
    return {"content_id": content_id, "path": path, "file_type": kind.name, "token_count": tokens, "size": size}


def add_file(
    record: Change,
    *,
    content_id: str,
    path: str,
    file_type: str,
    token_count: int,
    size: int,
    file_id: str | None = None,
) -> str:
    """Write a reference to a kept content, and queue its exploration in the same transaction."""
    file_id = store_file_reference(
        record,
        file_id=file_id,
        content_id=content_id,
        path=path,
        file_type=file_type,
        token_count=token_count,
        exploration_summary=None,
        size=size,
    )
    if is_waiting(file_id):
        async_task(TASK, file_id, owner_id=record.owner_id, actor=record.actor)
    return file_id


def explore_file(file_id: str, *, owner_id: int) -> FileReference:
    """Explore a file that is not explored, and write what was found; there is always a result.

    The file is returned unexplored while another process asks a model about it.

    :raises FileReferenceNotFoundError: there is no such file.
    """
    file = load_file_reference(file_id, owner_id=owner_id)
    if file.is_explored or is_being_asked(file):
        return file
    describer = describer_of(file)
    with suppress(AlreadyAsked):
        if describer is not None and (same := _known_exploration(file, describer)):
            summary, exploration = same
            described = Description(summary=summary, note=None)
            # The call belongs to another file, perhaps of another account.
            exploration = exploration | {"prose": exploration["prose"] | {"call_id": None}}
        else:
            summary, exploration = _known_exploration(file) or _run_explorer(file)
            described = Description(summary=summary, note=None)
            if describer is not None and not exploration.get("problem"):
                described = describe(file, summary, describer)
            if described.note is not None:
                exploration = exploration | {"prose": described.note}

        with change(file.session_id) as record:
            if described.ending is not None:
                described.ending.write(record)
            finish_exploration(record, file.id, summary=described.summary, exploration=exploration)
    return load_file_reference(file_id, owner_id=owner_id)


def describer_of(file: FileReference) -> Describer | None:
    if file.file_type not in KINDS:
        return None
    session = load_session(file.session_id)
    config = session_config(session.config)
    if not (alias := config.files.model):
        return None
    return Describer(alias=alias, prompt_version=site_prompts().prose.version, session=session, config=config)


def is_being_asked(file: FileReference) -> bool:
    """Return whether a call about a file may still come to an end, and close those that cannot."""
    running = running_file_calls(file.session_id, file.id)
    lost = [call_id for call_id, began in running.items() if began < timezone.now() - LOST_AFTER]
    if lost:
        with change(file.session_id) as record:
            for call_id in lost:
                Ending(call_id=call_id, end=_abandoned(), attempts=1).write(record)
    return len(lost) < len(running)


def _known_exploration(file: FileReference, describer: Describer | None = None) -> tuple[str, dict[str, Any]] | None:
    kind = BY_NAME.get(file.file_type)
    if kind is None:
        return None
    model, prompt = ("", "") if describer is None else (describer.alias, describer.prompt_version)
    same = find_exploration(
        file.content_id, file_type=kind.name, explorer=kind.explorer, model=model, prompt_version=prompt
    )
    return None if same is None or same.exploration is None else (same.exploration_summary, same.exploration)


def _run_explorer(file: FileReference) -> tuple[str, dict[str, Any]]:
    try:
        with on_disk(file.content_id) as place:
            config = site_config().files
            limits = ExplorationLimits(seconds=config.exploration_seconds, memory_bytes=config.exploration_memory_bytes)
            explored = explore_alone(place, file.path, limits=limits)
    except FileContentNotFound as error:
        nothing = {"explorer": "none-1", "covered": "nothing", "seconds": 0.0, "peak_bytes": 0}
        return "", nothing | {"problem": error.message}
    found = explored.exploration
    return found.summary, {
        "explorer": found.explorer,
        "kind": found.kind,
        "covered": found.covered,
        "problem": found.problem,
        "seconds": round(explored.seconds, 3),
        "peak_bytes": explored.peak_bytes,
    }


def describe(file: FileReference, ordinary: str, describer: Describer) -> Description:
    """Ask the describer, and its fallbacks if it gives nothing. There is always a summary.

    :raises AlreadyAsked: another process asks, or the file is explored.
    """
    note = {"model": describer.alias, "prompt": describer.prompt_version, "call_id": None, "bytes": 0}
    try:
        own = get_model(describer.alias, user_id=describer.session.owner_id)
        models = [own, *load_fallbacks(describer.alias, describer.session, describer.config)]
        data = read_content(file.content_id, 0, _READ)
    except (ModelNotFoundError, FileContentNotFound) as error:
        return Description(summary=ordinary, note=note | {"problem": error.code})
    calls = FileCalls(file, describer, data, models)
    if calls.question is None:
        return Description(summary=ordinary, note=None)
    try:
        # Connections to models belong to an event loop, and are closed with it.
        asked = waiting_for(calls.ask, own_loop=True)()
    except BudgetExhausted as error:
        return Description(summary=ordinary, note=note | {"problem": str(error.details["reason"])})
    length = asked.question.length
    note |= {"call_id": asked.ending.call_id, "bytes": length, "problem": asked.problem}
    if asked.problem:
        return Description(summary=ordinary, note=note, ending=asked.ending)
    size = max(length, file.size or 0)
    summary = with_description(ordinary, asked.reply, alias=asked.alias, length=length, size=size)
    return Description(summary=summary, note=note, ending=asked.ending)


class FileCalls(ModelCaller[Asked]):
    def __init__(self, file: FileReference, describer: Describer, data: bytes, models: Sequence[Model]) -> None:
        self.file = file
        self.describer = describer
        self.data = data
        self.patience = patience_of(describer.config.turn)
        self._deadline = time.monotonic() + CALL_SECONDS
        self._models = list(models)
        self._asked: Asked | None = None
        # None if the file is not worth a question to any model that is left.
        self.question = self._next_question()

    async def ask(self) -> Asked:
        """Return the first reply that gives anything, or else the last one; raises what ``ask_model`` and ``check`` do."""
        try:
            return await self.ask_model()
        finally:
            await close_connections()

    async def plan(self) -> PlannedCall:
        model, question = self._models[0], self._question
        is_own = model.spec.alias == self.describer.session.model
        return PlannedCall(
            model=model,
            spec=spec_in_session(model.spec, self.describer.config) if is_own else model.spec,
            request=question.request,
            purpose="file",
            prompt_tokens=question.tokens,
            estimated_tokens=question.tokens,
            parameters={"file_id": self.file.id},
            manifest=question.manifest,
            digest=digest(question.request.payload),
            texts={"prompt": question.prompt.text},
        )

    def held(self) -> AbstractContextManager[Change]:
        return change(self.file.session_id)

    def limits(self, highest: Spent) -> Sequence[SpendingLimit]:
        return load_limits(self.file.session_id)

    def check(self, record: Change) -> None:
        if not is_waiting(self.file.id) or running_file_calls(self.file.session_id, self.file.id):
            raise AlreadyAsked

    def seconds(self, call: RunningCall) -> float:
        left = self._deadline - time.monotonic()
        return max(0.0, left if call.time_limit is None else min(left, call.time_limit.left))

    async def receive(self, call: RunningCall, request: Request) -> Reply:
        # The file is explored even if an adapter fails.
        return await complete_or_abandon(call.planned.model, request, prompt_tokens=call.planned.prompt_tokens)

    async def finish(self, call: RunningCall, reply: Reply) -> Asked:
        if isinstance(reply.error, ModelCallAbandoned):
            end, problem = _abandoned(), ModelCallAbandoned.code
        else:
            end, problem = (
                end_of_reply(reply, call.planned.spec, began=call.began),
                problem_of(reply, self._question.beginning),
            )
        self._asked = Asked(
            alias=call.planned.spec.alias,
            question=self._question,
            reply=reply,
            problem=problem,
            ending=Ending(call_id=call.id, end=end, attempts=call.attempts),
        )
        return self._asked

    async def use_next_model(self) -> bool:
        asked = self._asked
        del self._models[0]
        self.question = self._next_question()
        if self.question is None or asked is None:
            return False

        def write_end() -> None:
            with change(self.file.session_id) as record:
                asked.ending.write(record)

        await in_waiting_thread(write_end)()
        return True

    @property
    def _question(self) -> FileQuestion:
        if self.question is None:
            raise ValueError("there is nothing to ask")
        return self.question

    def _next_question(self) -> FileQuestion | None:
        # Models for which the file is not worth a question are left out.
        prompt, config = site_prompts().prose, self.describer.config
        while self._models:
            spec = self._models[0].spec
            question = question_about(self.file.content_id, self.data, prompt=prompt, spec=spec, config=config)
            if question is not None:
                return question
            del self._models[0]
        return None


def _abandoned() -> MessageEnd:
    reason = ModelCallAbandoned()
    return MessageEnd(outcome=Outcome.BROKEN.value, error_code=reason.code, error_message=reason.message)
