"""What a web server serves: pages and the API over HTTP, sessions over websockets, and a clean end."""

from __future__ import annotations

import os
import sys

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mnesis_site.settings")
# Whoever imports this module serves the web; the settings ask (a connection pool is for web processes only).
os.environ.setdefault("MNESIS_ROLE", "web")
http_application = get_asgi_application()

# Below, because these import models, and there are none before the line above.
from mnesis_site.auth import Receive, Scope, Send, SocketAuth  # noqa: E402


async def no_such_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse an unknown path with our close code; a refusal before the accept could only say HTTP 403."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": 4404})


async def end_turns() -> None:
    """What a web process does before it ends."""


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    """Servers that tell of their start and end (uvicorn)."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await end_turns()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def end_turns_with_daphne() -> None:
    """Daphne has no lifespan; its event loop has a moment before the end instead."""
    # Only where Daphne chose the loop already: importing this module elsewhere would choose another one.
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None:
        from asyncio import ensure_future

        from twisted.internet.defer import Deferred

        reactor.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromFuture(ensure_future(end_turns())))


sockets = SocketAuth(URLRouter([re_path(r"", no_such_socket)]))  # type: ignore[arg-type]
application = ProtocolTypeRouter({"http": http_application, "websocket": sockets, "lifespan": lifespan})
end_turns_with_daphne()
