"""A server of another origin, at which nothing of a page should ever arrive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from socketserver import BaseRequestHandler, ThreadingTCPServer

from tests.support.providers.threaded_server import POLL_SECONDS


@dataclass(frozen=True, slots=True)
class Trap:
    """The first bytes of each connection, be it a request or an empty one."""

    url: str
    caught: list[bytes] = field(default_factory=list)


@contextmanager
def set_trap() -> Iterator[Trap]:
    class Catch(BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(1)
            try:
                trap.caught.append(self.request.recv(200))
            except TimeoutError:
                trap.caught.append(b"(nothing was said)")

    with ThreadingTCPServer(("127.0.0.1", 0), Catch) as server:
        server.daemon_threads = True
        trap = Trap(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        thread.start()
        yield trap
        server.shutdown()
        thread.join()
