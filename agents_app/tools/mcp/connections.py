"""Connections to MCP servers, over a process of ours or over HTTP, and what is asked over them: tools and their output.

What a server may send is bounded here. The module is imported only when a server is asked: the SDK takes more than a
second.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

import mcp_types as types
from django.utils.translation import gettext_noop
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from agents_app.tools.http import CONNECT_SECONDS, MOST_BYTES, open_client, read_secrets
from mnesis_core.errors import MnesisError, ToolFailed, ToolServerUnreachable
from mnesis_core.files.pictures import SentPicture, Shown, picture_of
from mnesis_core.turns.mcp_servers import MOST_LISTED, AttachedServer, ListedTool, ServerAddress

IDLE_SECONDS = 300.0  # a connection without calls for so long is closed, and its program ended
CLOSE_SECONDS = 8.0  # more than the SDK takes to end a program that does not want to
ENDING_SECONDS = 0.5
ENDED = "it ended without an answer"
LONGEST_REASON = 500  # characters of an error: it may be the server's own words
# The SDK says so when a server over HTTP was restarted and knows us no more: it has not run the call.
SESSION_GONE = "Session terminated"
LIST_SECONDS = 30.0
MOST_PAGES = 20  # of a list of tools; a server may always name one more
_HINTS = {"read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint"}
SUPERVISOR = Path(__file__).with_name("stdio_supervisor.py")
Errors = TextIO | int  # where a program's standard error goes: a file, or ``DEVNULL``
Result = TypeVar("Result")


def reach(address: ServerAddress, *, errors: Errors = subprocess.DEVNULL) -> AbstractAsyncContextManager[Any]:
    """Return the SDK's transport to a server, not opened yet.

    :raises ToolServerUnreachable: a variable that it needs is not set, the program is not there, or no command on the
        host entered it and the host's lists do not hold it: they may be shorter now than they were then.
    """
    secrets = read_secrets(address)
    if address.url:
        return _http(address, secrets)
    environment = get_default_environment() | secrets
    if shutil.which(address.argv[0], path=environment.get("PATH")) is None:
        raise ToolServerUnreachable(
            gettext_noop("%(server)s: there is no program %(program)s here"),
            {"server": address.name, "program": address.argv[0]},
        )
    server = StdioServerParameters(
        # Isolated, without site packages: it starts in some milliseconds, and the environment does not steer it.
        command=sys.executable,
        args=["-I", "-S", str(SUPERVISOR), str(MOST_BYTES), *address.argv],
        env=secrets,
        # Not ours: a program that was given a relative path by mistake must not find our files.
        cwd="/",
        encoding_error_handler="replace",
    )
    # The SDK hands it to the process as it is, which takes a number too.
    return stdio_client(server, errlog=cast(TextIO, errors))


@asynccontextmanager
async def _http(address: ServerAddress, secrets: dict[str, str]) -> AsyncGenerator[Any, None]:
    async with (
        open_client(address, secrets) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[Any], *, ended: Callable[[], None]
) -> AsyncGenerator[Any, None]:
    # Without it, only the next call would notice that the server's side has ended.
    async with transport as (answers, questions):
        yield _Watched(answers, ended), questions


class _Watched:
    def __init__(self, inner: Any, ended: Callable[[], None]) -> None:
        self._inner, self._ended = inner, ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def __aenter__(self) -> _Watched:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


class ConnectionGone(ToolServerUnreachable):
    """The server has refused to hear the question, so it may be asked again over another connection."""


class Connection:
    """A connection of one event loop to one server, which begins to connect when it is made."""

    def __init__(self, address: ServerAddress, *, errors: Errors = subprocess.DEVNULL) -> None:
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
        return not self._closing.is_set()

    @property
    def has_ended(self) -> bool:
        return self._task.done()

    async def ask(self, question: Callable[[Client], Awaitable[Result]]) -> Result:
        """Ask the server something; raise as ``Connections.ask`` does, and ``ConnectionGone``."""
        self._calls += 1
        try:
            return await question(await asyncio.shield(self._ready))
        except asyncio.CancelledError:
            # Out of time, or the call was given up: if no other call waits for this server, it may be stuck.
            if self._calls == 1:
                self._closing.set()
            raise
        except MCPError as error:
            if error.code != types.CONNECTION_CLOSED and error.message != SESSION_GONE:
                raise ToolFailed(
                    gettext_noop("%(server)s answers: %(reason)s"),
                    {"server": self._address.name, "reason": error.message[:LONGEST_REASON]},
                ) from None
            self._closing.set()
            if error.message == SESSION_GONE:
                raise ConnectionGone(f"{self._address.name} has forgotten us") from None
            # The task that holds the connection knows more, in a moment.
            await asyncio.wait([self._task], timeout=ENDING_SECONDS)
            raise ToolServerUnreachable(
                gettext_noop("%(server)s: %(reason)s"),
                {"server": self._address.name, "reason": self._problem or ENDED},
            ) from None
        except ValidationError:
            raise ToolFailed(
                gettext_noop("%(server)s answers with what the protocol does not know"),
                {"server": self._address.name},
            ) from None
        finally:
            self._calls -= 1
            self._used_at = self.loop.time()

    async def close(self) -> None:
        self._closing.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    async def _hold(self) -> None:
        try:
            transport = reach(self._address, errors=self._errors)
            client = Client(watched(transport, ended=self._closing.set), cache=None)
            async with asyncio.timeout(CONNECT_SECONDS) as limit, client:
                limit.reschedule(None)
                self._ready.set_result(client)
                await self._wait_until_unused()
        except asyncio.CancelledError:
            self._fail(
                ToolServerUnreachable(
                    gettext_noop("%(server)s: the connection was closed"), {"server": self._address.name}
                )
            )
            raise
        except MnesisError as error:
            self._fail(error)
        except Exception as error:
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):  # the SDK's groups say only how many errors they hold
                cause = cause.exceptions[0]
            self._problem = f"{type(cause).__name__}: {cause}"[:LONGEST_REASON]
            if isinstance(cause, TimeoutError):
                self._problem = f"it did not answer within {CONNECT_SECONDS:g} seconds"
            elif isinstance(cause, MCPError) and cause.code == types.CONNECTION_CLOSED:
                self._problem = ENDED
            self._fail(
                ToolServerUnreachable(
                    gettext_noop("%(server)s: %(reason)s"),
                    {"server": self._address.name, "reason": self._problem},
                )
            )
        finally:
            self._closing.set()

    async def _wait_until_unused(self) -> None:
        while self._calls or self.loop.time() - self._used_at < IDLE_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._closing.wait()
                    return

    def _fail(self, error: MnesisError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            # Read once, or asyncio logs an error that was never retrieved: perhaps no call waits any more.
            self._ready.exception()


class Connections:
    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}
        # Those in use, and those that still end their program: a loop that ends first would leave its pipes open.
        self._running: list[Connection] = []

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
        """End all connections of this event loop, and their programs."""
        loop = asyncio.get_running_loop()
        ours = [connection for connection in self._running if connection.loop is loop]
        self._open = {id: connection for id, connection in self._open.items() if connection.loop is not loop}
        self._running = [connection for connection in self._running if connection.loop is not loop]
        await asyncio.gather(*(connection.close() for connection in ours))

    def _connection(self, server: AttachedServer) -> Connection:
        found = self._open.get(server.id)
        if found is None or not found.is_open or found.loop is not asyncio.get_running_loop():
            self._open = {id: connection for id, connection in self._open.items() if connection.is_open}
            found = self._open[server.id] = Connection(server.address)
            self._running = [connection for connection in self._running if not connection.has_ended] + [found]
        return found


connections = Connections()


async def list_tools(address: ServerAddress, *, errors: Errors = subprocess.DEVNULL) -> list[ListedTool]:
    """Connect to a server anew, ask for its tools and end the connection; raise as ``ask_for_tools`` does."""
    connection = Connection(address, errors=errors)
    try:
        async with asyncio.timeout(LIST_SECONDS):
            return await connection.ask(_list_all_pages)
    except TimeoutError:
        raise ToolServerUnreachable(
            gettext_noop("%(server)s did not list its tools within %(seconds)s seconds"),
            {"server": address.name, "seconds": f"{LIST_SECONDS:g}"},
        ) from None
    finally:
        await connection.close()


async def _list_all_pages(client: Client) -> list[ListedTool]:
    found: list[ListedTool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        # Not client.list_tools, which keeps every schema to check answers by (see call_tool).
        request = types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor))
        page = await client.session.send_request(request, types.ListToolsResult)
        for tool in page.tools:
            said = tool.annotations
            hints = said.model_dump(by_alias=True, include=_HINTS, exclude_none=True) if said else {}
            listed = ListedTool(
                name=tool.name, description=tool.description or "", schema=tool.input_schema, hints=hints
            )
            found.append(listed)
        cursor = page.next_cursor
        if not cursor or len(found) > MOST_LISTED:
            break
    return found[:MOST_LISTED]


async def call_tool(server: AttachedServer, name: str, arguments: dict[str, Any]) -> str | Shown:
    """Call a tool by the server's own name for it, and return its output: a text, and pictures if it has any.

    :raises ToolFailed: the tool or the server says that it failed, or answers with what is no answer.
    :raises ToolServerUnreachable: the server cannot be connected to, or the connection ended.
    """
    # Not client.call_tool: it checks the answer by the server's own schema, whose patterns can take for ever.
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
    result = await connections.ask(server, lambda client: client.session.send_request(request, types.CallToolResult))
    # What failed shows no pictures: providers take none with an error.
    found = {} if result.is_error else _pictures_of(result.content)
    texts = [text for block in result.content if (text := _text_of(block, found.get(id(block)))) is not None]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    if result.is_error:
        raise ToolFailed("\n".join(texts) or "The tool failed and does not say why.")
    said = "\n".join(texts)
    return Shown(text=said, pictures=tuple(found.values())) if found else said


def _pictures_of(content: Sequence[Any]) -> dict[int, SentPicture]:
    """Return the pictures of an answer by the identity of their blocks."""
    found = {}
    for block in content:
        match block:
            case types.ImageContent(data=data) | types.AudioContent(data=data):
                pass
            case types.EmbeddedResource(resource=types.BlobResourceContents(blob=data)):
                pass
            case _:
                continue
        with suppress(ValueError):
            if picture := picture_of(base64.b64decode(data, validate=True)):
                found[id(block)] = picture
    return found


def _text_of(block: Any, picture: SentPicture | None) -> str | None:
    if picture is not None:
        return f"[{picture.name}]"
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.mime_type}, {len(block.data) * 3 // 4:,} bytes: not shown]"
        case types.ResourceLink():
            return f"[resource {block.uri}: {block.name}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return f"[resource {resource.uri}, {len(resource.blob) * 3 // 4:,} bytes: not shown]"
        case _:
            return None
