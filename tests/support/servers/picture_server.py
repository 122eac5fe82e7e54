"""A web server on loopback with pictures and documents, and with everything that may be wrong with one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.material.drawings import document, drawing
from tests.support.providers.threaded_server import QuietHandler, ThreadedServer
from tests.support.sites.listed import list_on_host

PICTURE, PDF = drawing(44, 33), document("The tide turns at six.")
COOKIE = {"Set-Cookie": "a=b; Path=/"}
Page = tuple[int, dict[str, str], bytes]
PAGES: dict[str, Page] = {
    "/quay.png": (200, COOKIE | {"Content-Type": "text/html"}, PICTURE),
    "/quay": (200, COOKIE, PICTURE),
    "/tides.pdf": (200, {}, PDF),
    "/large": (200, {}, bytes(1_000_000)),
    "/words": (200, {"Content-Type": "image/png"}, b"<html><script>alert(1)</script></html>"),
    "/empty": (200, {}, b""),
    "/again": (302, COOKIE | {"Location": "/again"}, b""),
}
BROKEN = {"/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\x89PNG", "/nonsense": b"\0\r\n\r\n"}


class _Page(QuietHandler):
    server: PictureServer

    def do_GET(self) -> None:
        self.server.requests.append({"path": self.path, "headers": dict(self.headers)})
        if self.path in BROKEN:
            self.wfile.write(BROKEN[self.path])
        elif self.path == "/slow":
            self._trickle()
        elif self.path.startswith("/to/"):
            self.answer(302, COOKIE | {"Location": self.path.removeprefix("/to/")}, b"")
        else:
            self.answer(*PAGES.get(self.path, (404, {}, b"")))

    def _trickle(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(100):
                self.wfile.write(b"\x89")
                time.sleep(0.05)
        except OSError:  # the client has left
            pass


class PictureServer(ThreadedServer):
    """Use as a context manager."""

    def __init__(self) -> None:
        super().__init__(_Page)

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [request["path"] for request in self.requests]


@pytest.fixture(scope="module")
def picture_server() -> Iterator[PictureServer]:
    with PictureServer() as server:
        yield server


@pytest.fixture
def pictures(picture_server: PictureServer, settings: Any) -> PictureServer:
    """The server, which the site may reach on loopback and which nothing asked yet."""
    list_on_host(settings, addresses="127.0.0.1")
    picture_server.requests.clear()
    return picture_server
