"""Runs of operators, their items and the attempts at them: frozen values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from mnesis_core.records import HasError, MessageEnd, UsageRecord
from mnesis_core.spending import TurnLimits


class OperatorKind(StrEnum):
    LLM = "llm"
    AGENTIC = "agentic"


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    # No new item begins; those in flight finish.
    PAUSED = "paused"
    # Every item has ended, with a result or without.
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    # The input cannot be read.
    FAILED = "failed"

    @property
    def is_live(self) -> bool:
        return self in (RunState.PENDING, RunState.RUNNING)


class StopReason(StrEnum):
    PERSON = "person"
    BUDGET = "budget"
    ERROR = "error"


class ItemState(StrEnum):
    # Waits for a worker, for the first time or again.
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        return self not in (ItemState.PENDING, ItemState.RUNNING)


class ErrorKind(StrEnum):
    TIMEOUT = "timeout"
    # The answer is not JSON.
    VALIDATION = "validation"
    # The answer is JSON that does not fit the schema.
    SCHEMA_ERROR = "schema_error"
    LLM_ERROR = "llm_error"
    # The sub-agent's turn ended without an answer, for example because it needed an approval.
    TOOL_ERROR = "tool_error"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    template: str
    # JSON Schema of each result; None accepts any text.
    schema: dict[str, Any] | None = None
    # Whether the schema is also sent to the provider, if it supports schemas.
    native_schema: bool = False
    # An alias; empty for the session's model.
    model: str = ""
    system_prompt: str = ""
    # The most items in flight, of all workers together.
    concurrency: int = 16
    # Attempts at an item after the first.
    max_retries: int = 2
    # Of one attempt.
    timeout_seconds: float = 60.0
    temperature: float | None = None
    # Whether a sub-agent may only use tools that change nothing.
    read_only: bool = True
    # None for the session's tools.
    tools: tuple[str, ...] | None = None
    # Model calls in one turn of a sub-agent.
    max_turns: int = 20
    # Shared by all attempts of the run.
    limits: TurnLimits = field(default_factory=TurnLimits)


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
    # Lines of the input; None while it is being read.
    items: int | None = None
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
    # The turn whose model started it; empty for a person or a program.
    turn_id: str
    # The tool call that started it.
    part_id: str
    kind: OperatorKind
    spec: OperatorSpec
    input_file_id: str
    state: RunState
    # A ``StopReason`` while paused or stopped; empty otherwise.
    reason: str
    counts: Counts
    # The newest file of results; empty if there is none.
    output_file_id: str
    error_code: str | None
    error_message: str | None
    idempotency_key: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    number: int
    # Of the first byte in the input's content.
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRecord:
    run_id: str
    number: int
    offset: int
    length: int
    state: ItemState
    # Attempts begun.
    attempts: int
    # Attempts that do not count: their worker died, or a retry of the item was requested.
    excused: int
    # The earliest time of the next attempt.
    not_before: datetime | None
    lease_owner: str
    lease_expires_at: datetime | None
    error_kind: ErrorKind | None
    error: str
    accepted_try_id: str
    # The running model call; empty if there is none.
    call_id: str
    child_session_id: str
    started_at: datetime | None
    ended_at: datetime | None
    tokens_input: int
    tokens_output: int
    cost_micros: int
    # Of all attempts together.
    duration_ms: int

    @property
    def counted_attempts(self) -> int:
        """Return the attempts that count against the retry limit, the running one included."""
        return self.attempts - self.excused


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    id: str
    run_id: str
    item: int
    # The item's ``attempts`` when it was begun, from 1.
    number: int
    call_id: str | None
    child_turn_id: str
    output: str
    accepted: bool
    error_kind: ErrorKind | None
    # The validator's message, or the call's error.
    error: str
    usage: UsageRecord
    duration_ms: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    output: str = ""
    usage: UsageRecord = field(default_factory=UsageRecord)
    duration_ms: int = 0
    call_id: str | None = None
    # None if it is recorded already, or there was no call.
    call_end: MessageEnd | None = None
    # How often the model was asked in that call.
    call_attempts: int = 1
    child_turn_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    item: int
    # The item's ``attempts`` when it was claimed.
    number: int
    # ``completed`` accepts the attempt; with ``pending`` the item waits for another one.
    state: ItemState
    # None if nothing came of it that could be kept.
    attempt: AttemptOutcome | None = None
    error_kind: ErrorKind | None = None
    error: str = ""
    # The earliest time of the next attempt.
    not_before: datetime | None = None
    # Whether the attempt does not count.
    excused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    number: int
    offset: int
    length: int
    state: ItemState
    # The accepted attempt's reply, verbatim.
    output: str | None
    error_kind: ErrorKind | None
    error: str
