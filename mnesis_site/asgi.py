"""The ASGI application: pages and the API over HTTP, sessions over websockets, and a clean end."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from contextlib import suppress
from typing import cast

from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.signals import request_started
from django.db import close_old_connections, reset_queries
from django.urls import path, re_path
from twisted.internet.defer import Deferred

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mnesis_site.settings")
# A process that imports this module serves the web; the settings ask (a connection pool is for web processes only).
os.environ.setdefault("MNESIS_ROLE", "web")
http_application = get_asgi_application()
# A request's thread is its own and has no connection yet, so there is nothing to do at its beginning, for which Django would
# make that thread and wait for it.
request_started.disconnect(close_old_connections)
request_started.disconnect(reset_queries)

# Below, because these import models, and there are none before the line above.
from agents_app.endpoints.socket import SessionConsumer  # noqa: E402
from agents_app.turns.runner import runner  # noqa: E402
from mnesis_core.providers.litellm_ import warm_up  # noqa: E402
from mnesis_site import endpoints, readiness  # noqa: E402
from mnesis_site.bodies import BodyLimits  # noqa: E402
from mnesis_site.middleware import NamedRequests  # noqa: E402
from sessions_app.callers import Application, Receive, Scope, Send, SocketAuth  # noqa: E402
from sessions_app.conf import has_real_models  # noqa: E402
from sessions_app.database.threads import AWAY, db, request_thread  # noqa: E402


async def no_such_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse an unknown path with our close code; a refusal before the accept could only say HTTP 403."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": 4404})


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one HTTP request. Its thread holds a database connection only while it runs: a stream stays open for hours."""
    if scope["path"] in endpoints.MCP_PATHS:
        await endpoints.answer_mcp(scope, receive, send)
        return
    if scope["path"] in readiness.PROBES:
        await readiness.answer_probe(scope, send)
        return
    async with request_thread():
        await cast(Application, http_application)(scope, receive, send)


async def begin() -> None:
    """Prepare a web process: recover turns, take waiting messages, report missing guards, load the large libraries."""
    runner.takes_messages = True
    runner.start_heartbeat()
    await db(readiness.report_unguarded)
    if settings.WARM_UP:
        with suppress(*AWAY):  # then the first question warms up
            if await db(has_real_models):
                await warm_up()
        await endpoints.load_mcp()
    settle()


def settle() -> None:
    """Make the garbage collector skip what is loaded by now: it stays, and scanning it costs each turn a tenth."""
    gc.collect()
    gc.freeze()


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    """Begin and end with a server that reports its start and end (uvicorn)."""
    while True:
        message = await receive()
        await (begin() if message["type"] == "lifespan.startup" else runner.shutdown())
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def begin_and_end_with_daphne() -> None:
    """Begin and end with Daphne's event loop, since Daphne has no lifespan."""
    # Only where Daphne chose the loop already: importing this module elsewhere would choose another one.
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None:
        reactor.callWhenRunning(lambda: asyncio.ensure_future(begin()))
        reactor.addSystemEventTrigger(
            "before", "shutdown", lambda: Deferred.fromFuture(asyncio.ensure_future(runner.shutdown()))
        )


routes = URLRouter(
    [path("ws/sessions/<str:session_id>", SessionConsumer.as_asgi()), re_path(r"", no_such_socket)]  # type: ignore[arg-type]
)
application = ProtocolTypeRouter(
    {"http": NamedRequests(BodyLimits(answer)), "websocket": SocketAuth(routes), "lifespan": lifespan}
)
begin_and_end_with_daphne()
