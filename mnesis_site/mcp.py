"""``/mcp``: the Model Context Protocol over streamable HTTP, for programs with a key.

Each request stands alone, so that any web process may answer it: nothing is kept between two, and a GET, which would
wait for messages of a kept session, is not there. Beside Django's own application, whose middleware it does not pass.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from agents_app.endpoints.jsonrpc import failure, write
from mnesis_core.errors import InvalidRequest, MnesisError, NotSignedIn, PermissionDenied
from mnesis_site.auth.callers import Application, Receive, Scope, Send, headers_of, holder_of, origin_is_ours
from mnesis_site.errors import pause_header
from sessions_app.callers import Caller
from sessions_app.database import threads
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db

PATHS = ("/mcp", "/mcp/")


async def load() -> ModuleType:
    """The part that needs the protocol's package, whose import takes a second; in a thread, for others go on."""
    return await threads.load("mnesis_site.mcp_requests")


class McpDoor:
    """Answers ``/mcp`` itself, and leaves every other path to another application."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["path"] not in PATHS:
            await self.application(scope, receive, send)
            return
        try:
            caller = await _admit(scope)
        except Exception as exception:
            await _refuse(to_error(exception, asked="MCP"), send)
            return
        if scope["method"] != "POST":
            await _refuse(InvalidRequest("Only POST is answered here."), send, status=405, headers={"Allow": "POST"})
            return
        await (await load()).serve({**scope, "caller": caller}, receive, send)


async def _admit(scope: Scope) -> Caller:
    headers = headers_of(scope)
    host = headers.get("host", "")
    domain, _ = split_domain_port(host)
    if not validate_host(domain, settings.ALLOWED_HOSTS):
        raise InvalidRequest()
    if "origin" in headers and not origin_is_ours(headers["origin"], host=host):
        raise PermissionDenied("Pages of other sites may not ask here.")
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise NotSignedIn()
    return await db(holder_of, token)


async def _refuse(error: MnesisError, send: Send, *, status: int = 0, headers: dict[str, str] | None = None) -> None:
    """Send an error found before any message was read, in the protocol's shape and with its HTTP status."""
    extra = (
        (headers or {})
        | pause_header(error)
        | ({"WWW-Authenticate": "Bearer"} if isinstance(error, NotSignedIn) else {})
    )
    raw: list[Any] = [(name.encode(), value.encode()) for name, value in extra.items()]
    raw.append((b"Content-Type", b"application/json"))
    await send({"type": "http.response.start", "status": status or error.status, "headers": raw})
    await send({"type": "http.response.body", "body": write(failure(None, error)).encode()})
