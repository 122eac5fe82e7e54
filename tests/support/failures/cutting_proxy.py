"""A bad line to a server: a proxy that cuts streams of events, and exports, after so many bytes."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from tests.support.waiting import PATIENCE_SECONDS

STREAMS = (b"text/event-stream", b"application/x-ndjson")
"""Content types of what may be cut."""


class CuttingProxy:
    """The proxy, in a thread of its own. Use as a context manager."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.bytes_left: list[int] = []
        """For each of the next streams, after how many bytes it is cut; the ones after those are whole."""
        self.sent_left: list[int] = []
        """For each of the next cuts, after how many bytes that a connection sends."""
        self.cuts = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        """The address to connect to instead."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        if not self._ready.wait(PATIENCE_SECONDS):
            raise RuntimeError("the proxy did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        ways = [asyncio.ensure_future(self._ask(reader, forth)), asyncio.ensure_future(self._answer(back, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way, end in zip(ways, (writer, forth), strict=True):
                way.cancel()
                end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = 0
        while data := await reader.read(4096):
            sent += len(data)
            if self.sent_left and sent > self.sent_left[0]:
                self.sent_left.pop(0)
                self.cuts += 1
                # What came before shall arrive.
                await writer.drain()
                await asyncio.sleep(0.2)
                return
            writer.write(data)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left: int | None = None
        while data := await reader.read(4096):
            if self.bytes_left and any(kind in data for kind in STREAMS):
                left = self.bytes_left.pop(0)
            writer.write(data if left is None else data[: max(0, left)])
            await writer.drain()
            left = None if left is None else left - len(data)
            if left is not None and left <= 0:
                self.cuts += 1
                return
