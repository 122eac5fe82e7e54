"""The web server of ``manage.py up``: Daphne, which here sends no faster than its clients read, and reads no more than it needs.

Daphne alone keeps in memory whatever a client does not read. Here an application's ``send`` waits until the client has
read what was sent before, so what waits is one frame and a transport's buffer (64 KB). A socket's application settles how
long it waits (``consumers``, 4408); the stream of an HTTP answer, which has no say in it, is cut off here.

What clients send is read in ``connections``.
"""

from __future__ import annotations

# Daphne before anything else of Twisted, for it chooses the event loop; then what sets Django up.
from daphne.server import Server as DaphneServer  # isort: skip
import mnesis_site.asgi as _set_up  # noqa: F401 # isort: skip

import asyncio
import socket
from functools import partial
from typing import Any

from daphne.cli import CommandLineInterface
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from mnesis_site.serving.connections import Body
from sessions_app.conf import site_config

MOST_UNTAKEN = 4
"""Frames of a client that wait for the application."""
SEND_BUFFER_BYTES = 65_536
"""Of the kernel, for one socket."""
CLOSE_SECONDS = 10.0
"""How long a socket that we close stays: a client that reads again finds out why."""


@implementer(IPushProducer)
class Gate:
    """Shut while a transport has more to send than its buffer is to hold: that is, while its client does not read."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    async def wait(self) -> None:
        """Wait until it is open."""
        await self._open.wait()

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self._open.clear()

    def resumeProducing(self) -> None:
        """The transport has sent what it had."""
        self._open.set()

    def stopProducing(self) -> None:
        """The connection is gone; what is sent to it goes nowhere and has to wait for nobody."""
        self._open.set()


class Inbox(asyncio.Queue[dict[str, Any]]):
    """What a client sent and the application has not taken yet: while it is much, nothing more is read."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self._protocol = protocol
        self._is_full = False

    def put_nowait(self, message: dict[str, Any]) -> None:
        """Take a message of the client."""
        super().put_nowait(message)
        if message["type"] == "websocket.receive" and self.qsize() >= MOST_UNTAKEN and not self._is_full:
            self._is_full = True
            self._protocol.transport.pauseProducing()

    async def get(self) -> dict[str, Any]:
        """The next message for the application."""
        message = await super().get()
        if self._is_full and self.qsize() < MOST_UNTAKEN:
            self._is_full = False
            self._protocol.transport.resumeProducing()
        return message


class Server(DaphneServer):  # type: ignore[misc]
    """See the module."""

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Inbox | Body:
        """Start the application with a bounded inbox, and return the inbox."""
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
                gate = _gate_of_socket(protocol)
                await super().handle_reply(protocol, message)
                await gate.wait()
            case "websocket.close":
                protocol.closeHandshakeTimeout = CLOSE_SECONDS
                await super().handle_reply(protocol, message)
            case "http.response.body" if protocol.channel is not None:
                await self._send_body(protocol, message)
            case _:
                await super().handle_reply(protocol, message)

    async def _send_body(self, request: Any, message: dict[str, Any]) -> None:
        if not message.get("more_body", False):
            if hasattr(request, "gate"):
                request.unregisterProducer()
            await super().handle_reply(request, message)
            return
        gate = _gate_of_answer(request)
        await super().handle_reply(request, message)
        try:
            async with asyncio.timeout(site_config().stream.slow_seconds):
                await gate.wait()
        except TimeoutError:
            request.channel.transport.abortConnection()


def _gate_of_socket(protocol: Any) -> Gate:
    if not hasattr(protocol, "gate"):
        # It began as an HTTP request, whose channel is what the transport tells until now.
        protocol.transport.unregisterProducer()
        protocol.gate = _gate(protocol.transport, protocol.transport)
    gate: Gate = protocol.gate
    return gate


def _gate_of_answer(request: Any) -> Gate:
    if not hasattr(request, "gate"):
        request.gate = _gate(request.channel.transport, request)
    gate: Gate = request.gate
    return gate


def _gate(transport: Any, consumer: Any) -> Gate:
    """A gate that is told how full a transport's buffer is."""
    gate = Gate()
    # Else the kernel would keep megabytes more.
    transport.getHandle().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    consumer.registerProducer(gate, True)
    return gate


class Program(CommandLineInterface):  # type: ignore[misc]
    """Daphne's command line, with our server."""

    server_class = Server


if __name__ == "__main__":
    Program.entrypoint()
