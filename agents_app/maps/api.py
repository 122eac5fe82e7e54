"""Operators at the REST endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Status

from agents_app.map_queries import load_run
from agents_app.maps import service
from agents_app.maps.output import output_lines, readable_run, results_as_they_end, table_rows
from agents_app.maps.schemas import (
    AgenticMapIn,
    MapIn,
    MapItemList,
    MapItemRead,
    MapRunList,
    MapRunRead,
    find_item,
    item_page,
    run_page,
)
from mnesis_core.maps.values import ItemState, OperatorKind
from sessions_app.callers import Asker, owner_id
from sessions_app.database.threads import work
from sessions_app.live.access import make_check, viewer_of
from sessions_app.operations import by_name
from sessions_app.schemas import ErrorOut, Limit, Place

router = Router(tags=["operators"])

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
CHANGING = ERRORS | {409: ErrorOut}
STARTING = CHANGING | {413: ErrorOut}
JSON_LINES = {"content": {"application/jsonl": {"schema": {"type": "string"}}}, "description": "A line for each item"}
CSV = {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "A row for each item"}


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
    return load_run(run_id, owner_id=owner_id(request))


@by_name("maps/pause")
@router.post("/operators/{run_id}/pause", response={200: MapRunRead, **CHANGING}, summary="Pause a run")
def pause(request: Asker, run_id: str) -> Any:
    """No more items are begun; those in flight come to their end."""
    return service.pause(run_id, owner_id=owner_id(request))


@by_name("maps/resume")
@router.post("/operators/{run_id}/resume", response={200: MapRunRead, **CHANGING}, summary="Resume a run")
def resume(request: Asker, run_id: str) -> Any:
    """Go on with a run that is paused or was cancelled."""
    return service.resume(run_id, owner_id=owner_id(request))


@by_name("maps/cancel")
@router.post("/operators/{run_id}/cancel", response={200: MapRunRead, **CHANGING}, summary="Cancel a run")
def cancel(request: Asker, run_id: str) -> Any:
    """Cut off what is in flight within seconds, and keep what is done."""
    return service.cancel(run_id, owner_id=owner_id(request))


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
    return item_page(run_id, owner_id=owner_id(request), states=state, after=max(after, cursor), limit=limit)


@by_name("maps/item", renamed={"number": "item"})
@router.get("/operators/{run_id}/items/{number}", response={200: MapItemRead, **ERRORS}, summary="Read an item")
def read_item(request: Asker, run_id: str, number: Annotated[int, Field(ge=1, le=2**53)]) -> Any:
    """One item and every try at it, word for word."""
    return find_item(run_id, number, owner_id=owner_id(request))


@router.get(
    "/operators/{run_id}/output.jsonl",
    response=ERRORS,
    summary="Download a run's results as JSON Lines",
    openapi_extra={"responses": {200: JSON_LINES}},
)
def read_output(request: HttpRequest, run_id: str) -> Any:
    """A line for each item in the order of the input, also while it runs: ``item``, ``input``, and ``output`` or ``error``."""
    run = readable_run(run_id, owner_id=owner_id(request))
    return _download(_streamed(output_lines(run)), f"{run.id}.jsonl", "application/jsonl")


@router.get(
    "/operators/{run_id}/results.jsonl",
    response=ERRORS,
    summary="Follow a run's results as JSON Lines",
    openapi_extra={"responses": {200: JSON_LINES}},
)
def follow_results(request: HttpRequest, run_id: str, after: Place = 0) -> Any:
    """A line whenever an item ends, as in output.jsonl with its event's ``seq``, until the run is over.

    To go on after a lost connection ask for what comes after the ``seq`` before the last one: its lines come whole again.
    """
    run = readable_run(run_id, owner_id=owner_id(request))
    check = make_check(viewer_of(request), run.session_id)
    return _download(results_as_they_end(run.id, after=after, check=check), f"{run.id}.jsonl", "application/jsonl")


@router.get(
    "/operators/{run_id}/output.csv",
    response=ERRORS,
    summary="Download a run's results as CSV",
    openapi_extra={"responses": {200: CSV}},
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
