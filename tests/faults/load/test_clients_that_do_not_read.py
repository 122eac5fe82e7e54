"""A client that does not read costs next to nothing, and not for long."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tests.faults.conftest import SLOW_SECONDS
from tests.journeys.conftest import Caller
from tests.support.sites.site import Site, wait_until
from tests.support.sites.webs import web_server

pytestmark = pytest.mark.slow

ECHO_BYTES = 400_000
DEAF, SENT = 10, 40


def small_connection(site: Site) -> socket.socket:
    """A connection for which the kernel keeps little."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    raw.connect(("127.0.0.1", site.port))
    return raw


@asynccontextmanager
async def deaf_socket(caller: Caller, session_id: str) -> AsyncIterator[ClientConnection]:
    """A socket whose client takes no more than a few frames from the kernel, which takes few from the server."""
    raw = small_connection(caller.site)
    raw.setblocking(False)
    async with caller.socket(session_id, sock=raw, max_queue=1, max_size=None, ping_interval=None) as deaf:
        yield deaf


async def test_a_socket_that_is_not_read_is_closed_as_too_slow(caller: Caller) -> None:
    session = caller.new_session()
    async with deaf_socket(caller, session) as deaf:
        for _ in range(6):
            await deaf.send(json.dumps({"type": "ping", "id": "x" * ECHO_BYTES}))
        await asyncio.sleep(SLOW_SECONDS + 0.5)
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(read_on(deaf), 60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4408


async def read_on(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


async def test_many_that_send_and_do_not_read_cost_little(site: Site, caller: Caller) -> None:
    session = caller.new_session()
    before = web_server(site).memory_info().rss
    async with AsyncExitStack() as stack:
        deaf = [await stack.enter_async_context(deaf_socket(caller, session)) for _ in range(DEAF)]
        sending = asyncio.gather(*(send_on(one) for one in deaf))
        await asyncio.sleep(1)
        grown = web_server(site).memory_info().rss - before
        await asyncio.to_thread(caller.say, caller.new_session(), "Meanwhile others are answered.")
        for one in deaf:
            one.transport.abort()
        await sending
    print(f"{DEAF} sockets, {SENT * ECHO_BYTES >> 20} MiB wanted by each: grown by {grown >> 20} MiB")
    assert grown < DEAF * SENT * ECHO_BYTES / 3


async def send_on(deaf: ClientConnection) -> None:
    """Ask for much, until the server has had enough."""
    with suppress(ConnectionClosed):
        for _ in range(SENT):
            await deaf.send(json.dumps({"type": "ping", "id": "x" * ECHO_BYTES}))


def test_an_event_stream_that_is_not_read_is_cut_off(site: Site, caller: Caller) -> None:
    session = caller.new_session()
    parts = [{"type": "text", "text": "."}] * 1_000
    for _ in range(4):
        caller.call("POST", f"/api/sessions/{session}/record", {"user": parts, "assistant": parts})
    with small_connection(site) as raw:
        request = f"GET /api/sessions/{session}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        raw.sendall(f"{request}Authorization: Bearer {caller.key}\r\n\r\n".encode())
        wait_until(lambda: is_held(site, raw.getsockname()[1]))
        wait_until(lambda: not is_held(site, raw.getsockname()[1]))


def is_held(site: Site, port: int) -> bool:
    """Whether the server has a connection to this port of ours."""
    return any(found.raddr and found.raddr.port == port for found in web_server(site).net_connections("tcp"))
