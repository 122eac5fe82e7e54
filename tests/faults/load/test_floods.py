"""Much that is sent, and little that is sent slowly, by a client that is not known: refused while it comes, for nothing."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import httpx
import psutil
import pytest

from tests.faults.conftest import HEADER_SECONDS
from tests.journeys.conftest import Caller
from tests.support.sites.site import ROOT, Site, free_port, stop, wait_until
from tests.support.sites.webs import web_server
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

MEGABYTE = 1 << 20
FLOOD = 600 * MEGABYTE
MOST_SENT = 8 * MEGABYTE
"""What both kernels keep for a connection before a client has to wait for the server, and much more than that."""
HALF_OPEN = 800
ENDPOINTS = {
    "/api/sessions": lambda answer: answer.json()["error"]["code"],
    "/api/files": lambda answer: answer.json()["error"]["code"],
    "/api/sessions/import": lambda answer: answer.json()["error"]["code"],
    "/v1/chat/completions": lambda answer: answer.json()["error"]["code"],
    "/v1/messages": lambda answer: answer.json()["error"]["details"]["error_code"],
    "/rpc": lambda answer: answer.json()["error"]["data"]["code"],
    "/mcp": lambda answer: answer.json()["error"]["data"]["code"],
    "/sign-in/": lambda answer: "REQUEST_TOO_LARGE" if "REQUEST_TOO_LARGE" in answer.text else "",
    "/ws/sessions/x": lambda answer: "REQUEST_TOO_LARGE" if "REQUEST_TOO_LARGE" in answer.text else "",
}
"""Every kind of endpoint, and where its errors have their code."""
INVALID_KEY = f"Authorization: Bearer mns_0123456789ab_{'x' * 43}\r\n"
CHUNK = b"%x\r\n%s\r\n" % (MEGABYTE, b"x" * MEGABYTE)
FRAMINGS = {
    "declared": (f"Content-Length: {FLOOD}\r\n", b"x" * MEGABYTE),
    "chunked": ("Transfer-Encoding: chunked\r\n", CHUNK),
}


def flood(port: int, path: str, headers: str, piece: bytes) -> tuple[int, httpx.Response]:
    """Send a large body until the server has had enough: how many bytes it let us send, and what it answered."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as line:
        line.sendall(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode())
        with suppress(ConnectionError):
            while sent < FLOOD:
                sent += line.send(piece[sent % len(piece) :])
        return sent, answer_of(line)


def answer_of(line: socket.socket) -> httpx.Response:
    """What comes until the server closes the connection."""
    raw = b""
    with suppress(ConnectionError):
        while data := line.recv(65_536):
            raw += data
    head, _, body = raw.partition(b"\r\n\r\n")
    names = [tuple(name.split(": ", 1)) for name in head.decode().split("\r\n")[1:]]
    return httpx.Response(int(raw.split(b" ", 2)[1]) if raw else 0, headers=names, content=body)


def files_of(server: psutil.Process) -> int:
    """How many files it has open beside the database, which any of its threads may connect to at any time."""
    return sum("sqlite3" not in file.path for file in server.open_files())


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_large_body_of_nobody_is_refused_while_it_comes(site: Site, path: str, framing: str) -> None:
    length, piece = FRAMINGS[framing]
    server = web_server(site)
    written, files = server.io_counters().write_bytes, files_of(server)
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n" if path.startswith("/ws/") else ""
    sent, answer = flood(site.port, path, length + INVALID_KEY + upgrade, piece)
    assert sent < MOST_SENT
    assert (answer.status_code, answer.headers["Connection"].lower()) == (413, "close")
    assert ENDPOINTS[path](answer) == "REQUEST_TOO_LARGE"
    assert server.io_counters().write_bytes - written < MEGABYTE
    assert files_of(server) <= files


@pytest.mark.parametrize("framing", FRAMINGS)
def test_who_is_known_may_send_what_the_endpoint_takes_and_no_more(caller: Caller, framing: str) -> None:
    length, piece = FRAMINGS[framing]
    sent, answer = flood(caller.site.port, "/api/sessions", f"{length}Authorization: Bearer {caller.key}\r\n", piece)
    assert sent < 26_000_000 + MOST_SENT
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "REQUEST_TOO_LARGE"
    title = caller.client.post("/api/sessions", json={"title": "x" * 300_000})
    assert (title.status_code, title.json()["error"]["code"]) == (422, "INVALID_REQUEST")


@pytest.fixture
def half_open(site: Site) -> Iterator[list[socket.socket]]:
    """Connections of which each kind keeps the server waiting in a way of its own."""
    begun = [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x",
        b"POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
    ]
    with ExitStack() as stack:
        lines = []
        for number in range(HALF_OPEN):
            line = stack.enter_context(
                closing(socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_SECONDS))
            )
            line.sendall(begun[number % len(begun)])
            lines.append(line)
        yield lines


def test_half_open_requests_are_closed_while_others_are_answered(
    caller: Caller, half_open: list[socket.socket]
) -> None:
    assert caller.call("GET", "/api/sessions")["items"] is not None
    assert len(web_server(caller.site).net_connections("tcp")) < HALF_OPEN / 2
    began = time.monotonic()
    for line in half_open:
        answer_of(line)
    assert time.monotonic() - began < HEADER_SECONDS + 40
    assert caller.call("GET", "/api/sessions")["items"] is not None


def test_bytes_that_drip_buy_no_time(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port)) as line:
        line.sendall(b"GET / HTTP/1.1\r\n")
        assert is_closed_while_it_gets(line, b"X-Header: x\r\n")
    with socket.create_connection(("127.0.0.1", site.port)) as line:
        line.sendall(b"POST /rpc HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n")
        answer = dripped(line)
        assert (answer.status_code, answer.json()["error"]["data"]["code"]) == (408, "REQUEST_TIMEOUT")


def is_closed_while_it_gets(line: socket.socket, piece: bytes) -> bool:
    def is_closed() -> bool:
        try:
            line.sendall(piece)
        except ConnectionError:
            return True
        time.sleep(0.1)
        return False

    wait_until(is_closed)
    return True


def dripped(line: socket.socket) -> httpx.Response:
    """What comes after a byte at a time."""
    line.setblocking(False)
    raw = b""

    def is_answered() -> bool:
        nonlocal raw
        with suppress(BlockingIOError):
            raw = line.recv(65_536)
        if not raw:
            line.send(b"x")
            time.sleep(0.1)
        return bool(raw)

    wait_until(is_answered)
    head, _, body = raw.partition(b"\r\n\r\n")
    return httpx.Response(int(head.split(b" ", 2)[1]), content=body)


def test_a_body_that_is_shorter_than_said_is_answered_and_one_that_is_longer_is_no_request(site: Site) -> None:
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x"}).encode()
    head = "POST /rpc HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_SECONDS) as line:
        line.sendall(head.format(len(message) + 1).encode() + message)
        assert answer_of(line).status_code == 408
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_SECONDS) as line:
        line.sendall(head.format(len(message)).encode() + message + b"xxxx\r\n\r\n")
        assert answer_of(line).content.endswith(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_refusal_before_the_body_came_is_followed_by_the_next_request(site: Site) -> None:
    """The endpoint of MCP answers without reading; what is left of the body is no request."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_SECONDS) as line:
        line.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20\r\n\r\nGET / ")
        time.sleep(0.3)
        line.sendall(b"HTTP/1.1\r\n\r\nxx" + b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = answer_of(line)
    assert answer.status_code == 401
    assert answer.content.count(b"HTTP/1.1 ") == 1
    assert b"HTTP/1.1 200" in answer.content


@pytest.fixture(scope="module")
def uvicorn(site: Site) -> Iterator[tuple[int, psutil.Process]]:
    """Serve the pages of the site by another server."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "mnesis_site.asgi:application", "--port", str(port)]
    server = subprocess.Popen(command, cwd=ROOT, env=site.environment, stderr=subprocess.DEVNULL)
    wait_until(lambda: is_listening(port))
    yield port, psutil.Process(server.pid)
    stop(server)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("path", ["/api/sessions", "/mcp"])
def test_another_server_refuses_large_bodies_too(uvicorn: tuple[int, psutil.Process], path: str, framing: str) -> None:
    port, server = uvicorn
    length, piece = FRAMINGS[framing]
    written = server.io_counters().write_bytes
    sent, answer = flood(port, path, length + INVALID_KEY, piece)
    assert sent < MOST_SENT
    assert (answer.status_code, ENDPOINTS[path](answer)) == (413, "REQUEST_TOO_LARGE")
    assert server.io_counters().write_bytes - written < MEGABYTE
