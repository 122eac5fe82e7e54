"""Runs over many items as the server says them: JSON objects with known fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from mnesis_client.inputs import Limits
from mnesis_client.values import ErrorInfo


class MapCounts(TypedDict):
    """How far a run is; ``items`` is ``None`` while its input is being read."""

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
    """An item that failed."""

    item: int
    kind: str
    message: str


class MapRun(TypedDict):
    """A run. Lists leave its first ``failures`` out."""

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
    """An item; reading one adds its ``tries``."""

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
    """A line of the results: ``output``, or ``error`` with its kind and message; ``seq`` where they are followed."""

    seq: NotRequired[int]
    item: int
    input: Any
    output: NotRequired[Any]
    error: NotRequired[dict[str, str]]


class MapValues(TypedDict, total=False):
    """What is done with each item; one of ``file_id`` and ``items`` must be given."""

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
    """Made, if it is not given."""


class AgenticMapValues(MapValues, total=False):
    """And what its sub-agents have."""

    read_only: bool
    tools: Sequence[str]
    max_turns: int
