"""JSON-RPC 2.0 (https://www.jsonrpc.org/specification): calls of the REST endpoint by name, and a few of its own.

A result is what the REST endpoint answers. An error has the registry's number and message, and its code and details in
``data``; where the specification has a number of its own (not JSON, no request, no such method), that one is used.
A standing connection, such as standard input and output, also sends the events of the sessions that it subscribes to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import IO, Annotated, Any

from ninja import Field, Schema
from pydantic import TypeAdapter

from agents_app.endpoints import rest
from agents_app.maps import api as maps_api
from agents_app.maps import service
from agents_app.maps.api import MapRunRead
from agents_app.schemas import ForkIn, SessionIn, TurnStartIn
from agents_app.turns import lifecycle
from agents_app.turns.overview import SessionRead, session_begun
from agents_app.turns.runner import runner
from compaction_app import api as compaction_api
from compaction_app import search as search_api
from files_app import api as files_api
from mnesis_core.errors import InvalidRequest, MnesisError, NotFound, RequestTooLarge
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.text import read_json
from sessions_app import api as sessions_api
from sessions_app.callers import Caller
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db
from sessions_app.live import Viewer, check_caller, follow, make_check
from sessions_app.operations import OPERATIONS, Operation, Operations, operation, perform
from sessions_app.record.actor import error_body
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import JSONEncoder, Place, TurnOut

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601  # section 5.1 of the specification
# A batch holds one connection, and its answers memory, until the last is done.
BATCH_LIMIT = 100
LINE_LIMIT = 26_000_000  # bytes of one line of a standing connection, as of one body over HTTP
# The modules whose calls are published by name: importing them fills ``OPERATIONS``.
PUBLISHING = (rest, maps_api, compaction_api, search_api, files_api, sessions_api)
METHODS: Operations = OPERATIONS
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


class Subscribe(OfSession):
    """A session, and the event to follow it from."""

    after: Place = 0


class Subscribed(Schema):
    """The session that is followed, or is no longer."""

    session_id: str
    subscribed: bool


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
    """Write the message and start the turn. Returns at once or, with ``wait``, when the turn has ended or is suspended."""
    started = await lifecycle.start_turn(asked.session_id, owner_id=caller.owner_id, **asked.arguments())
    if not asked.wait:
        return started.turn
    return await lifecycle.wait_turn(asked.session_id, started.turn.id, owner_id=caller.owner_id)


@operation("turn/wait", result=TurnOut, may_wait=True)
async def wait_turn(caller: Caller, asked: OfTurn) -> Any:
    """Return the turn when it has ended or is suspended, wherever it runs."""
    return await lifecycle.wait_turn(asked.session_id, asked.turn_id, owner_id=caller.owner_id)


@operation("maps/wait", result=MapRunRead, may_wait=True)
async def wait_map(caller: Caller, asked: WaitForMap) -> Any:
    """The run when it is over or paused, or as it is after so many seconds."""
    return await service.wait(asked.run_id, owner_id=caller.owner_id, seconds=asked.seconds)


@operation("events/subscribe", result=dict[str, Any])
def subscribe(caller: Caller, asked: OfSession) -> dict[str, Any]:
    """Refuse: only a standing connection can subscribe, and it has a method of its own under this name.

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
        return failure(None, InvalidRequest("This is not a JSON-RPC 2.0 request."), INVALID_REQUEST)
    identity, name = asked.get("id"), asked["method"]
    wanted = methods.get(name)
    try:
        if wanted is None:
            unknown = NotFound("There is no such method. 'initialize' lists the methods.")
            response = failure(identity, unknown, METHOD_NOT_FOUND)
        else:
            result = await perform(wanted, asked.get("params", {}), caller)
            response = {"jsonrpc": "2.0", "id": identity, "result": result}
    except Exception as exception:
        response = failure(identity, to_error(exception, asked=f"JSON-RPC {name}"))
    return response if "id" in asked else None


def may_wait(asked: Any) -> bool:
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
    data = error_body(error)
    body = {"code": number or error.rpc_code, "message": data.pop("message"), "data": data}
    return {"jsonrpc": "2.0", "id": identity, "error": body}


def write(value: Any) -> str:
    """Return a response on one line; lone surrogates stay escaped."""
    return json.dumps(value, cls=JSONEncoder)


class Connection:
    def __init__(self, caller: Caller, send: Callable[[str], Awaitable[None]]) -> None:
        self.caller = caller
        self.send = send
        self.following: dict[str, asyncio.Task[None]] = {}
        self.waiting: set[asyncio.Task[None]] = set()
        result: TypeAdapter[Any] = TypeAdapter(Subscribed)
        self.methods: Operations = {
            **METHODS,
            "events/subscribe": Operation(params=Subscribe, call=self.subscribe, result=result),
            "events/unsubscribe": Operation(params=OfSession, call=self.unsubscribe, result=result),
        }

    async def serve(self, lines: asyncio.Queue[bytes]) -> None:
        """Answer line after line; an empty one ends the connection when everything before it is answered.

        :raises NotSignedIn: the person's account was closed.
        """
        try:
            while line := await lines.get():
                await self._take(line)
            if self.waiting:
                await asyncio.wait(self.waiting)
        finally:
            for task in (*self.following.values(), *self.waiting):
                task.cancel()

    async def subscribe(self, caller: Caller, asked: Subscribe) -> dict[str, Any]:
        """Send the session's events from a place on, then live; a second time begins anew.

        :raises SessionNotFoundError: there is no such session, or it belongs to another person.
        """
        await db(load_session, asked.session_id, owner_id=caller.owner_id)
        await self.unsubscribe(caller, asked)
        self.following[asked.session_id] = asyncio.create_task(self._follow(asked.session_id, asked.after))
        return {"session_id": asked.session_id, "subscribed": True}

    async def unsubscribe(self, caller: Caller, asked: OfSession) -> dict[str, Any]:
        """Send no more events of a session."""
        task = self.following.pop(asked.session_id, None)
        if task is not None:
            task.cancel()
        return {"session_id": asked.session_id, "subscribed": False}

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        await db(check_caller, self.caller)
        try:
            if len(line) > LINE_LIMIT:
                raise RequestTooLarge()
            asked = read_json(line)
        except InvalidRequest as error:
            await self.send(write(failure(None, error, PARSE_ERROR)))
            return
        if not may_wait(asked):
            await self._answer(asked)
            return
        # In a task of its own, so that an interrupt need not wait behind it.
        task = asyncio.create_task(self._answer(asked))
        self.waiting.add(task)
        task.add_done_callback(self.waiting.discard)

    async def _answer(self, asked: Any) -> None:
        response = await answer(asked, self.caller, self.methods)
        if response is not None:
            await self.send(response)

    async def _follow(self, session_id: str, after: int) -> None:
        check = make_check(Viewer(owner_id=self.caller.owner_id), session_id)
        try:
            async with contextlib.aclosing(follow(session_id, after=after, check=check)) as frames:  # type: ignore[type-var]
                async for frame in frames:
                    await self._notify(session_id, frame)
        except Exception as exception:
            error = to_error(exception, asked="a subscription")
            await self._notify(session_id, {"type": "error", "error": error_body(error)})

    async def _notify(self, session_id: str, event: dict[str, Any]) -> None:
        params = {"session_id": session_id, "event": event}
        await self.send(write({"jsonrpc": "2.0", "method": "session/event", "params": params}))


async def serve(caller: Caller, source: IO[bytes], target: IO[str]) -> None:
    """Answer a client until its end of input. Turns that it started and did not wait for end interrupted.

    :raises NotSignedIn: the person's account was closed.
    """
    one_at_a_time = asyncio.Lock()

    async def send(text: str) -> None:
        # In a thread: a client that does not read must not hold up the heartbeat of its turns.
        async with one_at_a_time:
            await asyncio.to_thread(print, text, file=target, flush=True)

    lines: asyncio.Queue[bytes] = asyncio.Queue(maxsize=100)
    loop = asyncio.get_running_loop()
    # A daemon, because nothing can end a read of standard input from outside.
    threading.Thread(target=_read, args=(source, lines, loop), daemon=True).start()
    try:
        await Connection(caller, send).serve(lines)
    finally:
        await runner.shutdown()
        await close_connections()


def _read(source: IO[bytes], lines: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Put every line into the queue, without the rest of one that is too long, and an empty one at the end."""
    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
        while line := source.readline(LINE_LIMIT + 1):
            _hand_over(line, lines, loop)
            while not line.endswith(b"\n") and (line := source.readline(LINE_LIMIT)):
                pass
        _hand_over(b"", lines, loop)


def _hand_over(line: bytes, lines: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the queue has room for a line.

    Only the loop makes the coroutine: one that is made for a loop that has just ended would never be awaited.

    :raises RuntimeError: the loop has ended.
    """
    taken: Future[None] = Future()

    def begin() -> None:
        loop.create_task(lines.put(line)).add_done_callback(lambda _: taken.set_result(None))

    loop.call_soon_threadsafe(begin)
    taken.result()
