"""What a door that calls by name offers: each name a schema, one domain call, and what it gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from ninja import Field, Schema
from pydantic import BaseModel, TypeAdapter

from agents_app.map_queries import load_run
from agents_app.maps import service
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
from files_app.api import FileList, FileOut, FileSearchOut, LinesOut, file_page
from files_app.lines import MOST_HITS, MOST_LINES, read_lines, search_file
from files_app.queries import load_file_reference
from mnesis_core.errors import InvalidRequest
from mnesis_core.files.patterns import Mode
from mnesis_core.maps.values import ItemState, OperatorKind
from sessions_app.callers import Caller, check_may_write
from sessions_app.database.threads import db, work
from sessions_app.schemas import Limit, PageAfter


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One thing that may be asked for."""

    params: type[BaseModel]
    call: Callable[[Caller, Any], Any]
    """Coroutines run in the event loop, the rest in a database thread."""
    result: TypeAdapter[Any]
    description: str = ""
    writes: bool = False
    may_wait: bool = False
    """Whether the answer may take minutes; others need not wait for it."""


Table = dict[str, Method]
Methods = Mapping[str, Method]
Call = Callable[[Caller, Any], Any]


def method(
    table: Table, name: str, *, result: Any, writes: bool = False, may_wait: bool = False
) -> Callable[[Call], Call]:
    """Put a function of the caller and what is ``asked`` into a table; its hints say the schema."""

    def register(call: Call) -> Call:
        table[name] = Method(
            params=inspect.get_annotations(call, eval_str=True)["asked"],
            call=call,
            result=TypeAdapter(result),
            description=inspect.getdoc(call) or "",
            writes=writes,
            may_wait=may_wait,
        )
        return call

    return register


async def perform(method: Method, params: Any, caller: Caller) -> Any:
    """Check who asks and what for, make the call, and give its result as plain values.

    :raises PermissionDenied: the caller may only read, and this writes.
    :raises InvalidRequest: the parameters are no object.
    :raises pydantic.ValidationError: they do not fit the schema.
    """
    if not isinstance(params, dict):
        raise InvalidRequest("params must be an object: parameters have names here", field="params")
    check_may_write(caller.may_write or not method.writes)
    asked = method.params.model_validate(params)

    def write(value: Any) -> Any:
        # As ninja does it: what was read already is only written.
        return method.result.dump_python(
            value if isinstance(value, BaseModel) else method.result.validate_python(value)
        )

    if inspect.iscoroutinefunction(method.call):
        # A schema may ask the database for what a record does not have.
        return await db(write, await method.call(caller, asked))
    return await (work if method.may_wait else db)(lambda: write(method.call(caller, asked)))


# Files at the doors that call by name.


class ListFiles(Schema):
    """Of which session; without one, all of the caller's."""

    session_id: str | None = None
    limit: Limit = 50
    cursor: str | None = None


class OfFile(Schema):
    """Which file."""

    file_id: str


class ReadLines(OfFile):
    """Which of its lines: the first is 1."""

    first: Annotated[int, Field(ge=1, le=2**53)] = 1
    limit: Annotated[int, Field(ge=1, le=MOST_LINES)] = 200


class SearchFile(OfFile):
    """What to find in it."""

    q: Annotated[str, Field(min_length=1, max_length=1_000)]
    mode: Mode = "text"
    limit: Annotated[int, Field(ge=1, le=MOST_HITS)] = 50
    cursor: str | None = None


FILE_METHODS: Table = {}
_file_method = partial(method, FILE_METHODS)


@_file_method("files/list", result=FileList)
def list_files(caller: Caller, asked: ListFiles) -> dict[str, Any]:
    """Files, newest first."""
    return file_page(owner_id=caller.owner_id, **asked.dict())


@_file_method("files/read", result=FileOut)
def read_file(caller: Caller, asked: OfFile) -> Any:
    """What is known of a file."""
    return load_file_reference(asked.file_id, owner_id=caller.owner_id)


@_file_method("files/lines", result=LinesOut)
def read_file_lines(caller: Caller, asked: ReadLines) -> Any:
    """Lines of a file by their numbers."""
    return read_lines(asked.file_id, first_line=asked.first, lines=asked.limit, owner_id=caller.owner_id)


@_file_method("files/search", result=FileSearchOut)
def search_in_file(caller: Caller, asked: SearchFile) -> Any:
    """The next lines of a file that match."""
    return search_file(
        asked.file_id,
        pattern=asked.q,
        mode=asked.mode,
        limit=asked.limit,
        cursor=asked.cursor,
        owner_id=caller.owner_id,
    )


# Operators at the doors that call by name.


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
_map_method = partial(method, MAP_METHODS)


@_map_method("maps/llm", result=MapRunRead, writes=True)
def start_llm_map(caller: Caller, asked: MapIn) -> Any:
    """Ask a model about each line of a file; the answer comes at once, workers do the rest."""
    return service.start(asked.request(OperatorKind.LLM), owner_id=caller.owner_id)


@_map_method("maps/agentic", result=MapRunRead, writes=True)
def start_agentic_map(caller: Caller, asked: AgenticMapIn) -> Any:
    """Have a sub-agent work at each line of a file; the answer comes at once, workers do the rest."""
    return service.start(asked.request(OperatorKind.AGENTIC), owner_id=caller.owner_id)


@_map_method("maps/list", result=MapRunList)
def list_maps(caller: Caller, asked: ListMaps) -> dict[str, Any]:
    """Runs, newest first."""
    return run_page(owner_id=caller.owner_id, **asked.dict())


@_map_method("maps/read", result=MapRunRead)
def read_map(caller: Caller, asked: OfMap) -> Any:
    """How far a run is, and its first failures."""
    return load_run(asked.run_id, owner_id=caller.owner_id)


@_map_method("maps/wait", result=MapRunRead, may_wait=True)
async def wait_map(caller: Caller, asked: WaitForMap) -> Any:
    """The run when it is over or paused, or as it is after so many seconds."""
    return await service.wait(asked.run_id, owner_id=caller.owner_id, seconds=asked.seconds)


@_map_method("maps/items", result=MapItemList)
def list_map_items(caller: Caller, asked: ListItems) -> dict[str, Any]:
    """Items of a run, in the order of the input."""
    return item_page(asked.run_id, owner_id=caller.owner_id, states=asked.states, after=asked.start, limit=asked.limit)


@_map_method("maps/item", result=MapItemRead)
def read_map_item(caller: Caller, asked: OfItem) -> Any:
    """One item and every try at it."""
    return find_item(asked.run_id, asked.item, owner_id=caller.owner_id)


@_map_method("maps/pause", result=MapRunRead, writes=True)
def pause_map(caller: Caller, asked: OfMap) -> Any:
    """Begin no more items."""
    return service.pause(asked.run_id, owner_id=caller.owner_id)


@_map_method("maps/resume", result=MapRunRead, writes=True)
def resume_map(caller: Caller, asked: OfMap) -> Any:
    """Go on with a run that is paused or was cancelled."""
    return service.resume(asked.run_id, owner_id=caller.owner_id)


@_map_method("maps/cancel", result=MapRunRead, writes=True)
def cancel_map(caller: Caller, asked: OfMap) -> Any:
    """Stop a run; what is done is kept."""
    return service.cancel(asked.run_id, owner_id=caller.owner_id)


@_map_method("maps/retry", result=MapRunRead, writes=True)
def retry_map(caller: Caller, asked: OfMap) -> Any:
    """Try the items that failed again."""
    return service.retry_failed(asked.run_id, owner_id=caller.owner_id)
