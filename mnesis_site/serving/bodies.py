"""How much a request may send, how slowly, and in which encoding: asked in front of every HTTP endpoint, while the body comes in.

An application is handed no byte above the limit. For it a refused request is one whose client has left; the answer is
given here, in the shape of the endpoint, and the server closes the connection.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, HttpResponse, parse_cookie
from django.shortcuts import render
from django.utils.http import parse_header_parameters

from agents_app.endpoints.openai import openai_error
from audit_app.transfer.import_endpoints import FORM_BYTES
from mnesis_core.errors import InvalidRequest, MnesisError, NotSignedIn, RequestTimeout, RequestTooLarge
from mnesis_site.auth.callers import Application, Receive, Scope, Send, headers_of, proven_key
from mnesis_site.endpoints import refusal
from mnesis_site.errors import PROGRAM_PATHS, json_error
from sessions_app.conf import site_config
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db

GONE = {"type": "http.disconnect"}
CHARSETS = ("utf-8", "ascii", "iso8859-1")
"""By the names that Python gives them. The last one is what some clients write without thinking about it."""


class BodyLimits:
    """Bounds the body of every request to an application."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            check_content_type(headers_of(scope).get("content-type", ""))
        except InvalidRequest as error:
            await refuse(scope, error, send)
            return
        body = BoundedBody(scope, receive, send)
        try:
            await self.application(scope, body.receive, body.send)
        except Exception:
            if body.refusal is None:  # else it stumbled over the client that seemed to have left
                raise
        if body.refusal is not None:
            await refuse(scope, body.refusal, send)


class BoundedBody:
    """The two ends of one request, with its body bounded."""

    refusal: MnesisError | None = None
    """Why no more of it is read."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._web = site_config().web
        self._most, self._is_known = self._web.anonymous_bytes, False
        self._size, self._seconds, self._is_whole = 0, 0.0, False

    async def receive(self) -> dict[str, Any]:
        """The next piece of the body; what comes after it, as it is."""
        if self._is_whole:
            return await self._receive()
        if self.refusal is not None:
            return GONE
        try:
            return await self._next_piece()
        except Exception as error:
            self.refusal = to_error(error, asked=f"{self._scope['method']} {self._scope['path']}")
            return GONE

    async def send(self, message: dict[str, Any]) -> None:
        """Hand on what the application answers, once the body is read: a client that still sends may not see it."""
        while message["type"] == "http.response.start" and not self._is_whole and self.refusal is None:
            await self.receive()
        if self.refusal is None:
            await self._send(message)

    async def _next_piece(self) -> dict[str, Any]:
        if self._size == 0:
            await self._admit(declared_bytes(self._scope))
        message = await self._in_time()
        self._size += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        await self._admit(self._size)
        return message

    async def _admit(self, size: int) -> None:
        """Who asks is looked up only for a body that nobody unknown may send, and once."""
        if size > self._most and not self._is_known and await db(is_known, self._scope):
            self._is_known, self._most = True, most_bytes(self._scope["path"])
        if size > self._most:
            raise RequestTooLarge("" if self._is_known else anonymous_sentence(self._most))

    async def _in_time(self) -> dict[str, Any]:
        """Each byte earns a little time; what the application and the database take counts for nobody."""
        began = time.monotonic()
        allowed = self._web.body_seconds + self._size / self._web.body_bytes_per_second
        try:
            async with asyncio.timeout(allowed - self._seconds):
                return await self._receive()
        except TimeoutError:
            raise RequestTimeout() from None
        finally:
            self._seconds += time.monotonic() - began


def anonymous_sentence(most: int) -> str:
    """What somebody is told who sends much and is not known."""
    return f"Without a valid API key or session a request may send {most:,} bytes. {NotSignedIn().message}"


def declared_bytes(scope: Scope) -> int:
    """What a request says that its body has; 0 where it does not say."""
    length = headers_of(scope).get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else 0


def most_bytes(path: str) -> int:
    """The largest body that an endpoint takes from somebody who is known."""
    files = site_config().files
    match path.rstrip("/").split("/"):
        case ["", "api", "files"]:
            return files.largest_bytes + FORM_BYTES
        case ["", "api", "uploads", _]:
            return files.largest_bytes
        case ["", "api", "sessions", "import"]:
            return files.import_bytes + FORM_BYTES
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


def is_known(scope: Scope) -> bool:
    """Whether a request comes with a valid API key or session cookie. What it may do with it is the endpoint's to say."""
    headers = headers_of(scope)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme:
        return scheme.lower() == "bearer" and proven_key(token) is not None
    request = HttpRequest()
    request.session = SessionStore(parse_cookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME))
    return get_user(request).is_authenticated


def check_content_type(text: str) -> None:
    """Refuse what Django fails at when it reads the header, or later the fields of a form.

    Python's encodings are not all of text, and some that are raise whatever is done about errors.

    :raises InvalidRequest: the header cannot be read, or its ``charset`` is not one of ``CHARSETS``.
    """
    try:
        _, parameters = parse_header_parameters(text)
        charset = parameters.get("charset", "utf-8")
        is_read = charset.isascii() and codecs.lookup(charset).name in CHARSETS
    except (ValueError, LookupError):
        is_read = False
    if not is_read:
        raise InvalidRequest("The header Content-Type cannot be read, or names another charset than utf-8.")


async def refuse(scope: Scope, error: MnesisError, send: Send) -> None:
    """Answer in the shape of the endpoint, and with the end of the connection."""
    response = shaped(scope["path"], error)
    headers = {**response.headers, "Content-Length": str(len(response.content)), "Connection": "close"}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": raw})
    await send({"type": "http.response.body", "body": response.content})


def shaped(path: str, error: MnesisError) -> HttpResponse:
    """An error as the endpoint of this address says it."""
    if path.startswith("/v1/"):
        return openai_error(error)
    if path.startswith(("/rpc", "/mcp")):
        return refusal(error)
    if path.startswith(PROGRAM_PATHS):
        return json_error(error)
    return render(None, "error.html", {"error": error}, status=error.status)
