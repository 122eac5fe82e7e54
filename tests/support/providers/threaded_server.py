"""A server on loopback, in a thread of its own, which keeps what it is asked."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self

POLL_SECONDS = 0.01
"""How long a server takes to see that it is to stop. The default of half a second is more than most tests take."""


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing, and sends a whole answer at once."""

    def log_message(self, *arguments: Any) -> None:
        pass

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class ThreadedServer(ThreadingHTTPServer):
    """Use as a context manager."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.requests: list[dict[str, Any]] = []
        self._thread = Thread(target=self.serve_forever, args=(POLL_SECONDS,), daemon=True)

    @property
    def url(self) -> str:
        """The address that it listens at."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.shutdown()
        self._thread.join(10)
        self.server_close()
