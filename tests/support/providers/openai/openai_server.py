"""A model server on loopback that speaks OpenAI's streaming protocol, well or badly as it is asked to.

The model's name chooses what happens: ``openai/ok`` answers, ``openai/reset`` resets the connection in
mid-answer, and so on for every scenario of ``openai_scenarios``; an unknown name is a 404, as it is
at the real thing. Every request is kept in ``OpenAIServer.requests``.

    with OpenAIServer() as server:
        spec = ModelSpec(litellm_model="openai/ok", api_base=server.base_url, api_key="key", …)
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from types import TracebackType

from tests.support.providers.openai.openai_exchange import TEXT, WORDS, Exchange, Received
from tests.support.providers.openai.openai_scenarios import SCENARIOS, no_such_model
from tests.support.waiting import PATIENCE_SECONDS

__all__ = ["TEXT", "WORDS", "OpenAIServer"]


@dataclass(slots=True)
class OpenAIServer:
    """The server, in a thread of its own. Use as a context manager."""

    requests: list[Received] = field(default_factory=list)
    disconnects: int = 0
    """How many clients went away before the answer was whole."""
    port: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _stop: asyncio.Event | None = None
    _held: asyncio.Event | None = None
    _ready: threading.Event = field(default_factory=threading.Event)

    @property
    def base_url(self) -> str:
        """What goes into ``ModelSpec.api_base``."""
        return f"http://127.0.0.1:{self.port}/v1"

    def release(self) -> None:
        """Let every held exchange, present and future, go on."""
        if self._loop and self._held:
            self._loop.call_soon_threadsafe(self._held.set)

    def __enter__(self) -> OpenAIServer:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        if not self._ready.wait(PATIENCE_SECONDS):
            raise RuntimeError("the model server did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._loop and self._stop and self._thread:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop, self._held = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._held is not None
        try:
            request = await self._read(reader)
            number = sum(received.model == request.model for received in self.requests)
            exchange = Exchange(request=request, writer=writer, held=self._held, number=number)
            await self._play_while_connected(exchange, reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.disconnects += 1
        finally:
            writer.close()

    async def _play_while_connected(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        play = asyncio.ensure_future(SCENARIOS.get(exchange.request.model, no_such_model)(exchange))
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((play, gone), return_when=asyncio.FIRST_COMPLETED)
        if not play.done():
            self.disconnects += 1
            play.cancel()
            return
        gone.cancel()
        await play
        if not exchange.writer.is_closing():
            exchange.writer.write(b"0\r\n\r\n")
            await exchange.writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> Received:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(path=first.split(" ")[1], headers=headers, body=json.loads(body or b"{}"))
        self.requests.append(received)
        return received
