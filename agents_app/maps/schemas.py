"""Schemas of runs of operators, the same at every endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import BeforeValidator, ConfigDict, StrictBool, StrictInt

from agents_app.map_queries import attempts_of_item, first_failures, list_items, list_runs, load_item, load_run
from agents_app.maps.service import MapRequest
from agents_app.schemas import LimitsIn
from mnesis_core.maps.values import AttemptRecord, ItemRecord, ItemState, OperatorKind, OperatorSpec, RunRecord
from mnesis_core.text import printable, printable_json
from sessions_app.api import place_of, read_place
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import Out, Text, UsageOut, page_of

FAILURES = 5
LONGEST_ERROR = 500
ErrorWord = Annotated[str, BeforeValidator(lambda kind: kind or "")]
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
        """Return the values that ``service`` takes."""
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


class MapCountsOut(Out):
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


class MapFailureOut(Out):
    """An item that failed."""

    item: Annotated[int, Field(validation_alias="number")]
    kind: Annotated[ErrorWord, Field(validation_alias="error_kind")]
    message: Annotated[
        str, Field(validation_alias="error"), BeforeValidator(lambda text: printable(text[:LONGEST_ERROR]))
    ]


class MapErrorOut(Out):
    """Why a run could not begin."""

    code: str
    message: Text


def _spec_out(spec: OperatorSpec) -> dict[str, Any]:
    values = asdict(spec)
    values["output_schema"] = values.pop("schema")
    printable: dict[str, Any] = printable_json(values)
    return printable


class MapRunOut(Out):
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
    spec: Annotated[dict[str, Any], BeforeValidator(_spec_out)]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class MapRunRead(MapRunOut, Schema):
    failures: list[MapFailureOut]

    @staticmethod
    def resolve_failures(run: RunRecord) -> list[ItemRecord]:
        return first_failures(run.id, limit=FAILURES) if run.counts.failed else []


class MapRunList(Out):
    """A page of runs, the newest first."""

    items: list[MapRunOut]
    next_cursor: str | None


class MapItemOut(Out):
    """An item: its line is ``length`` bytes of the input from ``offset`` on. Sums are of all tries."""

    item: Annotated[int, Field(validation_alias="number")]
    state: str
    attempts: int
    error_kind: ErrorWord
    error: Text
    child_session_id: str
    offset: int
    length: int
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int
    started_at: datetime | None
    ended_at: datetime | None


class MapItemList(Out):
    """Items in the order of the input; ``after`` takes the cursor."""

    items: list[MapItemOut]
    next_cursor: int | None


class MapTryOut(Out):
    """One try at an item. ``call_id`` leads to the very question (``/calls/{id}/payload``)."""

    number: int
    accepted: bool
    output: Text
    error_kind: ErrorWord
    error: Text
    call_id: str | None
    child_turn_id: str
    usage: UsageOut
    duration_ms: int
    created_at: datetime


class MapItemRead(MapItemOut, Schema):
    """An item and every try at it, the first one first."""

    tries: list[MapTryOut]

    @staticmethod
    def resolve_tries(item: ItemRecord) -> list[AttemptRecord]:
        return attempts_of_item(item.run_id, item.number)


def run_page(*, owner_id: int, session_id: str | None, limit: int, cursor: str | None) -> dict[str, Any]:
    """A person's runs, or those of one of their sessions.

    :raises SessionNotFoundError: there is no such session, or it belongs to another person.
    :raises InvalidRequest: the cursor is none of ours.
    """
    if session_id is not None:
        load_session(session_id, owner_id=owner_id)
    runs = list_runs(owner_id=owner_id, session_id=session_id, limit=limit + 1, before=read_place(cursor))
    return page_of(runs, limit, lambda run: place_of(run.created_at, run.id))


def item_page(run_id: str, *, owner_id: int, states: Sequence[ItemState], after: int, limit: int) -> dict[str, Any]:
    """Items of a run after a number.

    :raises OperatorRunNotFoundError: there is no such run, or it belongs to another person.
    """
    run = load_run(run_id, owner_id=owner_id)
    return page_of(list_items(run.id, after=after, limit=limit + 1, states=states), limit, attrgetter("number"))


def find_item(run_id: str, number: int, *, owner_id: int) -> ItemRecord:
    """One item of a run.

    :raises OperatorRunNotFoundError: there is no such run, or it belongs to another person.
    :raises OperatorItemNotFoundError: it has no such item.
    """
    return load_item(load_run(run_id, owner_id=owner_id).id, number)
