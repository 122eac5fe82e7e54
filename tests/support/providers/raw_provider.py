"""A provider on loopback that keeps the bytes which it got and sent, and speaks the three protocols."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.providers.threaded_server import ThreadedServer

Say = Callable[[dict[str, Any]], "Saying"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """What is answered: a text, calls as ``(id, name, arguments)``, or an error's status and body."""

    text: str = ""
    searches: int = 0  # that Anthropic runs
    hour: int | None = None  # of the 3 tokens that Anthropic's cache takes, those that it keeps for an hour
    stop: str | None = None  # the stop sequence at which it ends
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    status: int = 200
    error: bytes = b""
    gate: threading.Event | None = None  # the second half waits for it
    breaks_off: bool = False  # after the first half


@dataclass(slots=True)
class Exchanged:
    path: str
    headers: dict[str, str]
    got: bytes
    sent: bytes = b""
    at_gate: threading.Event = field(default_factory=threading.Event)
    was_left: bool = False  # the other side hung up in the middle


class RawProvider(ThreadedServer):
    """Use as a context manager. ``say`` decides by the request what is answered."""

    def __init__(self, say: Say | None = None) -> None:
        super().__init__(_Handler)
        self.say: Say = say or (lambda body: Saying(text=f"Answer {len(self.exchanged)}."))
        self.exchanged: list[Exchanged] = []

    @property
    def last(self) -> Exchanged:
        return self.exchanged[-1]


class _Handler(BaseHTTPRequestHandler):
    server: RawProvider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a piece would wait 40 ms for the acknowledgement of the one before

    def do_POST(self) -> None:
        got = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        one = Exchanged(self.path, headers, got)
        self.server.exchanged.append(one)
        body = json.loads(got)
        saying = self.server.say(body)
        if saying.status != 200:
            self._send(one, saying.status, "application/json", [saying.error])
            return
        number = len(self.server.exchanged)
        if self.path.endswith("/count_tokens"):
            self._send(one, 200, "application/json", [b'{"input_tokens":   7}'])
            return
        speak = next(speak for end, speak in _SPEAKERS.items() if self.path.partition("?")[0].endswith(end))
        if body.get("stream"):
            self._send(one, 200, "text/event-stream; charset=utf-8", [*speak(saying, number, True)], saying)
        else:
            self._send(one, 200, "application/json", [*speak(saying, number, False)])

    def _send(self, one: Exchanged, status: int, kind: str, pieces: list[bytes], saying: Saying | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("request-id", "req_raw")
        self.send_header("anthropic-ratelimit-requests-remaining", "41")
        self.end_headers()
        try:
            for number, piece in enumerate(pieces):
                if saying is not None and number == len(pieces) // 2:
                    one.at_gate.set()
                    if saying.gate is not None:
                        saying.gate.wait(20)
                    if saying.breaks_off:
                        self.close_connection = True
                        return
                one.sent += piece
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            one.was_left = True
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _messages(saying: Saying, number: int, is_stream: bool) -> Iterator[bytes]:
    reason = "tool_use" if saying.calls else "stop_sequence" if saying.stop else "end_turn"
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3}
    ran: Any = {"server_tool_use": {"web_search_requests": saying.searches}} if saying.searches else {}
    usage |= ran
    if saying.hour is not None:
        kept = {"ephemeral_5m_input_tokens": 3 - saying.hour, "ephemeral_1h_input_tokens": saying.hour}
        usage |= {"cache_creation": kept}  # type: ignore[dict-item]
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "raw-1", "usage": usage}
    blocks = [{"type": "text", "text": saying.text}] if saying.text else []
    blocks += [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in saying.calls]  # type: ignore[dict-item]
    if not is_stream:
        # With a form that no library of ours would write.
        whole = head | {"content": blocks, "stop_reason": reason, "stop_sequence": saying.stop}
        yield json.dumps(whole, indent=3, ensure_ascii=False).encode()
        return
    yield _event("message_start", message=head | {"content": [], "stop_reason": None, "stop_sequence": None})
    yield b": a comment\r\n\r\n"
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for word in saying.text.split(" "):
                delta = {"type": "text_delta", "text": word if word == saying.text.split(" ")[0] else f" {word}"}
                yield _event("content_block_delta", index=index, delta=delta)
        else:
            yield _event("content_block_start", index=index, content_block=block | {"input": {}})
            given = json.dumps(block["input"])
            for half in (given[: len(given) // 2], given[len(given) // 2 :]):
                yield _event(
                    "content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": half}
                )
        yield _event("content_block_stop", index=index)
    yield _event(
        "message_delta", delta={"stop_reason": reason, "stop_sequence": saying.stop}, usage={"output_tokens": 21, **ran}
    )
    yield _event("message_stop")


def _event(kind: str, **values: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **values})}\n\n".encode()


def _completions(saying: Saying, number: int, is_stream: bool) -> Iterator[bytes]:
    head = {"id": f"chatcmpl-{number}", "created": 1_700_000_000, "model": "raw-1"}
    usage = {"prompt_tokens": 110, "completion_tokens": 21, "total_tokens": 131}
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for id, name, given in saying.calls
    ]
    reason = "tool_calls" if calls else "stop"
    if not is_stream:
        message = {"role": "assistant", "content": saying.text or None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        yield json.dumps(head | {"object": "chat.completion", "choices": [choice], "usage": usage}, indent=1).encode()
        return

    def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        value = head | {"object": "chat.completion.chunk", "choices": [choice]} | more
        return f"data: {json.dumps(value)}\n\n".encode()

    yield chunk({"role": "assistant", "content": ""})
    words = saying.text.split(" ") if saying.text else []
    for place, word in enumerate(words):
        yield chunk({"content": f" {word}" if place else word})
    for index, call in enumerate(calls):
        function: Any = call["function"]
        yield chunk({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    yield chunk({}, reason)
    yield f"data: {json.dumps(head | {'object': 'chat.completion.chunk', 'choices': [], 'usage': usage})}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _responses(saying: Saying, number: int, is_stream: bool) -> Iterator[bytes]:
    usage = {"input_tokens": 110, "output_tokens": 21, "total_tokens": 131}
    usage |= {"input_tokens_details": {"cached_tokens": 9}, "output_tokens_details": {"reasoning_tokens": 0}}  # type: ignore[dict-item]
    output: list[dict[str, Any]] = []
    if saying.text:
        content = [{"type": "output_text", "text": saying.text, "annotations": [], "logprobs": []}]
        output.append(
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        )
    for id, name, given in saying.calls:
        call = {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(given)}
        output.append({"id": f"fc_{id}", "status": "completed", **call})
    whole: dict[str, Any] = {
        **{"id": f"resp_raw{number}", "object": "response", "created_at": 1_700_000_000, "status": "completed"},
        **{"model": "raw-1", "output": output, "usage": usage, "parallel_tool_calls": True, "tool_choice": "auto"},
        **{"tools": [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {}},
    }
    if not is_stream:
        yield json.dumps(whole, indent=2).encode()
        return
    order = iter(range(1_000))

    def event(kind: str, **values: Any) -> bytes:
        value = {"type": kind, "sequence_number": next(order), **values}
        return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()

    yield event("response.created", response=whole | {"status": "in_progress", "output": [], "usage": None})
    for index, item in enumerate(output):
        yield event("response.output_item.added", output_index=index, item=item | {"status": "in_progress"})
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            part = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", **place, part=part)
            for number_, word in enumerate(saying.text.split(" ")):
                delta = f" {word}" if number_ else word
                yield event("response.output_text.delta", **place, delta=delta, logprobs=[])
            yield event("response.output_text.done", **place, text=saying.text, logprobs=[])
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=whole)


_SPEAKERS = {"/messages": _messages, "/chat/completions": _completions, "/responses": _responses}
