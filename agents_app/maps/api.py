"""REST calls of map runs, and their schemas, which are the same at every endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Schema, Status
from pydantic import BeforeValidator, ConfigDict, StrictBool, StrictInt

from agents_app import queries
from agents_app.maps import service
from agents_app.maps.output import output_lines, readable_run, results_as_they_end, table_rows
from agents_app.maps.service import MapRequest
from agents_app.schemas import Key, LimitsIn
from mnesis_core.maps.values import ItemRecord, ItemState, OperatorKind, OperatorSpec, RunRecord, RunState
from mnesis_core.text import printable, printable_json
from sessions_app.callers import Asker, owner_id
from sessions_app.database.threads import work
from sessions_app.live import make_check, viewer_of
from sessions_app.operations import by_name
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import ErrorOut, Limit, Out, Place, Text, UsageOut, page_of, place_of, read_place

FAILURES = 5
LONGEST_ERROR = 500
ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
CHANGING = ERRORS | {409: ErrorOut}
STARTING = CHANGING | {413: ErrorOut}
TEXT = {"schema": {"type": "string"}}
JSON_LINES = {"responses": {200: {"content": {"application/jsonl": TEXT}, "description": "A line for each item"}}}
CSV = {"responses": {200: {"content": {"text/csv": TEXT}, "description": "A row for each item"}}}
ErrorWord = Annotated[str, BeforeValidator(lambda kind: kind or "")]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
router = Router(tags=["operators"])


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
    idempotency_key: Key | None = None

    def request(self, kind: OperatorKind) -> MapRequest:
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
    """The progress of a run. ``items`` is null while its input is being read."""

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
    """The reason why a run could not begin."""

    code: str
    message: Text


def _spec_out(spec: OperatorSpec) -> Any:
    values = asdict(spec)
    values["output_schema"] = values.pop("schema")
    return printable_json(values)


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
        failed = [ItemState.FAILED]
        return queries.list_items(run.id, limit=FAILURES, states=failed) if run.counts.failed else []


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
    def resolve_tries(item: ItemRecord) -> Any:
        return queries.attempts_of_item(item.run_id, item.number)


def run_page(*, owner_id: int, session_id: str | None, limit: int, cursor: str | None) -> dict[str, Any]:
    """:raises SessionNotFoundError: there is no such session, or it belongs to another person.
    :raises InvalidRequest: the cursor is none of ours.
    """
    if session_id is not None:
        load_session(session_id, owner_id=owner_id)
    runs = queries.list_runs(owner_id=owner_id, session_id=session_id, limit=limit + 1, before=read_place(cursor))
    return page_of(runs, limit, lambda run: place_of(run.created_at, run.id))


@by_name("maps/llm")
@router.post(
    "/operators/llm-map", response={202: MapRunRead, **STARTING}, summary="Ask a model about each line of a file"
)
def llm_map(request: Asker, body: MapIn) -> Any:
    """Begin a run: workers ask the model once for each item, check each answer and ask again with what was wrong."""
    return Status(202, service.start(body.request(OperatorKind.LLM), owner_id=owner_id(request)))


@by_name("maps/agentic")
@router.post(
    "/operators/agentic-map",
    response={202: MapRunRead, **STARTING},
    summary="Have a sub-agent work at each line of a file",
)
def agentic_map(request: Asker, body: AgenticMapIn) -> Any:
    """Begin a run: each item gets a session of its own, with tools; its final answer is checked as a reply is."""
    return Status(202, service.start(body.request(OperatorKind.AGENTIC), owner_id=owner_id(request)))


@by_name("maps/list")
@router.get("/operators", response={200: MapRunList, **ERRORS}, summary="List runs, the newest first")
def list_runs(
    request: Asker, session_id: str | None = None, limit: Limit = 50, cursor: str | None = None
) -> dict[str, Any]:
    """Your runs, or those of one session."""
    return run_page(owner_id=owner_id(request), session_id=session_id, limit=limit, cursor=cursor)


@by_name("maps/read")
@router.get("/operators/{run_id}", response={200: MapRunRead, **ERRORS}, summary="Read a run")
def read_run(request: Asker, run_id: str) -> Any:
    """Its state, how far it is, what it took, and its first failures."""
    return queries.load_run(run_id, owner_id=owner_id(request))


@by_name("maps/pause")
@router.post("/operators/{run_id}/pause", response={200: MapRunRead, **CHANGING}, summary="Pause a run")
def pause(request: Asker, run_id: str) -> Any:
    """No more items are begun; those in flight come to their end."""
    return service.set_state(run_id, RunState.PAUSED, owner_id=owner_id(request))


@by_name("maps/resume")
@router.post("/operators/{run_id}/resume", response={200: MapRunRead, **CHANGING}, summary="Resume a run")
def resume(request: Asker, run_id: str) -> Any:
    """Go on with a run that is paused or was cancelled."""
    return service.set_state(run_id, RunState.RUNNING, owner_id=owner_id(request))


@by_name("maps/cancel")
@router.post("/operators/{run_id}/cancel", response={200: MapRunRead, **CHANGING}, summary="Cancel a run")
def cancel(request: Asker, run_id: str) -> Any:
    """Cut off what is in flight within seconds, and keep what is done."""
    return service.set_state(run_id, RunState.CANCELLED, owner_id=owner_id(request))


@by_name("maps/retry")
@router.post("/operators/{run_id}/retry", response={200: MapRunRead, **CHANGING}, summary="Try what failed again")
def retry_failed(request: Asker, run_id: str) -> Any:
    """The items that failed are tried again, as if for the first time."""
    return service.retry_failed(run_id, owner_id=owner_id(request))


@by_name("maps/items", renamed={"state": "states"})
@router.get("/operators/{run_id}/items", response={200: MapItemList, **ERRORS}, summary="List a run's items")
def list_items(
    request: Asker,
    run_id: str,
    state: Annotated[list[ItemState], Query(max_length=5)] = [],  # noqa: B006 - ninja copies it
    after: Place = 0,
    cursor: Place = 0,
    limit: Limit = 100,
) -> dict[str, Any]:
    """Items in the order of the input, all or those in a ``state`` (more than one may be named)."""
    run = queries.load_run(run_id, owner_id=owner_id(request))
    items = queries.list_items(run.id, after=max(after, cursor), limit=limit + 1, states=state)
    return page_of(items, limit, attrgetter("number"))


@by_name("maps/item", renamed={"number": "item"})
@router.get("/operators/{run_id}/items/{number}", response={200: MapItemRead, **ERRORS}, summary="Read an item")
def read_item(request: Asker, run_id: str, number: Annotated[int, Field(ge=1, le=2**53)]) -> Any:
    """One item and every try at it, word for word."""
    return queries.load_item(queries.load_run(run_id, owner_id=owner_id(request)).id, number)


@router.get(
    "/operators/{run_id}/output.jsonl",
    response=ERRORS,
    summary="Download a run's results as JSON Lines",
    openapi_extra=JSON_LINES,
)
def read_output(request: HttpRequest, run_id: str) -> Any:
    """A line for each item in the order of the input, also while it runs: ``item``, ``input``, and ``output`` or ``error``."""
    run = readable_run(run_id, owner_id=owner_id(request))
    return _download(_streamed(output_lines(run)), f"{run.id}.jsonl", "application/jsonl")


@router.get(
    "/operators/{run_id}/results.jsonl",
    response=ERRORS,
    summary="Follow a run's results as JSON Lines",
    openapi_extra=JSON_LINES,
)
def follow_results(request: HttpRequest, run_id: str, after: Place = 0) -> Any:
    """A line whenever an item ends, as in output.jsonl with its event's ``seq``, until the run is over.

    To go on after a lost connection ask for what comes after the ``seq`` before the last one: its lines come whole again.
    """
    run = readable_run(run_id, owner_id=owner_id(request))
    check = make_check(viewer_of(request), run.session_id)
    return _download(results_as_they_end(run.id, after=after, check=check), f"{run.id}.jsonl", "application/jsonl")


@router.get(
    "/operators/{run_id}/output.csv", response=ERRORS, summary="Download a run's results as CSV", openapi_extra=CSV
)
def read_table(request: HttpRequest, run_id: str) -> Any:
    """A row for each item in the order of the input; a quote before what a spreadsheet would take for a formula."""
    run = readable_run(run_id, owner_id=owner_id(request))
    return _download(_streamed(table_rows(run)), f"{run.id}.csv", "text/csv; charset=utf-8")


def _download(pieces: AsyncIterator[bytes], name: str, content_type: str) -> StreamingHttpResponse:
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-store",
        "X-Accel-Buffering": "no",
    }
    return StreamingHttpResponse(pieces, content_type=content_type, headers=headers)


async def _streamed(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await work(next, pieces, b"")) != b"":
        yield piece
