"""A model server on loopback that speaks OpenAI's streaming protocol, well or badly as it is asked to.

The model's name chooses what happens: ``openai/ok`` answers, ``openai/reset`` resets the connection in
mid-answer, and so on for every function marked ``@scenario`` below; an unknown name is a 404, as it is
at the real thing. Every request is kept in ``OpenAIServer.requests``.

    with OpenAIServer() as server:
        spec = ModelSpec(litellm_model="openai/ok", api_base=server.base_url, api_key="key", …)
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

WORDS = ("The ", "answer ", "is ", "forty-two", ".")
TEXT = "".join(WORDS)
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]

    @property
    def model(self) -> str:
        """What the client calls the model, without litellm's provider prefix."""
        return str(self.body.get("model", ""))


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request being answered. Bodies are chunked, so that a cut is a cut and not an end."""

    request: Received
    writer: asyncio.StreamWriter
    held: asyncio.Event
    started: bool = False

    async def head(self, status: int = 200, kind: str = EVENT_STREAM, **headers: str) -> None:
        """Send the status line and the headers."""
        self.started = True
        lines = [f"HTTP/1.1 {status} Status", f"Content-Type: {kind}", "Transfer-Encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write(("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode())
        await self.writer.drain()

    async def raw(self, body: bytes) -> None:
        """Send bytes of the body."""
        if not self.started:
            await self.head()
        self.writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
        await self.writer.drain()

    async def event(self, value: Any) -> None:
        """Send one server-sent event."""
        await self.raw(b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n")

    async def delta(self, *, finish: str | None = None, usage: Any = None, **delta: Any) -> None:
        """Send one chunk of a completion."""
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        await self.event(chunk(choices, usage=usage))

    async def words(self, words: Iterable[str] = WORDS, *, pause: float = 0.0) -> None:
        """Send text, a chunk for each piece."""
        for word in words:
            await self.delta(content=word)
            if pause:
                await asyncio.sleep(pause)

    async def close(self, finish: str | None = "stop", usage: Any = USAGE, *, done: bool = True) -> None:
        """Finish as a good server does: finish reason, usage, the end mark."""
        if finish is not None:
            await self.delta(finish=finish)
        if usage is not None:
            await self.event(chunk([], usage=usage))
        if done:
            await self.event("[DONE]")

    async def error(self, status: int, message: str, *, code: str | None = None, **headers: str) -> None:
        """Refuse with OpenAI's error shape."""
        await self.head(status, "application/json", **headers)
        await self.raw(json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode())

    def reset(self) -> None:
        """Drop the connection with a TCP reset."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Scenario = Callable[[Exchange], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    """Register a function under its own name as a model."""
    SCENARIOS[getattr(play, "__name__")] = play  # noqa: B009 - a Callable has no __name__ for mypy
    return play


def chunk(choices: list[dict[str, Any]], *, usage: Any = None) -> dict[str, Any]:
    """A ``chat.completion.chunk``."""
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return value if usage is None else {**value, "usage": usage}


def tool_fragment(index: int, arguments: str, *, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    """A piece of a streamed tool call."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"index": index, "function": function, **({"id": id, "type": "function"} if id else {})}


# Good answers


@scenario
async def ok(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close()


@scenario
async def echo(exchange: Exchange) -> None:
    await exchange.words(str(exchange.request.body["messages"][-1]["content"]).split(" "))
    await exchange.close()


@scenario
async def no_done(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(done=False)


@scenario
async def no_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage=None)


@scenario
async def cached_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 5}})


@scenario
async def length(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish="length")


@scenario
async def unknown_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish="because " * 40)


@scenario
async def silent(exchange: Exchange) -> None:
    await exchange.close()


@scenario
async def pings(exchange: Exchange) -> None:
    await exchange.raw(b": keep-alive\n\n")
    await exchange.raw(b"event: ping\ndata: {}\n\n")
    await exchange.event(chunk([]))
    await exchange.words()
    await exchange.close()


@scenario
async def reasoning(exchange: Exchange) -> None:
    for word in ("Let me ", "see."):
        await exchange.delta(reasoning_content=word)
    await exchange.words()
    await exchange.close()


@scenario
async def repeating(exchange: Exchange) -> None:
    await exchange.words(["| --- "] * 300)
    await exchange.close()


@scenario
async def hostile_text(exchange: Exchange) -> None:
    await exchange.words(["nul \x00 ", "lone \ud800 ", "bidi \u202e"])
    await exchange.close()


@scenario
async def slow(exchange: Exchange) -> None:
    await exchange.words((f"word{number} " for number in range(20)), pause=0.05)
    await exchange.close()


@scenario
async def held(exchange: Exchange) -> None:
    """Says the first two words, then waits for ``OpenAIServer.release``."""
    await exchange.words(WORDS[:2])
    await exchange.held.wait()
    await exchange.words(WORDS[2:])
    await exchange.close()


# Tool calls


@scenario
async def tools(exchange: Exchange) -> None:
    await exchange.delta(content="Looking. ")
    await exchange.delta(tool_calls=[tool_fragment(0, "", id="call_a", name="search")])
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": ')])
    await exchange.delta(tool_calls=[tool_fragment(1, "", id="call_b", name="now")])
    await exchange.delta(tool_calls=[tool_fragment(0, '"blue"}')])
    await exchange.delta(tool_calls=[tool_fragment(1, "{}")])
    await exchange.close(finish="tool_calls")


@scenario
async def tools_same_index(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 1}', id="call_a", name="first")])
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 2}', id="call_b", name="second")])
    await exchange.close(finish="tool_calls")


@scenario
async def tools_cut(exchange: Exchange) -> None:
    await exchange.delta(content="Looking. ")
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "bl', id="call_a", name="search")])
    await exchange.close(finish="tool_calls")


@scenario
async def tools_too_long(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "bl', id="call_a", name="search")])
    await exchange.close(finish="length")


@scenario
async def tools_no_finish(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "blue"}', id="call_a", name="search")])


# Ends that look like an end and prove nothing


@scenario
async def no_finish(exchange: Exchange) -> None:
    await exchange.words()


@scenario
async def done_without_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish=None, usage=None)


@scenario
async def cut_json(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.raw(b'data: {"id": "chatcmpl-1", "choices": [{"index": 0, "del')


@scenario
async def empty(exchange: Exchange) -> None:
    await exchange.head()


@scenario
async def html(exchange: Exchange) -> None:
    await exchange.head(kind="text/html")
    await exchange.raw(b"<!doctype html><title>Welcome</title><p>This is a web page.</p>\n\n")


@scenario
async def empty_choices(exchange: Exchange) -> None:
    await exchange.event(chunk([]))
    await exchange.event("[DONE]")


# Breaks in mid-answer


@scenario
async def closed(exchange: Exchange) -> None:
    await exchange.words()
    exchange.writer.transport.abort()


@scenario
async def reset(exchange: Exchange) -> None:
    await exchange.words()
    await asyncio.sleep(0.05)  # a reset discards what is still in the client's receive buffer
    exchange.reset()


@scenario
async def reset_after_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.delta(finish="stop")
    await asyncio.sleep(0.05)
    exchange.reset()


@scenario
async def malformed(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.event('{"choices": [}')


@scenario
async def invalid_utf8(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.raw(b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n')


@scenario
async def error_chunk(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.event({"error": {"message": "GPU fell off the bus", "type": "server_error", "code": 500}})


@scenario
async def error_first(exchange: Exchange) -> None:
    await exchange.event({"error": {"message": "GPU fell off the bus", "type": "server_error", "code": 500}})


@scenario
async def stall(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.held.wait()


@scenario
async def drip(exchange: Exchange) -> None:
    await exchange.words((f"drop{number} " for number in range(10_000)), pause=0.05)


@scenario
async def huge(exchange: Exchange) -> None:
    await exchange.words(f"{number} " + "x" * 50_000 for number in range(200))
    await exchange.close()


# Usage that cannot be true


@scenario
async def negative_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": -5, "completion_tokens": 7, "total_tokens": 2})


@scenario
async def enormous_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": 2**60, "completion_tokens": 7, "total_tokens": 2**60 + 7})


@scenario
async def wordy_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": "many", "completion_tokens": "few", "total_tokens": None})


# Refusals


@scenario
async def unauthorized(exchange: Exchange) -> None:
    sent = exchange.request.headers.get("authorization", "")
    await exchange.error(401, f"Incorrect API key provided: {sent}", code="invalid_api_key")


@scenario
async def forbidden(exchange: Exchange) -> None:
    await exchange.error(403, "This project may not use this model.")


@scenario
async def rate_limited(exchange: Exchange) -> None:
    await exchange.error(429, "Too many requests.", code="rate_limit_exceeded", Retry_After="7")


@scenario
async def context_length(exchange: Exchange) -> None:
    text = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    await exchange.error(400, text, code="context_length_exceeded")


@scenario
async def bad_request(exchange: Exchange) -> None:
    sent = exchange.request.headers.get("authorization", "")
    await exchange.error(400, f"temperature must be below 2; you are {sent}")


@scenario
async def server_error(exchange: Exchange) -> None:
    await exchange.error(500, "Internal error.")


@scenario
async def unavailable(exchange: Exchange) -> None:
    await exchange.head(503, "text/html")
    await exchange.raw(b"<html><body><h1>503 Service Unavailable</h1></body></html>")


@scenario
async def redirect(exchange: Exchange) -> None:
    await exchange.head(307, "text/plain", Location="/v1/elsewhere")


@scenario
async def hang(exchange: Exchange) -> None:
    await exchange.held.wait()


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
        if not self._ready.wait(10):
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
            exchange = Exchange(request=await self._read(reader), writer=writer, held=self._held)
            await self._play_while_connected(exchange, reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.disconnects += 1
        finally:
            writer.close()

    async def _play_while_connected(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        play = asyncio.ensure_future(SCENARIOS.get(exchange.request.model, _not_found)(exchange))
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


async def _not_found(exchange: Exchange) -> None:
    await exchange.error(404, f"The model '{exchange.request.model}' does not exist.", code="model_not_found")
