"""A loopback server that answers like OpenAI's Chat Completions and Anthropic's Messages, and keeps what it is asked."""

from __future__ import annotations

import json
from abc import abstractmethod
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.providers.threaded_server import ThreadedServer


class LoopbackServer(ThreadedServer):
    """Answers JSON with JSON."""

    def __init__(self) -> None:
        super().__init__(_Handler)

    @abstractmethod
    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""


class ProviderServer(LoopbackServer):
    """Numbers its answers."""

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        text = f"answer {len(self.requests)}"
        return _anthropic(body, text) if path.endswith("/messages") else _openai(body, text)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, LoopbackServer)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        payload = json.dumps(self.server.answer(self.path, body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _openai(body: dict[str, Any], answer: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body.get("model", ""),
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }


def _anthropic(body: dict[str, Any], answer: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": answer}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 7},
    }
