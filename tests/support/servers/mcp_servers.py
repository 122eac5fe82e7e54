"""Tool servers for tests: real processes and a real HTTP server on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.utils import timezone

from mnesis_core.turns.mcp_servers import AttachedServer, Listing, ServerAddress

EXAMPLE = str(Path(__file__).with_name("mcp_example.py"))
HOSTILE = str(Path(__file__).with_name("mcp_hostile.py"))


def example(**values: Any) -> ServerAddress:
    """The server that the official SDK makes, as a program."""
    argv = (sys.executable, EXAMPLE, "stdio")
    return ServerAddress(**{"name": "example", "argv": argv, "entered_on_host": True} | values)


def hostile(mode: str, *arguments: str, **values: Any) -> ServerAddress:
    """One that means harm; it starts in some milliseconds."""
    argv = (sys.executable, "-I", "-S", HOSTILE, mode, *arguments)
    return ServerAddress(**{"name": "hostile", "argv": argv, "entered_on_host": True} | values)


def attached(address: ServerAddress) -> AttachedServer:
    """A server as if it were attached, for what needs no row."""
    return AttachedServer(
        id=f"mcp_{' '.join(address.argv)}{address.url}{address.secrets}",
        address=address,
        listing=Listing(),
        listed_at=None,
        problem="",
        unreachable_since=None,
        created_at=timezone.now(),
    )


@contextmanager
def example_over_http() -> Iterator[ServerAddress]:
    """The same server over streamable HTTP, in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, EXAMPLE, "http", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port, process)
        yield ServerAddress(name="example", url=f"http://127.0.0.1:{port}/mcp", entered_on_host=True)
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server does not listen")
