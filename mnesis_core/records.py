"""Sessions, turns, calls of models and tools, compactions and summaries as queries return them; and the ids of rows."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from mnesis_core.messages import UNANSWERED_STATES, ToolState
from mnesis_core.text import text_of_bytes

R = TypeVar("R")
FORK = "fork"  # of a session that begins as a copy of another one, and of its copied turns
GATEWAY = "gateway"  # of a session whose context is the client's, of its turns, and the purpose of their calls
SUB_AGENT = "task"  # of a session that a turn of its parent works with by the tool ``task`` or ``tasks``
IMPORTED_SUB_AGENT = "sub-agent"  # of a session that a turn of an imported history worked with
# The label ``link`` of an imported session -> its relation to its parent.
IMPORTED = {"sub_agent": "sub-agent", "fork": "fork", "compaction": "compaction"}
ID_PREFIXES = (
    *("sess", "turn", "msg", "part", "call", "sum", "run", "file", "key", "text", "try", "mcp", "inbox", "upload"),
    *(
        "map",
        "import",
        "org",
        "branch",
        "fact",
        "source",
        "reflection",
        "claim",
        "share",
        "opening",
        "rating",
        "proj",
        "prompt",
    ),
    "pfile",
    "afile",
    "asst",
    "assv",
    "view",
)
_ID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ID_PAIRS = [high + low for high in _ID_DIGITS for low in _ID_DIGITS]
_ID = re.compile(rf"(?:{'|'.join(ID_PREFIXES)})_[0-9A-HJKMNP-TV-Z]{{26}}")
_ID_IN_TEXT = re.compile(rf"(?<![0-9A-Za-z_]){_ID.pattern}(?![0-9A-Za-z])")
_last_number = 0  # of the id that this process made last


class TurnState(StrEnum):
    RUNNING = "running"
    SUSPENDED = "suspended"  # Waits for a person's approval or the caller's results, for as long as it takes.
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # The stream broke off, or the process died; what was said is kept.
    FAILED = "failed"
    INCOMPLETE = "incomplete"  # The stream ended without proof that the answer is whole.

    @property
    def is_end(self) -> bool:
        return self not in (TurnState.RUNNING, TurnState.SUSPENDED)


class WaitsFor(StrEnum):
    APPROVAL = "approval"
    ANSWER = "answer"  # of a person, to the questions of ``ask_user``
    CALLER = "caller"  # the program that started the turn and runs the tool itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    code: str  # of ``mnesis_core.errors``
    message: str


class HasError:
    __slots__ = ()
    error_code: str | None
    error_message: str | None

    @property
    def error(self) -> ErrorRecord | None:
        return ErrorRecord(code=self.error_code, message=self.error_message or "") if self.error_code else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """Tokens and cost of calls, each ``None`` until it is known."""

    tokens_input: int | None = None
    tokens_output: int | None = None
    tokens_cache_read: int | None = None
    tokens_cache_write: int | None = None
    usage_source: str | None = None
    cost_micros: int | None = None


def total_usage(*usages: UsageRecord) -> UsageRecord:
    """Return the sum of several usages, which has no source."""
    return UsageRecord(
        tokens_input=sum(usage.tokens_input or 0 for usage in usages),
        tokens_output=sum(usage.tokens_output or 0 for usage in usages),
        cost_micros=sum(usage.cost_micros or 0 for usage in usages),
    )


def add_usage(before: UsageRecord, call: UsageRecord) -> UsageRecord:
    """Return what a turn has used after one more call.

    The tokens count as the provider's only where it counted every call, and the cost is known only where the cost of
    every call is. A call that took nothing changes nothing.
    """
    if not _total(before) or not _total(call):
        return call if _total(call) or before.tokens_input is None else before
    is_known = before.cost_micros is not None and call.cost_micros is not None
    return UsageRecord(
        tokens_input=(before.tokens_input or 0) + (call.tokens_input or 0),
        tokens_output=(before.tokens_output or 0) + (call.tokens_output or 0),
        tokens_cache_read=(before.tokens_cache_read or 0) + (call.tokens_cache_read or 0),
        tokens_cache_write=(before.tokens_cache_write or 0) + (call.tokens_cache_write or 0),
        usage_source=call.usage_source if call.usage_source == before.usage_source else "estimated",
        cost_micros=(before.cost_micros or 0) + (call.cost_micros or 0) if is_known else None,
    )


def _total(usage: UsageRecord) -> int:
    return (usage.tokens_input or 0) + (usage.tokens_output or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    id: str
    owner_id: int
    parent_id: str | None
    title: str
    model: str
    agent: str
    origin: str
    system_prompt: str
    labels: dict[str, str]
    config: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    pinned_at: datetime | None
    event_seq: int
    message_seq: int
    turn_seq: int
    running_turn_id: str | None  # The turn that has the session, running or suspended: no other one may begin.
    last_turn_state: str | None
    account_limits: dict[str, Any]  # What an administrator lets the owner spend, as in a configuration.
    host_mode: bool = False
    peer_name: str = ""
    branch: int = 0  # the chosen one
    branch_seq: int = 0  # how many branches there are beside branch 0
    trashed_at: datetime | None = None
    seen_turn: int | None = None  # how many turns had ended when the owner last looked; None before they first did
    project_id: str = ""  # the project that it is in
    named_project_id: str = ""  # the one that it was put into, which its owner may have left since
    assistant_version_id: str = ""  # the version of an assistant that it began with
    assistant_instructions: str = ""  # which stand before its own
    began_temporary: bool = False
    kept_at: datetime | None = None  # since when one that began as a temporary chat is a session like any other
    is_at_home: bool = True  # Whether the owner is in the session's organisation; else only administrators see it.

    @property
    def is_sub_agent(self) -> bool:
        return self.origin == SUB_AGENT

    @property
    def is_temporary(self) -> bool:
        """Whether the session is a temporary chat, which no list shows and which is soon deleted for its owner."""
        return self.began_temporary and self.kept_at is None

    @property
    def ended_turns(self) -> int:
        return self.turn_seq - (self.running_turn_id is not None)

    @property
    def is_unread(self) -> bool:
        """Whether a turn has ended since the owner looked; false for a session that they never opened."""
        return self.seen_turn is not None and self.seen_turn < self.ended_turns

    @property
    def relation(self) -> str:
        """Return ``sub-agent``, ``fork``, ``compaction`` (of an imported history) or an empty text."""
        if self.parent_id is None:
            return ""
        return {SUB_AGENT: "sub-agent", FORK: "fork"}.get(self.origin) or IMPORTED.get(self.labels.get("link", ""), "")

    @property
    def state(self) -> str:
        """Return ``trashed``, ``running``, ``suspended``, ``archived``, ``idle``, or how the last turn ended if not well."""
        if self.trashed_at:
            return "trashed"
        if self.running_turn_id:
            return "suspended" if self.last_turn_state == TurnState.SUSPENDED else "running"
        if self.archived_at:
            return "archived"
        return "idle" if self.last_turn_state in (None, "completed") else str(self.last_turn_state)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRecord:
    """A folder of sessions with instructions and files, as one of its members sees it."""

    id: str
    name: str
    instructions: str
    model: str  # of sessions that begin in it; empty if it has no say
    config: dict[str, Any]  # of sessions that begin in it
    owner_name: str
    is_owner: bool  # whether the member is its owner
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantFileRecord:
    """A file of an assistant, which every session that begins with it is given."""

    id: str
    path: str
    size: int  # bytes
    content_id: str  # SHA-256 of its bytes, 64 hexadecimal digits


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantRecord:
    """A version of an assistant, as one of the people sees it who may use it."""

    id: str
    version_id: str
    version: int
    name: str
    description: str
    instructions: str
    model: str  # of sessions that begin with it; empty if it has no say
    config: dict[str, Any]  # of sessions that begin with it
    starters: list[str]
    files: tuple[AssistantFileRecord, ...]
    picture: str  # the id of the content that is shown beside its name; empty if it has none
    owner_name: str
    is_owner: bool
    for_everyone: bool
    is_newest: bool  # whether new sessions begin with this version
    created_at: datetime  # when this version was made
    people: tuple[str, ...] = ()  # the usernames of those whom it is shared with; only its owner is told
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPromptRecord:
    """A text to begin a message with, as one of the people sees it who may use it."""

    id: str
    name: str  # the word after "/"
    title: str
    text: str  # with "{{variable}}" or "{{variable=default}}" where the composer asks for a value
    is_shared: bool  # whether everyone in the organisation may use it
    owner_name: str
    is_owner: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFileRecord:
    id: str
    path: str
    size: int  # bytes
    content_id: str  # SHA-256 of its bytes, 64 hexadecimal digits
    added_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectMemberRecord:
    id: str  # the person's pseudonym
    name: str
    is_owner: bool
    added_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNode:
    id: str
    parent_id: str | None
    origin: str

    @property
    def is_copy(self) -> bool:
        return self.origin == FORK

    @property
    def is_sub_agent(self) -> bool:
        return self.origin == SUB_AGENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    part_id: str
    tool_call_id: str
    tool_name: str
    input: str  # the arguments exactly as the model wrote them, usually JSON
    reason: WaitsFor


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord(HasError):
    id: str
    session_id: str
    seq: int
    state: str
    model: str
    origin: str
    idempotency_key: str | None
    created_at: datetime
    ended_at: datetime | None
    error_code: str | None
    error_message: str | None
    fence: int
    message_ids: tuple[str, ...]
    usage: UsageRecord
    options: str = ""  # What the caller asked of this turn alone, as ``turns.options.write_options`` writes it.
    actor: str = ""  # Who asked for it (``mnesis_core.actor``); empty in turns from before entries named their actor.
    waits_for: tuple[Waiting, ...] = ()  # In the order of the calls; empty unless the turn is suspended.


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEnd:
    model: str = ""
    finish_reason: str | None = None
    outcome: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    usage: UsageRecord = UsageRecord()
    usage_said: str = ""  # what the provider said of tokens, as JSON
    stop_sequence: str | None = None  # the stop text at which the answer ended, if the provider says so
    first_token_ms: int | None = None  # from the call's beginning to the first piece of a streamed answer
    tokens_cache_write_1h: int | None = None  # how many of the tokens written to the cache it keeps for an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A model call that belongs to no turn, before it is made."""

    purpose: str
    model: str
    provider_model: str
    parameters: dict[str, Any]
    manifest: list[Any]
    digest: str
    estimated_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(HasError):
    id: str
    session_id: str
    turn_id: str | None
    message_id: str | None
    purpose: str
    state: str
    model: str
    provider_model: str
    parameters: dict[str, Any]
    manifest: list[Any]
    context_seq: int
    digest: str
    estimated_tokens: int
    attempts: int | None
    outcome: str | None
    finish_reason: str | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    ended_at: datetime | None
    usage: UsageRecord
    # What the provider said of tokens, as JSON, whether it can be true or not; None for nothing.
    usage_said: str | None
    stop_sequence: str | None  # the stop text at which the answer ended, if the provider says so
    first_token_ms: int | None  # from the beginning to the first piece; None if nothing came, or it was not streamed
    # How many of ``tokens_cache_write`` the cache keeps for an hour; it keeps the others for 5 minutes.
    tokens_cache_write_1h: int | None


class Thumb(StrEnum):
    UP = "up"
    DOWN = "down"
    NONE = ""  # an earlier one was taken back


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingRecord:
    """What a session's owner said of an answer."""

    id: str
    session_id: str
    message_id: str
    thumb: Thumb
    comment: str
    rated_seq: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItemRecord:
    item_type: str
    item_id: str
    position: int
    added_seq: int
    removed_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlace:
    """The time at which a part was written, and the time since which a model reads something else in its place."""

    said_at: datetime
    tool_name: str
    left_turn: int | None  # The number of the turn in which its message left the context, or None.
    pruned_turn: int | None  # The number of the turn in which its output became a tombstone, or None.


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference:
    id: str
    session_id: str
    content_id: str  # SHA-256 of its bytes, 64 hexadecimal digits
    path: str
    file_type: str
    token_count: int
    exploration_summary: str  # What it holds, in a few hundred tokens; empty while unknown.
    created_at: datetime
    size: int | None = None  # bytes; None if unknown
    # ``explorer``, ``covered``, ``problem``, ``seconds``, ``peak_bytes``; None if it was not explored here.
    exploration: dict[str, Any] | None = None
    is_explored: bool = True  # False while its exploration is still to come.


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """A range of a file's bytes that begins and ends between two characters where the file is UTF-8."""

    file: FileReference
    data: bytes
    offset: int  # bytes before the first one
    size: int  # bytes of the whole file

    @property
    def next_offset(self) -> int | None:
        """Return where to read on, or None at the end of the file."""
        end = self.offset + len(self.data)
        return end if end < self.size else None

    @property
    def text(self) -> str:
        return text_of_bytes(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveText:
    message_id: str
    part_index: int
    part_type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    id: str
    run_id: str | None
    call_id: str | None
    summary_id: str  # The summary that it was for, which exists only if the attempt was accepted.
    kind: str
    level: int
    piece: int
    pieces: int
    target_tokens: int | None
    prompt_version: str
    accepted: bool
    reason: str
    tokens_input: int
    tokens_output: int
    usage_source: str
    cost_micros: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(HasError):
    id: str
    session_id: str
    state: str
    trigger: str
    attempts: int
    outcome: str | None  # A value of ``compaction.Outcome``; None for a run that failed or is running.
    level: int | None
    tries: tuple[AttemptRecord, ...]
    tokens_before: int | None
    tokens_after: int | None
    summary_ids: list[str]
    source_count: int | None
    pruned_parts: int | None
    pruned_tokens: int | None
    tokens_input: int | None
    tokens_output: int | None
    cost_micros: int | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error_code: str | None
    error_message: str | None
    end_seq: int | None
    after_message_seq: int | None
    actor: str  # Who requested it, or at whose turn it became due (``mnesis_core.actor``).
    branch: int = 0  # whose context it makes smaller
    turn_ids: Sequence[str] = ()  # the only turns that it may summarise; empty for no such restriction


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSummary:
    """A summary that was accepted and waits for its commit."""

    id: str
    kind: str
    depth: int
    level: int
    text: str
    token_count: int
    source_tokens: int
    first_seq: int
    last_seq: int
    message_count: int
    model: str
    prompt_version: str
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRecord(NewSummary):
    session_id: str
    run_id: str | None
    created_at: datetime
    superseded_seq: int | None
    revises: str | None
    restores: str | None  # the earlier revision whose text it has
    branch: int  # that it was made for; it serves every branch that has all of its messages
    freshness: str  # ``fresh``, or ``stale`` when a summary under it was revised to another text since.
    source_ids: list[tuple[str, str]]  # (``message`` or ``summary``, id), in order


# Ids: prefixed ULIDs: unique everywhere, made once. The order of a record is its ``seq``; ids order lists of rows that
# have none, so those that a process makes one after another increase (ULID specification, "Monotonicity").


def new_id(prefix: str) -> str:
    """Return a new id such as ``sess_01J…``: the prefix, an underscore, a ULID (26 characters of Crockford base 32).

    :raises ValueError: the prefix is not one of ``ID_PREFIXES``.
    """
    if prefix not in ID_PREFIXES:
        raise ValueError(f"unknown id prefix {prefix!r}; known: {', '.join(ID_PREFIXES)}")
    return _made_now(prefix)


def new_request_id() -> str:
    """Return the id of a request, ``req_…``. No row has it."""
    return _made_now("req")


def first_id(prefix: str, seconds: float) -> str:
    """Return the id below all that are made from a time on, in seconds since 1970."""
    return _format_id(prefix, int(seconds * 1000) << 80)


def _made_now(prefix: str) -> str:
    # 48 bits of milliseconds, 80 random ones of which the first is 0, so that steps of 64 random bits overflow none.
    # Two threads that read the same last number lose its order alone: their steps differ.
    global _last_number
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10)) >> 1
    if number >> 80 == _last_number >> 80:
        number = _last_number + 1 + int.from_bytes(os.urandom(8))
    _last_number = number
    return _format_id(prefix, number)


def _format_id(prefix: str, number: int) -> str:
    # Two characters at a time, since a turn makes a dozen ids.
    return f"{prefix}_{''.join([_ID_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])}"


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def find_ids(text: str) -> tuple[str, ...]:
    """Return the ids in ``text``, each once, in order of appearance; linear in its length."""
    return tuple(dict.fromkeys(_ID_IN_TEXT.findall(text)))


# A row as a record


def record_of(kind: type[R], row: Any, /, **given: Any) -> R:
    """Return a value of the dataclass ``kind``: fields that are not given are the row's attributes of the same names."""
    names, read = _reader_of(kind, *given)  # type: ignore[arg-type]  # classes are hashable
    return kind(**dict(zip(names, read(row), strict=True)), **given)


@cache
def _reader_of(kind: Any, *given: str) -> tuple[tuple[str, ...], attrgetter[Any]]:
    # Two names at least, since ``attrgetter`` returns a bare value for one.
    names = tuple(field.name for field in fields(kind) if field.name not in given)
    return names, attrgetter(*names)


class InteractionStatus(StrEnum):
    PENDING = "PENDING"  # It has not ended: it waits or runs.
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInteraction:
    tool_call_id: str
    turn_id: str
    tool_name: str
    arguments: str  # as the model wrote them, which is JSON if it wrote what it was asked for
    result: str | None  # whole, even where prompts have a tombstone in its place; also one that came late
    error: str | None
    state: str
    part_id: str
    part_index: int
    message_id: str
    seq: int
    started_at: datetime | None
    completed_at: datetime | None

    @property
    def status(self) -> InteractionStatus:
        return next(status for status, states in STATES.items() if self.state in states)


STATES: dict[InteractionStatus, tuple[ToolState, ...]] = {
    InteractionStatus.PENDING: UNANSWERED_STATES,
    InteractionStatus.SUCCESS: (ToolState.COMPLETED,),
    InteractionStatus.ERROR: (ToolState.ERROR,),
}
