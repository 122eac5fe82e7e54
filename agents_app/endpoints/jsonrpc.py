"""JSON-RPC 2.0 (https://www.jsonrpc.org/specification): calls of the REST endpoint by name, and a few of its own.

A result is what the REST endpoint answers. An error has the registry's number and message, and its code and details in
``data``; where the specification has a number of its own (not JSON, no request, no such method), that one is used.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from ninja import Field, Schema

from agents_app.endpoints import rest
from agents_app.maps import api as maps_api
from agents_app.maps import service
from agents_app.maps.schemas import MapRunRead
from agents_app.schemas import ForkIn, SessionIn, TurnStartIn
from agents_app.turns import lifecycle
from agents_app.turns.overview import SessionRead, session_begun
from compaction_app import api as compaction_api
from compaction_app import search as search_api
from files_app import api as files_api
from mnesis_core.errors import InvalidRequest, MnesisError, NotFound
from mnesis_core.text import read_json
from sessions_app import api as sessions_api
from sessions_app.callers import Caller
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db
from sessions_app.operations import OPERATIONS, Operations, operation, perform
from sessions_app.schemas import JSONEncoder, TurnOut

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601  # section 5.1 of the specification
# A batch holds one connection, and its answers memory, until the last is done.
BATCH_LIMIT = 100

Id = str | int | float | None


class Nothing(Schema):
    """No parameters."""


class OfSession(Schema):
    session_id: str


class Fork(OfSession, ForkIn):
    """The session to fork and the message to fork it at."""


class StartTurn(OfSession, TurnStartIn):
    """A user's message for a session, and whether to wait for the end of the turn."""

    wait: bool = False


class OfTurn(OfSession):
    turn_id: str


class WaitForMap(Schema):
    """A map run, and the seconds to wait for its end."""

    run_id: str
    seconds: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 120


# The modules whose calls are published by name: importing them fills ``OPERATIONS``.
PUBLISHING = (rest, maps_api, compaction_api, search_api, files_api, sessions_api)
METHODS: Operations = OPERATIONS


@operation("initialize", result=dict[str, Any])
def initialize(caller: Caller, asked: Nothing) -> dict[str, Any]:
    """Every method there is, with the JSON Schema of its parameters."""
    described = {name: known.params.model_json_schema() for name, known in METHODS.items()}
    return {"server": {"name": "mnesis", "version": "1"}, "user": caller.user.get_username(), "methods": described}


@operation("session/create", result=SessionRead, writes=True)
async def create_session(caller: Caller, asked: SessionIn) -> Any:
    """Create a session and, with ``message``, start its first turn."""
    values = asked.dict(exclude={"message"})
    if asked.message is None:
        return await db(lifecycle.create_session, owner=caller.user, **values)
    session, started = await lifecycle.begin_session(owner=caller.user, message=asked.message, **values)
    return await db(session_begun, session.id, started.turn.id)


@operation("session/fork", result=SessionRead, writes=True)
def fork_session(caller: Caller, asked: Fork) -> Any:
    """A new session with everything up to and including one message, or before one."""
    return lifecycle.fork_session(owner=caller.user, **asked.dict())


@operation("turn/start", result=TurnOut, writes=True, may_wait=True)
async def start_turn(caller: Caller, asked: StartTurn) -> Any:
    """Write the message and start the turn; the answer comes at once, or when it has ended or waits for somebody."""
    started = await lifecycle.start_turn(asked.session_id, owner_id=caller.owner_id, **asked.arguments())
    if not asked.wait:
        return started.turn
    return await lifecycle.wait_turn(asked.session_id, started.turn.id, owner_id=caller.owner_id)


@operation("turn/wait", result=TurnOut, may_wait=True)
async def wait_turn(caller: Caller, asked: OfTurn) -> Any:
    """The turn when it has ended or waits for somebody, wherever it runs."""
    return await lifecycle.wait_turn(asked.session_id, asked.turn_id, owner_id=caller.owner_id)


@operation("maps/wait", result=MapRunRead, may_wait=True)
async def wait_map(caller: Caller, asked: WaitForMap) -> Any:
    """The run when it is over or paused, or as it is after so many seconds."""
    return await service.wait(asked.run_id, owner_id=caller.owner_id, seconds=asked.seconds)


@operation("events/subscribe", result=dict[str, Any])
def subscribe(caller: Caller, asked: OfSession) -> dict[str, Any]:
    """Only for a standing connection, which has a method of its own under this name.

    :raises InvalidRequest: always.
    """
    raise InvalidRequest(
        "One request over HTTP has no connection to send events on. Follow GET /api/sessions/{id}/events instead."
    )


async def respond(text: str | bytes, caller: Caller) -> str | None:
    """Answer one text of a client: with a response, a list of them, or ``None`` to notifications."""
    try:
        asked = read_json(text)
    except InvalidRequest as error:
        return write(failure(None, error, PARSE_ERROR))
    return await answer(asked, caller)


async def answer(asked: Any, caller: Caller, methods: Operations = METHODS) -> str | None:
    """Answer one request or a batch of them, already read from JSON."""
    if not isinstance(asked, list):
        response = await answer_one(asked, caller, methods)
        return None if response is None else write(response)
    if not 0 < len(asked) <= BATCH_LIMIT:
        return write(failure(None, InvalidRequest(f"A batch has 1 to {BATCH_LIMIT} requests."), INVALID_REQUEST))
    responses = [await answer_one(one, caller, methods) for one in asked]
    kept = [response for response in responses if response is not None]
    return write(kept) if kept else None


async def answer_one(asked: Any, caller: Caller, methods: Operations) -> dict[str, Any] | None:
    """Return the response to one request; ``None`` to a notification, even when it fails."""
    if not is_request(asked):
        return failure(None, InvalidRequest("This is no JSON-RPC 2.0 request."), INVALID_REQUEST)
    identity, name = asked.get("id"), asked["method"]
    wanted = methods.get(name)
    try:
        if wanted is None:
            unknown = NotFound("There is no such method. Ask 'initialize' which there are.")
            response = failure(identity, unknown, METHOD_NOT_FOUND)
        else:
            result = await perform(wanted, asked.get("params", {}), caller)
            response = {"jsonrpc": "2.0", "id": identity, "result": result}
    except Exception as exception:
        response = failure(identity, to_error(exception, asked=f"JSON-RPC {name}"))
    return response if "id" in asked else None


def may_wait(asked: Any) -> bool:
    """Return whether the answer may take minutes."""
    if isinstance(asked, list):
        return any(map(may_wait, asked))
    wanted = METHODS.get(asked["method"]) if is_request(asked) else None
    return wanted is not None and wanted.may_wait


def is_request(asked: Any) -> bool:
    """Return whether a value is a request object (section 4 of the specification)."""
    if not isinstance(asked, dict) or asked.get("jsonrpc") != "2.0" or not isinstance(asked.get("method"), str):
        return False
    identity = asked.get("id")
    return isinstance(identity, Id) and not isinstance(identity, bool)


def failure(identity: Id, error: MnesisError, number: int = 0) -> dict[str, Any]:
    """Return an error as a response; ``number`` where the specification has a closer one than the registry."""
    body = {
        "code": number or error.rpc_code,
        "message": error.message,
        "data": {"code": error.code, "details": error.details},
    }
    return {"jsonrpc": "2.0", "id": identity, "error": body}


def write(value: Any) -> str:
    """Return a response on one line; lone surrogates stay escaped."""
    return json.dumps(value, cls=JSONEncoder)
