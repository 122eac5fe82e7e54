"""One request to the model server of these tests, and the wire on which it is answered, well or badly."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
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
    number: int = 1
    """Which request for this model it is, since the server began."""
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


def chunk(choices: list[dict[str, Any]], *, usage: Any = None) -> dict[str, Any]:
    """A ``chat.completion.chunk``."""
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return value if usage is None else {**value, "usage": usage}


def tool_fragment(index: int, arguments: str, *, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    """A piece of a streamed tool call."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"index": index, "function": function, **({"id": id, "type": "function"} if id else {})}
