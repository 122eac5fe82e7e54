"""Runs of operators, their items and the attempts at them: frozen values, and the lines of a file as items."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from mnesis_core.errors import InvalidInput, InvalidRequest, Phrase, gettext_noop
from mnesis_core.files.lines import Read, encoding_of
from mnesis_core.records import HasError, MessageEnd, UsageRecord
from mnesis_core.spending import TurnLimits
from mnesis_core.text import nests_within, printable, read_json

READ_BYTES = 1_048_576
DEEPEST_ITEM = 100
_BLANK = b" \t\r"


class OperatorKind(StrEnum):
    LLM = "llm"
    AGENTIC = "agentic"


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"  # No new item begins; those in flight finish.
    COMPLETED = "completed"  # Every item has ended, with a result or without.
    CANCELLED = "cancelled"
    FAILED = "failed"  # The input cannot be read.

    @property
    def is_live(self) -> bool:
        return self in (RunState.PENDING, RunState.RUNNING)


class StopReason(StrEnum):
    PERSON = "person"
    BUDGET = "budget"
    ERROR = "error"


class ItemState(StrEnum):
    PENDING = "pending"  # Waits for a worker, for the first time or again.
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        return self not in (ItemState.PENDING, ItemState.RUNNING)


class ErrorKind(StrEnum):
    TIMEOUT = "timeout"
    VALIDATION = "validation"
    SCHEMA_ERROR = "schema_error"
    LLM_ERROR = "llm_error"
    # The sub-agent's turn ended without an answer, for example because it needed an approval.
    TOOL_ERROR = "tool_error"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    template: str
    schema: dict[str, Any] | None = None  # JSON Schema of each result; None accepts any text.
    native_schema: bool = False  # Whether the schema is also sent to the provider, if it supports schemas.
    model: str = ""
    system_prompt: str = ""
    concurrency: int = 16  # The most items in flight, of all workers together.
    max_retries: int = 2  # Attempts at an item after the first.
    timeout_seconds: float = 60.0
    temperature: float | None = None
    read_only: bool = True  # Whether a sub-agent may only use tools that change nothing.
    tools: tuple[str, ...] | None = None  # None for the session's tools.
    max_turns: int = 20  # Model calls in one turn of a sub-agent.
    limits: TurnLimits = field(default_factory=TurnLimits)  # Shared by all attempts of the run.


def write_spec(spec: OperatorSpec) -> str:
    """Return the specification as ASCII text for ``read_spec``, with the schema's keys in their order.

    :raises ValueError, TypeError: the schema holds what is not JSON
    """
    return json.dumps(asdict(spec), allow_nan=False)


def read_spec(text: str) -> OperatorSpec:
    values = json.loads(text)
    tools, limits = values.pop("tools", None), values.pop("limits", {})
    return OperatorSpec(**values, tools=None if tools is None else tuple(tools), limits=TurnLimits(**limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    items: int | None = None  # Lines of the input; None while it is being read.
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    tries: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    cost_micros: int = 0

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled

    @property
    def left(self) -> int:
        """Return how many items have not ended; 0 while the number of items is unknown."""
        return max(0, (self.items or 0) - self.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(HasError):
    id: str
    session_id: str
    owner_id: int
    turn_id: str  # The turn whose model started it; empty for a person or a program.
    part_id: str
    actor: str  # Who asked for it (``mnesis_core.actor``).
    kind: OperatorKind
    spec: OperatorSpec
    input_file_id: str
    state: RunState
    reason: str  # A ``StopReason`` while paused or stopped; empty otherwise.
    counts: Counts
    output_file_id: str  # The newest file of results; empty if there is none.
    error_code: str | None
    error_message: str | None
    idempotency_key: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    number: int
    offset: int  # Of the first byte in the input's content.
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRecord:
    run_id: str
    number: int
    offset: int
    length: int
    state: ItemState
    attempts: int
    excused: int  # Attempts that do not count: their worker died, or a retry of the item was requested.
    not_before: datetime | None
    lease_owner: str
    lease_expires_at: datetime | None
    error_kind: ErrorKind | None
    error: str
    accepted_try_id: str
    call_id: str  # The running model call; empty if there is none.
    child_session_id: str
    started_at: datetime | None
    ended_at: datetime | None
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int  # Of all attempts together.

    @property
    def counted_attempts(self) -> int:
        """Return the attempts that count against the retry limit, the running one included."""
        return self.attempts - self.excused


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    id: str
    run_id: str
    item: int
    number: int  # The item's ``attempts`` when it was begun, from 1.
    call_id: str | None
    child_turn_id: str
    output: str
    accepted: bool
    error_kind: ErrorKind | None
    error: str  # The validator's message, or the call's error.
    usage: UsageRecord
    duration_ms: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    output: str = ""
    usage: UsageRecord = field(default_factory=UsageRecord)
    duration_ms: int = 0
    call_id: str | None = None
    call_end: MessageEnd | None = None  # None if it is recorded already, or there was no call.
    call_attempts: int = 1  # How often the model was asked in that call.
    child_turn_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    item: int
    number: int  # The item's ``attempts`` when it was claimed.
    state: ItemState  # ``completed`` accepts the attempt; with ``pending`` the item waits for another one.
    attempt: AttemptOutcome | None = None  # None if nothing came of it that could be kept.
    error_kind: ErrorKind | None = None
    error: str = ""
    not_before: datetime | None = None
    excused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    number: int
    offset: int
    length: int
    state: ItemState
    output: str | None  # The accepted attempt's reply, verbatim.
    error_kind: ErrorKind | None
    error: str


def input_lines(
    read: Read, size: int, *, after: NewItem | None = None, line_bytes: int = 4_000_000, most_items: int = 1_000_000
) -> Iterator[NewItem]:
    """Yield the items of a file: its lines that are not blank.

    :param after: the last known item, after which to continue
    :param line_bytes: the longest line
    :raises InvalidInput: a line is not JSON, too long or too deep, or there are too many; the message names the line
    """
    for item, line in _places(read, size, after, line_bytes):
        if item.number > most_items:
            raise InvalidInput(
                gettext_noop("The input has more than %(most)s items."), {"most": most_items}, most_items=most_items
            )
        where = Phrase(
            gettext_noop("Item %(number)s of the input (at byte %(offset)s)"),
            {"number": str(item.number), "offset": item.offset},
        )
        if len(line) > line_bytes:
            raise InvalidInput(
                gettext_noop("%(where)s is longer than %(most)s bytes."),
                {"where": where, "most": line_bytes},
                item=item.number,
                offset=item.offset,
            )
        try:
            read_item(line)
        except InvalidInput as error:
            raise InvalidInput(
                gettext_noop("%(where)s cannot be read. %(reason)s"),
                {"where": where, "reason": Phrase(error.text, error.values)},
                item=item.number,
                offset=item.offset,
            ) from None
        yield item


def line_places(read: Read, size: int, *, line_bytes: int) -> Iterator[NewItem]:
    """Yield the items of a file that was checked before; ``line_bytes`` is the longest line.

    :raises InvalidInput: it is not UTF-8
    """
    return (item for item, _ in _places(read, size, None, line_bytes))


# What ``read_json`` says of a body.
_OF_ITEMS = {
    "The body is nested too deeply.": gettext_noop("It is nested too deeply."),
    "The body is not JSON: %(msg)s %(where)s.": gettext_noop("It is not JSON: %(msg)s %(where)s."),
    "The body cannot be read: %(reason)s.": gettext_noop("It cannot be read: %(reason)s."),
}


def read_item(line: bytes) -> Any:
    """:raises InvalidInput: it is not JSON, or too deep"""
    try:
        value = read_json(line.decode())
    except UnicodeDecodeError:
        raise InvalidInput(gettext_noop("It is not UTF-8.")) from None
    except InvalidRequest as error:
        raise InvalidInput(_OF_ITEMS[error.text], error.values) from None
    if not nests_within(value, DEEPEST_ITEM):
        raise InvalidInput(gettext_noop("It nests more than %(most)s objects and lists."), {"most": str(DEEPEST_ITEM)})
    return value


def one_line(value: Any) -> str:
    """Return a value as a JSON line without its end. Lone surrogates stay escaped, so that it can be encoded as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if printable(text) == text else json.dumps(value, separators=(",", ":"))


def _places(read: Read, size: int, after: NewItem | None, line_bytes: int) -> Iterator[tuple[NewItem, bytes]]:
    if after:
        number, begin = after.number, after.offset + after.length
    else:
        encoding = encoding_of(read(0, 4))
        if encoding.name != "utf-8":
            raise InvalidInput(
                gettext_noop("The input is %(encoding)s; write it as UTF-8."), {"encoding": encoding.name.upper()}
            )
        number, begin = 0, encoding.mark
    for offset, line in _lines(read, size, begin, line_bytes):
        if kept := line.strip(_BLANK):
            number += 1
            lead = len(line) - len(line.lstrip(_BLANK))
            yield NewItem(number=number, offset=offset + lead, length=len(kept)), kept


def _lines(read: Read, size: int, begin: int, line_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its offset. Of a line that is too long, only enough is held to show that."""
    rest, offset = b"", begin
    while begin < size:
        piece = read(begin, READ_BYTES)
        if not piece:
            break
        begin += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield offset, line
            offset += len(line) + 1
        if not rest.strip(_BLANK):
            offset, rest = offset + len(rest), b""
        elif len(rest) > line_bytes + READ_BYTES:
            break
    if rest:
        yield offset, rest
