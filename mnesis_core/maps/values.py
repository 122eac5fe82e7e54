"""What the record says of runs of operators, of their items and of the tries at them: frozen values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from mnesis_core.records import HasError, MessageEnd, UsageRecord
from mnesis_core.spending import TurnLimits


class OperatorKind(StrEnum):
    """What is done with each item."""

    LLM = "llm"
    """One question to a model."""
    AGENTIC = "agentic"
    """A sub-agent in a session of its own."""


class RunState(StrEnum):
    """How far a run is."""

    PENDING = "pending"
    """Its input is being read."""
    RUNNING = "running"
    PAUSED = "paused"
    """No item is begun; what was in flight comes to its end."""
    COMPLETED = "completed"
    """Every item has ended, well or not."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    """Its input cannot be read."""

    @property
    def is_live(self) -> bool:
        """Whether workers have something to do for it."""
        return self in (RunState.PENDING, RunState.RUNNING)


class StopReason(StrEnum):
    """Why a run is paused or was stopped."""

    PERSON = "person"
    BUDGET = "budget"
    ERROR = "error"


class ItemState(StrEnum):
    """How far an item is."""

    PENDING = "pending"
    """It waits for a worker, for the first time or again."""
    RUNNING = "running"
    COMPLETED = "completed"
    """One try at it was accepted."""
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """Whether no worker has anything to do for it."""
        return self not in (ItemState.PENDING, ItemState.RUNNING)


class ErrorKind(StrEnum):
    """Why a try came to nothing."""

    TIMEOUT = "timeout"
    VALIDATION = "validation"
    """The answer is no JSON."""
    SCHEMA_ERROR = "schema_error"
    """The answer is JSON that does not fit the schema."""
    LLM_ERROR = "llm_error"
    """The model's call failed."""
    TOOL_ERROR = "tool_error"
    """The sub-agent's turn ended without an answer, as when it needed an approval."""
    BUDGET = "budget"
    """A limit forbade it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """What a run is to do with each of its items."""

    template: str
    """Jinja; ``item`` is the line's value."""
    schema: dict[str, Any] | None = None
    """JSON Schema of each result; ``None``: any text is one."""
    native_schema: bool = False
    """Whether the model's provider is told the schema too: it takes such ones."""
    model: str = ""
    """Alias; empty: the session's."""
    system_prompt: str = ""
    concurrency: int = 16
    """Items in flight at the most, of all workers together."""
    max_retries: int = 2
    """Tries at an item after its first."""
    timeout_seconds: float = 60.0
    """Of one try."""
    temperature: float | None = None
    read_only: bool = True
    """A sub-agent may only use tools that only read."""
    tools: tuple[str, ...] | None = None
    """Names of a sub-agent's tools; ``None``: those of the session."""
    max_turns: int = 20
    """Model calls of one turn of a sub-agent."""
    limits: TurnLimits = field(default_factory=TurnLimits)
    """What all tries of the run may spend together."""


def write_spec(spec: OperatorSpec) -> str:
    """As a text that ``read_spec`` reads again, ASCII, with the schema's keys in their order.

    :raises ValueError: the schema holds what is not JSON.
    :raises TypeError: the same.
    """
    return json.dumps(asdict(spec), allow_nan=False)


def read_spec(text: str) -> OperatorSpec:
    """The specification of a stored text; what it does not name is as if it had not been said."""
    values = json.loads(text)
    tools, limits = values.pop("tools", None), values.pop("limits", {})
    return OperatorSpec(**values, tools=None if tools is None else tuple(tools), limits=TurnLimits(**limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far a run is, and what it took."""

    items: int | None = None
    """Lines of the input; ``None`` while it is being read."""
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    tries: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    cost_micros: int = 0

    @property
    def ended(self) -> int:
        """Items that are done with."""
        return self.completed + self.failed + self.cancelled

    @property
    def left(self) -> int:
        """Items that are not; 0 while nobody knows how many there are."""
        return max(0, (self.items or 0) - self.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(HasError):
    """One run of an operator over the lines of a file."""

    id: str
    session_id: str
    owner_id: int
    turn_id: str
    """The turn whose model asked for it; empty: a person or a program did."""
    part_id: str
    """The tool call with which it did."""
    kind: OperatorKind
    spec: OperatorSpec
    input_file_id: str
    state: RunState
    reason: str
    """Why it is paused or was stopped (``StopReason``); empty otherwise."""
    counts: Counts
    output_file_id: str
    """The newest file of its results; empty while there is none."""
    error_code: str | None
    error_message: str | None
    idempotency_key: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """A line of an input: where it is."""

    number: int
    """From 1."""
    offset: int
    """Of its first byte in the input's content."""
    length: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRecord:
    """One item of a run."""

    run_id: str
    number: int
    offset: int
    length: int
    state: ItemState
    attempts: int
    """Tries that were begun."""
    excused: int
    """Tries that count for nothing: their worker died, or somebody asked for the item to be tried again."""
    not_before: datetime | None
    """When it may be tried again."""
    lease_owner: str
    lease_expires_at: datetime | None
    error_kind: ErrorKind | None
    error: str
    accepted_try_id: str
    call_id: str
    """The model call that runs for it; empty: none does."""
    child_session_id: str
    started_at: datetime | None
    ended_at: datetime | None
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int
    """Of all tries together."""

    @property
    def counted_attempts(self) -> int:
        """Tries that count when it is decided whether there is another one, the one that runs included."""
        return self.attempts - self.excused


@dataclass(frozen=True, slots=True, kw_only=True)
class TryRecord:
    """One try at an item: what came of it, word for word."""

    id: str
    run_id: str
    item: int
    number: int
    """From 1: the ``attempts`` of its item when it was begun."""
    call_id: str | None
    child_turn_id: str
    output: str
    accepted: bool
    error_kind: ErrorKind | None
    error: str
    """What the validator said, or the error of the call."""
    usage: UsageRecord
    duration_ms: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a try gave."""

    output: str = ""
    usage: UsageRecord = field(default_factory=UsageRecord)
    duration_ms: int = 0
    call_id: str | None = None
    call_end: MessageEnd | None = None
    """How its call ended; ``None`` where it is written already, or there was none."""
    call_attempts: int = 1
    """How often the model was asked in that call."""
    child_turn_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What becomes of an item that a worker holds, and what came of its try."""

    item: int
    number: int
    """The try's: the ``attempts`` with which the item was claimed."""
    state: ItemState
    """``completed`` accepts the try; with ``pending`` the item waits for another one."""
    attempt: Attempt | None = None
    """``None``: nothing came of it that could be kept."""
    error_kind: ErrorKind | None = None
    error: str = ""
    not_before: datetime | None = None
    """When an item that waits may be tried again."""
    excused: bool = False
    """Whether the try counts for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """An item as the output file has it."""

    number: int
    offset: int
    length: int
    state: ItemState
    output: str | None
    """The accepted try's reply, word for word."""
    error_kind: ErrorKind | None
    error: str
