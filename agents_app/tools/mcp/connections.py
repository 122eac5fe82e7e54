"""Open connections of this process to servers of the Model Context Protocol: made at the first call, closed when idle.

Each belongs to one task, which opens and closes it (the SDK's cancel scopes may not change hands); calls come from any task of
its loop. Imported only when a server is asked: the SDK takes more than a second.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from pydantic import ValidationError

from agents_app.tools.mcp.transport import CONNECT_SECONDS, Errors, reach, watched
from mnesis_core.errors import MnesisError, ToolFailed, ToolServerUnreachable
from mnesis_core.turns.mcp_servers import AttachedServer, ServerAddress

IDLE_SECONDS = 300.0
"""A connection that nobody used so long is closed, and its program ended."""
CLOSE_SECONDS = 8.0
"""More than the SDK takes to end a program that does not want to."""
ENDING_SECONDS = 0.5
ENDED = "it ended without an answer"
LONGEST_REASON = 500
"""Characters of what went wrong: it may be the server's own words."""
SESSION_GONE = "Session terminated"
"""What the SDK says when a server over HTTP was restarted and knows us no more: it has not run the call."""
Result = TypeVar("Result")
logger = logging.getLogger(__name__)


class ConnectionGone(ToolServerUnreachable):
    """The server has refused to hear the question, so it may be asked again over another connection."""


class Connection:
    """One server, connected to from one event loop."""

    def __init__(self, address: ServerAddress, *, errors: Errors = subprocess.DEVNULL) -> None:
        """Begin to connect. ``errors`` gets what a program says on standard error."""
        self.loop = asyncio.get_running_loop()
        self._address, self._errors = address, errors
        self._ready: asyncio.Future[Client] = self.loop.create_future()
        self._closing = asyncio.Event()
        self._calls, self._used_at = 0, self.loop.time()
        self._problem = ""
        # An empty context: the connection outlives the turn that opens it.
        self._task = self.loop.create_task(self._hold(), name=f"mcp {address.name}", context=contextvars.Context())

    @property
    def is_open(self) -> bool:
        """Whether a call may be made, as far as is known."""
        return not self._closing.is_set()

    async def ask(self, question: Callable[[Client], Awaitable[Result]]) -> Result:
        """Ask the server something.

        :raises ToolServerUnreachable: it cannot be connected to, or the connection ended.
        :raises ToolFailed: it answers with an error, or with what is no answer.
        """
        self._calls += 1
        try:
            return await question(await asyncio.shield(self._ready))
        except asyncio.CancelledError:
            # Out of time, or nobody wants to know: if no other call waits for this server, it may be stuck.
            if self._calls == 1:
                self._closing.set()
            raise
        except MCPError as error:
            raise await self._translated(error) from None
        except ValidationError:
            raise ToolFailed(f"{self._address.name} answers with what the protocol does not know") from None
        finally:
            self._calls -= 1
            self._used_at = self.loop.time()

    async def close(self) -> None:
        """End the connection, and wait until it has ended."""
        self._closing.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    async def _translated(self, error: MCPError) -> MnesisError:
        if error.message == SESSION_GONE:
            self._closing.set()
            return ConnectionGone(f"{self._address.name} has forgotten us")
        if error.code != CONNECTION_CLOSED:
            return ToolFailed(f"{self._address.name} answers: {error.message[:LONGEST_REASON]}")
        self._closing.set()
        # The task that holds the connection knows more, in a moment.
        await asyncio.wait([self._task], timeout=ENDING_SECONDS)
        return ToolServerUnreachable(f"{self._address.name}: {self._problem or ENDED}")

    async def _hold(self) -> None:
        try:
            async with self._connected() as client:
                self._ready.set_result(client)
                await self._until_unused()
        except asyncio.CancelledError:
            self._fail(ToolServerUnreachable(f"{self._address.name}: the connection was closed"))
            raise
        except MnesisError as error:
            self._fail(error)
        except Exception as error:
            self._problem = _reason(error)
            self._fail(ToolServerUnreachable(f"{self._address.name}: {self._problem}"))
        finally:
            self._closing.set()

    def _fail(self, error: MnesisError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            # Perhaps nobody waits any more.
            self._ready.exception()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        transport = reach(self._address, errors=self._errors)
        client = Client(watched(transport, ended=self._closing.set), cache=None)
        async with asyncio.timeout(CONNECT_SECONDS) as limit, client:
            limit.reschedule(None)
            yield client

    async def _until_unused(self) -> None:
        while self._calls or self.loop.time() - self._used_at < IDLE_SECONDS:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._closing.wait()
            except TimeoutError:
                continue
            return


class Connections:
    """One connection a server, of this process."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}

    async def ask(self, server: AttachedServer, question: Callable[[Client], Awaitable[Result]]) -> Result:
        """Ask a server something, over the connection that is open or a new one.

        :raises ToolServerUnreachable: it cannot be connected to, or the connection ended.
        :raises ToolFailed: it answers with an error, or with what is no answer.
        """
        try:
            return await self._connection(server).ask(question)
        except ConnectionGone:
            return await self._connection(server).ask(question)

    async def close(self) -> None:
        """End all connections of this loop, and their programs."""
        loop = asyncio.get_running_loop()
        ours = {id: connection for id, connection in self._open.items() if connection.loop is loop}
        self._open = {id: connection for id, connection in self._open.items() if id not in ours}
        await asyncio.gather(*(connection.close() for connection in ours.values()))

    def _connection(self, server: AttachedServer) -> Connection:
        found = self._open.get(server.id)
        if found is None or not found.is_open or found.loop is not asyncio.get_running_loop():
            self._open = {id: connection for id, connection in self._open.items() if connection.is_open}
            found = self._open[server.id] = Connection(server.address)
        return found


connections = Connections()


def _reason(error: BaseException) -> str:
    """What went wrong, in a line: of a group the first error, without our own inner workings."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it did not answer within {CONNECT_SECONDS:g} seconds"
    if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
        return ENDED
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]
