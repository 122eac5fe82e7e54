"""The connections of the web server: a body is read while the application takes it, and silent connections are closed.

Daphne alone stores a body of any size on disk before the application sees the request, and waits for silent connections.
Here the application gets the request once its headers are there (``bodies`` limits what follows), and a connection that
sends no whole request in time is closed.
"""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any

from daphne import http_protocol
from daphne import server as daphne_server
from twisted.web.http import HTTPChannel

from sessions_app.conf import site_config

# Bytes of a body that wait for the application; beyond that no more is read.
BODY_BYTES = 65_536


class Body:
    """The part of a request's body that the application has not taken yet, as a queue for Daphne."""

    is_whole = False

    def __init__(self, request: Any) -> None:
        self._request = request
        self._waiting, self._taken = bytearray(), 0
        self._is_told, self._is_over = False, False
        self._news = asyncio.Event()

    def add(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= BODY_BYTES:
            self._request.transport.pauseProducing()
        self._news.set()

    def end(self) -> None:
        self.is_whole = True
        self._news.set()

    def put_nowait(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.disconnect":
            self._is_over = True
            self._news.set()

    async def get(self) -> dict[str, Any]:
        if self._taken > site_config().web.anonymous_bytes:
            self._request.channel.is_asked()  # unknown callers may not send so much
        while True:
            if self._is_over:
                return {"type": "http.disconnect"}
            if self._waiting or (self.is_whole and not self._is_told):
                return self._next()
            self._news.clear()
            await self._news.wait()

    def _next(self) -> dict[str, Any]:
        data, self._waiting = bytes(self._waiting), bytearray()
        self._taken += len(data)
        self._is_told = self.is_whole
        if not self.is_whole:
            self._request.transport.resumeProducing()
        return {"type": "http.request", "body": data, "more_body": not self.is_whole}


class Request(http_protocol.WebRequest):  # type: ignore[misc]
    """Daphne's request, given to the application before its body has arrived. Only Django reads forms."""

    body: Body | None = None

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, parsePOSTFormSubmission=False, **values)

    # Called once all headers are there.
    def gotLength(self, length: int | None) -> None:
        if length == 0:
            super().gotLength(length)
            return
        self.content, self.body = BytesIO(), Body(self)
        self.requestHeaders.removeHeader(b"upgrade")  # a WebSocket request has no body
        self.channel.setTimeout(None)
        super().requestReceived(self.channel._command, self.channel._path, self.channel._version)

    def handleContentChunk(self, data: bytes) -> None:
        if self.body is not None and not self.finished:
            self.body.add(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if self.body is None:
            super().requestReceived(command, path, version)
        else:
            self.body.end()

    def finish(self) -> None:
        # A client that has not sent all of its request is not read any more.
        channel = self.channel
        is_heard = self.body is None or self.body.is_whole
        channel.persistent = channel.persistent and is_heard
        super().finish()
        if not is_heard:
            channel.transport.pauseProducing()


class Channel(HTTPChannel):  # type: ignore[misc]
    """A connection that is closed if no whole request arrives in time."""

    factory: Factory
    transport: Any
    _is_idle = False

    def connectionMade(self) -> None:
        self.timeOut = site_config().web.header_seconds
        super().connectionMade()
        self.factory.waiting.add(self)

    def resetTimeout(self) -> None:
        # Bytes do not extend the time, or a client could send one a minute; they only end the idle time.
        if self._is_idle:
            self._is_idle = False
            self.setTimeout(site_config().web.header_seconds)

    def is_asked(self) -> None:
        self.factory.waiting.discard(self)

    def allContentReceived(self) -> None:
        self.is_asked()
        super().allContentReceived()

    def rawDataReceived(self, data: bytes) -> None:
        if self.requests:
            super().rawDataReceived(data)

    def requestDone(self, request: Any) -> None:
        self._is_idle, self._savedTimeOut = True, site_config().web.idle_seconds
        self.setTimeout(self._savedTimeOut)
        self.factory.waiting.add(self)
        super().requestDone(request)

    def connectionLost(self, reason: Any) -> None:
        self.is_asked()
        super().connectionLost(reason)


class Waiting:
    """The connections of each address that have not sent a whole request, oldest first."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[Channel, None]] = {}

    def add(self, channel: Channel) -> None:
        most = site_config().web.waiting_connections
        same = self._by_address.setdefault(address_of(channel), {})
        same[channel] = None
        if most and len(same) > most:
            oldest = next(iter(same))
            self.discard(oldest)
            oldest.transport.abortConnection()

    def discard(self, channel: Channel) -> None:
        address = address_of(channel)
        same = self._by_address.get(address, {})
        same.pop(channel, None)
        if not same:
            self._by_address.pop(address, None)


def address_of(channel: Channel) -> str:
    # All connections through one Unix socket count as one address.
    return str(getattr(channel.transport.getPeer(), "host", ""))


class Factory(http_protocol.HTTPFactory):  # type: ignore[misc]
    protocol = Channel

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.waiting = Waiting()


http_protocol.WebRequest = Request  # where Daphne looks for it
daphne_server.HTTPFactory = Factory  # and where it looks for the factory
