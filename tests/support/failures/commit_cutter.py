"""A line to PostgreSQL that is cut when a COMMIT goes over it: before the server has it, or before its answer is back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

from django.db import connection

from tests.support.sites.kept_connections import new_connections

COMMIT = b"COMMIT\x00"
CHUNK = 65_536


class Cut(Enum):
    """What happens to one COMMIT."""

    NOT = "not"
    BEFORE = "the server never sees it"
    AFTER = "the server commits, and its answer is lost"


class CommitCutter:
    """A small proxy in a thread of its own, on a port of this machine."""

    def __init__(self, host: str, port: int, plan: Callable[[], Cut]) -> None:
        self._server = host, port
        self._plan = plan
        """Asked at each COMMIT."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="commit cutter")

    def __enter__(self) -> int:
        """Start it; returns its port."""
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._proxy = asyncio.run_coroutine_threadsafe(start, self._loop).result(10)
        port: int = self._proxy.sockets[0].getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _stop(self) -> None:
        self._proxy.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One line, until one side ends it or it is cut."""
        server, to_server = await asyncio.open_connection(*self._server)
        line = _Line()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on_to_server(line, client, to_server))
                both.create_task(_pass_on_to_client(line, server, to_client))
        except* (_Ended, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            to_server.transport.abort()
            to_client.transport.abort()

    async def _pass_on_to_server(
        self, line: _Line, client: asyncio.StreamReader, to_server: asyncio.StreamWriter
    ) -> None:
        while data := await client.read(CHUNK):
            cut = self._plan() if COMMIT in data else Cut.NOT
            if cut is Cut.BEFORE:
                raise _Ended
            line.ends_with_answer = cut is Cut.AFTER
            to_server.write(data)
        raise _Ended


class _Line:
    """One connection."""

    ends_with_answer = False


class _Ended(Exception):
    """One side of a line is gone, or it was cut."""


async def _pass_on_to_client(line: _Line, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
    while data := await server.read(CHUNK):
        if line.ends_with_answer:
            raise _Ended
        to_client.write(data)
    raise _Ended


@contextmanager
def cut_line(plan: Callable[[], Cut]) -> Iterator[None]:
    """For the length of the block Django's new connections go over a line that is cut as the plan says."""
    values: dict[str, Any] = connection.settings_dict
    kept = {name: values[name] for name in ("HOST", "PORT", "OPTIONS")}
    connection.close()
    cutter = CommitCutter(kept["HOST"] or "127.0.0.1", int(kept["PORT"] or 5432), plan)
    with new_connections(), cutter as port:
        # Encrypted, nobody in between would see a COMMIT.
        values |= {"HOST": "127.0.0.1", "PORT": str(port), "OPTIONS": {**kept["OPTIONS"], "sslmode": "disable"}}
        try:
            yield
        finally:
            with suppress(Exception):
                connection.close()
            values |= kept
