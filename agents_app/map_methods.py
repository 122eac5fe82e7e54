"""Operators at the doors that call by name."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from ninja import Field, Schema

from agents_app.methods import Table, method
from agents_app.operators import runs
from agents_app.operators.shapes import (
    AgenticMapIn,
    MapIn,
    MapItemList,
    MapItemRead,
    MapRunList,
    MapRunRead,
    item_page,
    item_read,
    run_page,
    run_read,
)
from agents_app.queries import load_run
from mnesis_core.operators.values import ItemState, OperatorKind
from sessions_app.asking import Caller
from sessions_app.database import db
from sessions_app.schemas import Limit, PageAfter


class ListMaps(Schema):
    """Of which session; without one, all of the caller's."""

    session_id: str | None = None
    limit: Limit = 50
    cursor: str | None = None


class OfMap(Schema):
    """Which run."""

    run_id: str


class WaitForMap(OfMap):
    """And how long to wait for its end."""

    seconds: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 120


class ListItems(OfMap, PageAfter):
    """Which of its items: all, or those in these states."""

    states: Annotated[list[ItemState], Field(max_length=5)] = []


class OfItem(OfMap):
    """Which item of a run."""

    item: Annotated[int, Field(ge=1, le=2**53)]


MAP_METHODS: Table = {}
_method = partial(method, MAP_METHODS)


@_method("maps/llm", result=MapRunRead, writes=True)
def start_llm_map(caller: Caller, asked: MapIn) -> dict[str, Any]:
    """Ask a model about each line of a file; the answer comes at once, workers do the rest."""
    return run_read(runs.start(asked.request(OperatorKind.LLM), owner_id=caller.owner_id))


@_method("maps/agentic", result=MapRunRead, writes=True)
def start_agentic_map(caller: Caller, asked: AgenticMapIn) -> dict[str, Any]:
    """Have a sub-agent work at each line of a file; the answer comes at once, workers do the rest."""
    return run_read(runs.start(asked.request(OperatorKind.AGENTIC), owner_id=caller.owner_id))


@_method("maps/list", result=MapRunList)
def list_maps(caller: Caller, asked: ListMaps) -> dict[str, Any]:
    """Runs, newest first."""
    return run_page(owner_id=caller.owner_id, **asked.dict())


@_method("maps/read", result=MapRunRead)
def read_map(caller: Caller, asked: OfMap) -> dict[str, Any]:
    """How far a run is, and its first failures."""
    return run_read(load_run(asked.run_id, owner_id=caller.owner_id))


@_method("maps/wait", result=MapRunRead, may_wait=True)
async def wait_map(caller: Caller, asked: WaitForMap) -> dict[str, Any]:
    """The run when it is over or paused, or as it is after so many seconds."""
    run = await runs.wait(asked.run_id, owner_id=caller.owner_id, seconds=asked.seconds)
    return await db(run_read, run)


@_method("maps/items", result=MapItemList)
def list_map_items(caller: Caller, asked: ListItems) -> dict[str, Any]:
    """Items of a run, in the order of the input."""
    return item_page(asked.run_id, owner_id=caller.owner_id, states=asked.states, after=asked.start, limit=asked.limit)


@_method("maps/item", result=MapItemRead)
def read_map_item(caller: Caller, asked: OfItem) -> dict[str, Any]:
    """One item and every try at it."""
    return item_read(asked.run_id, asked.item, owner_id=caller.owner_id)


@_method("maps/pause", result=MapRunRead, writes=True)
def pause_map(caller: Caller, asked: OfMap) -> dict[str, Any]:
    """Begin no more items."""
    return run_read(runs.pause(asked.run_id, owner_id=caller.owner_id))


@_method("maps/resume", result=MapRunRead, writes=True)
def resume_map(caller: Caller, asked: OfMap) -> dict[str, Any]:
    """Go on with a run that is paused or was cancelled."""
    return run_read(runs.resume(asked.run_id, owner_id=caller.owner_id))


@_method("maps/cancel", result=MapRunRead, writes=True)
def cancel_map(caller: Caller, asked: OfMap) -> dict[str, Any]:
    """Stop a run; what is done is kept."""
    return run_read(runs.cancel(asked.run_id, owner_id=caller.owner_id))


@_method("maps/retry", result=MapRunRead, writes=True)
def retry_map(caller: Caller, asked: OfMap) -> dict[str, Any]:
    """Try the items that failed again."""
    return run_read(runs.retry_failed(asked.run_id, owner_id=caller.owner_id))
