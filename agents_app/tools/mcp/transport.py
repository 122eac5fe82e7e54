"""The transport to an MCP server: a process of ours, or HTTP. What the server may send is bounded here.

Imported only when a server is asked: the SDK takes more than a second.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import httpx2
from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client

from mnesis_core.errors import NotListed, ToolServerUnreachable
from mnesis_core.providers.pinned_transport import pin
from mnesis_core.turns.mcp_servers import ServerAddress
from sessions_app.conf import host_lists

MOST_BYTES = 24_000_000  # of one answer: the 20 million characters that are kept of an output, and what is around them
CONNECT_SECONDS = 15.0
SUPERVISOR = Path(__file__).with_name("stdio_supervisor.py")
Errors = TextIO | int  # where a program's standard error goes: a file, or ``DEVNULL``


def reach(address: ServerAddress, *, errors: Errors = subprocess.DEVNULL) -> AbstractAsyncContextManager[Any]:
    """Return the SDK's transport to a server, not opened yet.

    :raises ToolServerUnreachable: a variable that it needs is not set, the program is not there, or no command on the
        host entered it and the host's lists do not hold it: they may be shorter now than they were then.
    """
    try:
        if not address.entered_on_host:
            host_lists().check_server(address.argv, address.url, address.secrets)
    except NotListed as error:
        raise ToolServerUnreachable(f"{address.name}: {error.message}") from None
    secrets = {name: os.environ.get(variable, "") for name, variable in address.secrets.items()}
    for name, value in secrets.items():
        if not value:
            variable = address.secrets[name]
            raise ToolServerUnreachable(
                f"{address.name} needs the environment variable {variable}, which is not set here"
            )
    return _http(address, secrets) if address.url else _stdio(address, secrets, errors)


def _stdio(address: ServerAddress, secrets: dict[str, str], errors: Errors) -> AbstractAsyncContextManager[Any]:
    environment = get_default_environment() | secrets
    if shutil.which(address.argv[0], path=environment.get("PATH")) is None:
        raise ToolServerUnreachable(f"{address.name}: there is no program {address.argv[0]} here")
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
    headers = {
        # A token by itself is a bearer's.
        name: f"Bearer {value}" if name.lower() == "authorization" and " " not in value else value
        for name, value in secrets.items()
    }
    client = httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=address.timeout_seconds),
        transport=_Bounded(httpx2.AsyncHTTPTransport()),
        # A redirect would have to be checked by itself.
        follow_redirects=False,
        event_hooks={} if address.entered_on_host else {"request": [_pin_address]},
    )
    async with (
        client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams


async def _pin_address(request: httpx2.Request) -> None:
    try:
        await asyncio.to_thread(pin, request, host_lists().addresses)
    except NotListed as error:
        raise httpx2.ConnectError(error.message, request=request) from error
    except OSError as error:
        raise httpx2.ConnectError(str(error), request=request) from error


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

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def receive(self) -> Any:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Watched:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


class _Bounded(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        response.stream = _BoundedStream(cast(httpx2.AsyncByteStream, response.stream))
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"the answer is longer than {MOST_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
