"""The connections of our web server: a body is read while the application takes it, and silence ends.

Daphne alone puts a body of any size on the disk before the application hears of the request, and waits for connections
on which nothing comes. Here the application has the request once its headers are there (``bodies`` bounds what follows),
and a connection that sends no whole request in time is closed.
"""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any

from daphne import http_protocol
from daphne import server as daphne_server
from twisted.web.http import HTTPChannel

from sessions_app.conf import site_config

BODY_BYTES = 65_536
"""Bytes of a body that wait for the application. Beyond that no more is read."""


class Body:
    """What came of a request's body and the application has not taken yet; then what its connection says.

    Daphne alone would take a body whole, of any size, before the application hears of the request.
    """

    is_whole = False

    def __init__(self, request: Any) -> None:
        self._request = request
        self._waiting, self._taken = bytearray(), 0
        self._is_told, self._is_over = False, False
        self._news = asyncio.Event()

    def add(self, data: bytes) -> None:
        """Take what came; while as much waits as the application gets at a time, nothing more is read."""
        self._waiting += data
        if len(self._waiting) >= BODY_BYTES:
            self._request.transport.pauseProducing()
        self._news.set()

    def end(self) -> None:
        """That was all of it."""
        self.is_whole = True
        self._news.set()

    def put_nowait(self, message: dict[str, Any]) -> None:
        """Take what Daphne says of the request; of its body it knows nothing."""
        if message["type"] == "http.disconnect":
            self._is_over = True
            self._news.set()

    async def get(self) -> dict[str, Any]:
        """The next piece, then what came after."""
        if self._taken > site_config().web.anonymous_bytes:
            self._request.channel.is_asked()  # it takes more than anybody unknown may send
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
    """Daphne's request, handed to the application before its body has arrived. Only Django reads forms."""

    body: Body | None = None

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, parsePOSTFormSubmission=False, **values)

    def gotLength(self, length: int | None) -> None:
        """The headers are all there; where a body follows, the application has its turn now."""
        if length == 0:
            super().gotLength(length)
            return
        self.content, self.body = BytesIO(), Body(self)
        self.requestHeaders.removeHeader(b"upgrade")  # a socket begins with no body
        self.channel.setTimeout(None)
        super().requestReceived(self.channel._command, self.channel._path, self.channel._version)

    def handleContentChunk(self, data: bytes) -> None:
        """A piece of the body."""
        if self.body is not None and not self.finished:
            self.body.add(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """All of it came."""
        if self.body is None:
            super().requestReceived(command, path, version)
        else:
            self.body.end()

    def finish(self) -> None:
        """The answer is complete. A client that has not sent all of its request is heard no more."""
        channel = self.channel
        is_heard = self.body is None or self.body.is_whole
        channel.persistent = channel.persistent and is_heard
        super().finish()
        if not is_heard:
            channel.transport.pauseProducing()


class Channel(HTTPChannel):  # type: ignore[misc]
    """A connection of the web, which is closed where no whole request comes."""

    factory: Factory
    transport: Any
    _is_idle = False

    def connectionMade(self) -> None:
        """It has to ask soon."""
        self.timeOut = site_config().web.header_seconds
        super().connectionMade()
        self.factory.waiting.add(self)

    def resetTimeout(self) -> None:
        """Something came. That buys no time: it would be a byte a minute; but the idle time ends with it."""
        if self._is_idle:
            self._is_idle = False
            self.setTimeout(site_config().web.header_seconds)

    def is_asked(self) -> None:
        """The client has sent a request."""
        self.factory.waiting.discard(self)

    def allContentReceived(self) -> None:
        """A request is whole."""
        self.is_asked()
        super().allContentReceived()

    def rawDataReceived(self, data: bytes) -> None:
        """A piece of a body; after an answer that did not wait for the rest there is nobody to take it."""
        if self.requests:
            super().rawDataReceived(data)

    def requestDone(self, request: Any) -> None:
        """It is answered; there may come another one, and the answer may be taken slowly."""
        self._is_idle, self._savedTimeOut = True, site_config().web.idle_seconds
        self.setTimeout(self._savedTimeOut)
        self.factory.waiting.add(self)
        super().requestDone(request)

    def connectionLost(self, reason: Any) -> None:
        """It is gone."""
        self.is_asked()
        super().connectionLost(reason)


class Waiting:
    """The connections of each address that have not sent a whole request, the oldest first."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[Channel, None]] = {}

    def add(self, channel: Channel) -> None:
        """One more; the oldest has to go for it where there are too many."""
        most = site_config().web.waiting_connections
        same = self._by_address.setdefault(address_of(channel), {})
        same[channel] = None
        if most and len(same) > most:
            oldest = next(iter(same))
            self.discard(oldest)
            oldest.transport.abortConnection()

    def discard(self, channel: Channel) -> None:
        """One less."""
        address = address_of(channel)
        same = self._by_address.get(address, {})
        same.pop(channel, None)
        if not same:
            self._by_address.pop(address, None)


def address_of(channel: Channel) -> str:
    """Where a connection comes from; all that come through one socket of the file system count as one."""
    return str(getattr(channel.transport.getPeer(), "host", ""))


class Factory(http_protocol.HTTPFactory):  # type: ignore[misc]
    """Makes a channel of ours for each connection."""

    protocol = Channel

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.waiting = Waiting()


http_protocol.WebRequest = Request  # where Daphne looks for it
daphne_server.HTTPFactory = Factory  # likewise
