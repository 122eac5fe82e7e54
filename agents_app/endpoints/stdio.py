"""JSON-RPC on standard input and output: a request, or a batch, on each line; what a session does comes as notifications."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import IO, Any

from ninja import Schema
from pydantic import TypeAdapter

from agents_app.endpoints.jsonrpc import METHODS, PARSE_ERROR, OfSession, answer, failure, may_wait, write
from agents_app.turns.runner import runner
from mnesis_core.errors import InvalidRequest, RequestTooLarge
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.text import read_json
from sessions_app.callers import Caller
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db
from sessions_app.live.access import Viewer, check_caller, make_check
from sessions_app.live.feed import follow
from sessions_app.operations import Operation, Operations
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import Place

LINE_LIMIT = 26_000_000  # bytes of one line, as of one body over HTTP


class Subscribe(OfSession):
    """A session, and the event to follow it from."""

    after: Place = 0


class Subscribed(Schema):
    """What is followed, or no longer."""

    session_id: str
    subscribed: bool


class Connection:
    """One client: its requests are answered in order, and its subscriptions beside them."""

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
            await self._notify(session_id, {"type": "error", "error": error.as_dict()})

    async def _notify(self, session_id: str, event: dict[str, Any]) -> None:
        params = {"session_id": session_id, "event": event}
        await self.send(write({"jsonrpc": "2.0", "method": "session/event", "params": params}))


async def serve(caller: Caller, source: IO[bytes], target: IO[str]) -> None:
    """Answer a client until its end of input. Turns that it started and did not wait for end interrupted.

    :raises NotSignedIn: the person's account was closed.
    """
    one_at_a_time = asyncio.Lock()

    def write_line(text: str) -> None:
        target.write(f"{text}\n")
        target.flush()

    async def send(text: str) -> None:
        # In a thread: a client that does not read must not hold up the heartbeat of its turns.
        async with one_at_a_time:
            await asyncio.to_thread(write_line, text)

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
