"""A loopback server of OpenAI's ``/v1/embeddings`` for which a vessel is nearly a ferry, and everything else something else."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any

NUMBERS = {"ferry": [1.0, 0.0, 0.0], "vessel": [0.95, 0.1, 0.0]}


class EmbeddingServer(ThreadingHTTPServer):
    """Use as a context manager."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self._thread = Thread(target=self.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> EmbeddingServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.shutdown()
        self._thread.join(10)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, EmbeddingServer)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked += body["input"]
        payload = json.dumps(_answer(body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    vectors = [next((n for word, n in NUMBERS.items() if word in text), [0.1, 0.1, 0.9]) for text in body["input"]]
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return {"object": "list", "model": body["model"], "data": data, "usage": {"prompt_tokens": 9, "total_tokens": 9}}
