"""Runs of operators as every door takes and says them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import ConfigDict, StrictBool, StrictInt

from agents_app.map_queries import first_failures, list_items, list_runs, load_item, load_run, tries_of_item
from agents_app.maps.service import MapRequest
from agents_app.schemas import LimitsIn
from mnesis_core.maps.values import Counts, ItemRecord, ItemState, OperatorKind, RunRecord, TryRecord
from mnesis_core.text import printable
from sessions_app.api import place_of, read_place
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import UsageOut, usage_out

FAILURES = 5
LONGEST_ERROR = 500
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class MapIn(Schema):
    """One question to a model for each line of a file.

    ``file_id`` names a JSON Lines file, one value a line; ``items`` are the values themselves, in its place. ``template`` is
    Jinja and uses ``item``: ``Translate: {{ item.text }}``. ``output_schema`` is a JSON Schema that every result must fit;
    without it any text is one. Where the provider takes schemas it is told (``native_schema`` true or false says so).
    What is left out is as the site has it.
    """

    model_config = ConfigDict(extra="forbid")

    template: str
    file_id: str | None = None
    items: list[Any] | None = None
    session_id: str | None = None
    output_schema: dict[str, Any] | None = None
    native_schema: StrictBool | None = None
    model: str = ""
    system_prompt: str = ""
    concurrency: Annotated[StrictInt, Field(ge=1, le=10_000)] | None = None
    max_retries: Annotated[StrictInt, Field(ge=0, le=10)] | None = None
    timeout_seconds: Seconds | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    limits: LimitsIn | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    def request(self, kind: OperatorKind) -> MapRequest:
        """As the contract takes it."""
        values = self.dict(exclude={"output_schema", "limits", "wait_seconds"})
        limits = self.limits.limits() if self.limits else None
        return MapRequest(kind=kind, schema=self.output_schema, limits=limits, **values)


class AgenticMapIn(MapIn):
    """One sub-agent for each line of a file, in a session of its own.

    With ``read_only`` it has only tools that change nothing; ``tools`` are those that it has, or else the session's;
    ``max_turns`` the most model calls of one of its turns.
    """

    read_only: StrictBool = True
    tools: Annotated[list[str], Field(max_length=100)] | None = None
    max_turns: Annotated[StrictInt, Field(ge=1, le=200)] | None = None


class MapCountsOut(Schema):
    """How far a run is. ``items`` is null while its input is being read."""

    items: int | None
    completed: int
    failed: int
    cancelled: int
    left: int
    tries: int
    tokens_input: int
    tokens_output: int
    cost_micros: int


class MapFailureOut(Schema):
    """An item that failed."""

    item: int
    kind: str
    message: str


class MapErrorOut(Schema):
    """Why a run could not begin."""

    code: str
    message: str


class MapRunOut(Schema):
    """A run of an operator.

    ``state``: pending (its input is being read), running, paused, completed, cancelled, failed (its input cannot be read).
    ``reason`` says why it is paused or was stopped: person, budget, error. ``output_file_id`` names its results, as soon as
    there are any to keep.
    """

    id: str
    session_id: str
    turn_id: str
    part_id: str
    kind: Literal["llm", "agentic"]
    state: str
    reason: str
    counts: MapCountsOut
    input_file_id: str
    output_file_id: str
    error: MapErrorOut | None
    spec: dict[str, Any]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class MapRunRead(MapRunOut):
    """A run and its first failures."""

    failures: list[MapFailureOut]


class MapRunList(Schema):
    """A page of runs, the newest first."""

    items: list[MapRunOut]
    next_cursor: str | None


class MapItemOut(Schema):
    """An item: its line is ``length`` bytes of the input from ``offset`` on. Sums are of all tries."""

    item: int
    state: str
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
    started_at: datetime | None
    ended_at: datetime | None


class MapItemList(Schema):
    """Items in the order of the input; ``after`` takes the cursor."""

    items: list[MapItemOut]
    next_cursor: int | None


class MapTryOut(Schema):
    """One try at an item. ``call_id`` leads to the very question (``/calls/{id}/payload``)."""

    number: int
    accepted: bool
    output: str
    error_kind: str
    error: str
    call_id: str | None
    child_turn_id: str
    usage: UsageOut
    duration_ms: int
    created_at: datetime


class MapItemRead(MapItemOut):
    """An item and every try at it, the first one first."""

    tries: list[MapTryOut]


def run_out(run: RunRecord) -> dict[str, Any]:
    """A run as every door says it."""
    error = {"code": run.error_code, "message": printable(run.error_message or "")} if run.error_code else None
    names = ("id", "session_id", "turn_id", "part_id", "input_file_id", "output_file_id", "reason")
    spec = asdict(run.spec)
    return {
        **{name: getattr(run, name) for name in names},
        **{name: getattr(run, name) for name in ("created_at", "started_at", "ended_at")},
        "kind": run.kind.value,
        "state": run.state.value,
        "counts": counts_out(run.counts),
        "error": error,
        "spec": _printable(spec | {"output_schema": spec.pop("schema")}),
    }


def counts_out(counts: Counts) -> dict[str, Any]:
    """How far a run is, as every door says it."""
    return asdict(counts) | {"left": counts.left}


def run_read(run: RunRecord) -> dict[str, Any]:
    """A run with its first failures."""
    return run_out(run) | {"failures": failures_of(run)}


def failures_of(run: RunRecord) -> list[dict[str, Any]]:
    """The first items that failed, and why."""
    failed = first_failures(run.id, limit=FAILURES) if run.counts.failed else []
    return [
        {"item": item.number, "kind": _kind(item), "message": printable(item.error[:LONGEST_ERROR])} for item in failed
    ]


def run_page(*, owner_id: int, session_id: str | None, limit: int, cursor: str | None) -> dict[str, Any]:
    """A person's runs, or those of one of their sessions.

    :raises SessionNotFoundError: there is no such session, or it belongs to somebody else.
    :raises InvalidRequest: the cursor is none of ours.
    """
    if session_id is not None:
        load_session(session_id, owner_id=owner_id)
    runs = list_runs(owner_id=owner_id, session_id=session_id, limit=limit + 1, before=read_place(cursor))
    more = place_of(runs[limit - 1].created_at, runs[limit - 1].id) if len(runs) > limit else None
    return {"items": [run_out(run) for run in runs[:limit]], "next_cursor": more}


def item_page(run_id: str, *, owner_id: int, states: Sequence[ItemState], after: int, limit: int) -> dict[str, Any]:
    """Items of a run after a number.

    :raises OperatorRunNotFoundError: there is no such run, or it is somebody else's.
    """
    run = load_run(run_id, owner_id=owner_id)
    items = list_items(run.id, after=after, limit=limit + 1, states=states)
    more = items[limit - 1].number if len(items) > limit else None
    return {"items": [item_out(item) for item in items[:limit]], "next_cursor": more}


def item_read(run_id: str, number: int, *, owner_id: int) -> dict[str, Any]:
    """One item with its tries.

    :raises OperatorRunNotFoundError: there is no such run, or it is somebody else's.
    :raises OperatorItemNotFoundError: it has no such item.
    """
    run = load_run(run_id, owner_id=owner_id)
    item = load_item(run.id, number)
    return item_out(item) | {"tries": [_try_out(one) for one in tries_of_item(run.id, number)]}


def item_out(item: ItemRecord) -> dict[str, Any]:
    """An item as every door says it."""
    names = ("attempts", "child_session_id", "offset", "length", "tokens_input", "tokens_output", "cost_micros")
    return {
        **{name: getattr(item, name) for name in (*names, "duration_ms", "started_at", "ended_at")},
        "item": item.number,
        "state": item.state.value,
        "error_kind": _kind(item),
        "error": printable(item.error),
    }


def _try_out(one: TryRecord) -> dict[str, Any]:
    names = ("number", "accepted", "call_id", "child_turn_id", "duration_ms", "created_at")
    return {
        **{name: getattr(one, name) for name in names},
        "output": printable(one.output),
        "error_kind": one.error_kind.value if one.error_kind else "",
        "error": printable(one.error),
        "usage": usage_out(one.usage),
    }


def _kind(item: ItemRecord) -> str:
    return item.error_kind.value if item.error_kind else ""


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _printable(held) for key, held in value.items()}
    return [_printable(held) for held in value] if isinstance(value, list | tuple) else value
