"""Requests of ``/mcp``, served by MCP's own package; a module of its own, since importing that takes a second."""

from __future__ import annotations

from typing import cast

from django.conf import settings
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette import types
from starlette.requests import Request

from agents_app.endpoints.mcp_server import Context, make_server
from sessions_app.callers import Caller, Receive, Scope, Send


async def _caller_of(context: Context) -> Caller:
    caller: Caller = cast(Request, context.request).scope["caller"]
    return caller


SERVER = make_server(_caller_of)


async def serve(scope: Scope, receive: Receive, send: Send) -> None:
    # A manager for each request: it keeps nothing, and lives in this task alone, so no server's lifespan is needed.
    manager = StreamableHTTPSessionManager(
        SERVER, stateless=True, max_request_body_size=settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    )
    async with manager.run():
        await manager.handle_request(scope, cast(types.Receive, receive), cast(types.Send, send))
