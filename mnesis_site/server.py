"""The web server of ``manage.py up``: Daphne with limits on what it sends, reads and waits for.

Daphne alone keeps in memory whatever a client does not read, stores a body of any size on disk before the application
sees the request, and waits for silent connections. Here:

- An application's ``send`` waits until the client has read what was sent before, so what waits is one frame and a
  transport's buffer (64 KB). A socket's application settles how long it waits (``agents_app.endpoints.socket``, 4408); the stream of an HTTP
  response, which has no say in it, is cut off here.
- The application gets a request once its headers are there, and the body while it takes it (``bodies`` limits it).
- A connection that sends no whole request in time is closed.
"""

from __future__ import annotations

# The event loop before Daphne, which would take asyncio's own; both before anything else of Twisted; then what sets Django up.
import mnesis_site.event_loop as _event_loop  # noqa: F401 # isort: skip
from daphne.server import Server as DaphneServer  # isort: skip
import mnesis_site.asgi as _set_up  # noqa: F401 # isort: skip

import asyncio
import socket
from collections import defaultdict
from functools import partial
from io import BytesIO
from typing import Any

from daphne import http_protocol
from daphne import server as daphne_server
from daphne.cli import CommandLineInterface
from twisted.internet.interfaces import IPushProducer
from twisted.web.http import HTTPChannel
from zope.interface import implementer

from sessions_app.conf import site_config

BODY_BYTES = 65_536  # of a body that wait for the application; beyond that no more is read
MOST_UNTAKEN = 4  # frames of a client that wait for the application
SEND_BUFFER_BYTES = 65_536
CLOSE_SECONDS = 10.0  # how long a socket that we close stays: a client that reads again finds out why


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
        while not self._is_over and not self._waiting and not (self.is_whole and not self._is_told):
            self._news.clear()
            await self._news.wait()
        if self._is_over:
            return {"type": "http.disconnect"}
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
        self.factory.begin_waiting(self)

    def resetTimeout(self) -> None:
        # Bytes do not extend the time, or a client could send one a minute; they only end the idle time.
        if self._is_idle:
            self._is_idle = False
            self.setTimeout(site_config().web.header_seconds)

    def is_asked(self) -> None:
        self.factory.end_waiting(self)

    def allContentReceived(self) -> None:
        self.is_asked()
        super().allContentReceived()

    def rawDataReceived(self, data: bytes) -> None:
        if self.requests:
            super().rawDataReceived(data)

    def requestDone(self, request: Any) -> None:
        self._is_idle, self._savedTimeOut = True, site_config().web.idle_seconds
        self.setTimeout(self._savedTimeOut)
        self.factory.begin_waiting(self)
        super().requestDone(request)

    def connectionLost(self, reason: Any) -> None:
        self.is_asked()
        super().connectionLost(reason)


class Factory(http_protocol.HTTPFactory):  # type: ignore[misc]
    protocol = Channel

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        # The connections of each address that have not sent a whole request, oldest first.
        self._waiting: defaultdict[str, dict[Channel, None]] = defaultdict(dict)

    def begin_waiting(self, channel: Channel) -> None:
        most = site_config().web.waiting_connections
        same = self._waiting[address_of(channel)]
        same[channel] = None
        if most and len(same) > most:
            oldest = next(iter(same))
            self.end_waiting(oldest)
            oldest.transport.abortConnection()

    def end_waiting(self, channel: Channel) -> None:
        address = address_of(channel)
        self._waiting[address].pop(channel, None)
        if not self._waiting[address]:
            del self._waiting[address]


def address_of(channel: Channel) -> str:
    # All connections through one Unix socket count as one address.
    return str(getattr(channel.transport.getPeer(), "host", ""))


http_protocol.WebRequest = Request  # where Daphne looks for it
daphne_server.HTTPFactory = Factory  # and where it looks for the factory


@implementer(IPushProducer)
class Gate:
    """Shut while a transport has more to send than its buffer is to hold: that is, while its client does not read."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    async def wait(self) -> None:
        await self._open.wait()

    def pauseProducing(self) -> None:
        self._open.clear()

    def resumeProducing(self) -> None:
        self._open.set()

    def stopProducing(self) -> None:
        # The connection is gone; what is sent to it goes nowhere and does not have to wait.
        self._open.set()


class Inbox(asyncio.Queue[dict[str, Any]]):
    """The messages of a client that the application has not taken yet. While there are many, nothing more is read."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self._protocol = protocol
        self._is_full = False

    def put_nowait(self, message: dict[str, Any]) -> None:
        super().put_nowait(message)
        if message["type"] == "websocket.receive" and self.qsize() >= MOST_UNTAKEN and not self._is_full:
            self._is_full = True
            self._protocol.transport.pauseProducing()

    async def get(self) -> dict[str, Any]:
        message = await super().get()
        if self._is_full and self.qsize() < MOST_UNTAKEN:
            self._is_full = False
            self._protocol.transport.resumeProducing()
        return message


class Server(DaphneServer):  # type: ignore[misc]
    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Inbox | Body:
        inbox = getattr(protocol, "body", None) or Inbox(protocol)
        scope.setdefault("asgi", {"version": "3.0"})
        running = self.application(scope=scope, receive=inbox.get, send=partial(self.handle_reply, protocol))
        self.connections[protocol]["application_instance"] = asyncio.ensure_future(running)
        return inbox

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        """Hand a message of the application to the connection, and wait until there is room for the next one."""
        if protocol not in self.connections or "disconnected" in self.connections[protocol]:
            return
        match message["type"]:
            case "websocket.send":
                if not hasattr(protocol, "gate"):
                    # It began as an HTTP request, whose channel is what the transport tells until now.
                    protocol.transport.unregisterProducer()
                    protocol.gate = _gate(protocol.transport, protocol.transport)
                await super().handle_reply(protocol, message)
                await protocol.gate.wait()
            case "websocket.close":
                protocol.closeHandshakeTimeout = CLOSE_SECONDS
                await super().handle_reply(protocol, message)
            case "http.response.body" if protocol.channel is not None and message.get("more_body", False):
                if not hasattr(protocol, "gate"):
                    protocol.gate = _gate(protocol.channel.transport, protocol)
                await super().handle_reply(protocol, message)
                try:
                    async with asyncio.timeout(site_config().stream.slow_seconds):
                        await protocol.gate.wait()
                except TimeoutError:
                    protocol.channel.transport.abortConnection()
            case "http.response.body" if protocol.channel is not None:
                if hasattr(protocol, "gate"):
                    protocol.unregisterProducer()
                await super().handle_reply(protocol, message)
            case _:
                await super().handle_reply(protocol, message)


def _gate(transport: Any, consumer: Any) -> Gate:
    """Return a gate that is told how full a transport's buffer is."""
    gate = Gate()
    # Otherwise the kernel would keep megabytes more.
    transport.getHandle().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    consumer.registerProducer(gate, True)
    return gate


class Program(CommandLineInterface):  # type: ignore[misc]
    server_class = Server


if __name__ == "__main__":
    Program.entrypoint()
