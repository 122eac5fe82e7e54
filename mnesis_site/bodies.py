"""Bodies: limits on the size, speed and encoding of a request's, and the compression of a response's.

An application never gets a byte above a limit. To the application, a refused request is one whose client has left;
the response is sent here, in the endpoint's format, and the server closes the connection.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Awaitable
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, HttpResponse, parse_cookie
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render
from django.utils.http import parse_header_parameters
from servestatic.middleware import AsyncServeStaticFileResponse

from audit_app.api import FORM_BYTES
from mnesis_core.errors import InvalidRequest, MnesisError, NotSignedIn, RequestTimeout, RequestTooLarge
from mnesis_site.endpoints import refusal
from mnesis_site.errors import PROGRAM_PATHS, program_error, send_response
from sessions_app.callers import Application, Receive, Scope, Send, headers_of, prove
from sessions_app.conf import site_config
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db

GONE = {"type": "http.disconnect"}
CHARSETS = ("utf-8", "ascii", "iso8859-1")  # by Python's names; some clients send the last one by default
COMPRESSIBLE = (
    "text/",
    "application/json",
    "application/x-ndjson",
    "application/javascript",
    "application/manifest+json",
    "image/svg+xml",
)


class BodyLimits:
    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            check_content_type(headers_of(scope).get("content-type", ""))
        except InvalidRequest as error:
            await refuse(scope, error, send)
            return
        scope = {**scope, "proof": {}}
        body = BoundedBody(scope, receive, send)
        try:
            await self.application(scope, body.receive, body.send)
        except Exception:
            if body.refusal is None:  # otherwise the application failed because the client seemed to have left
                raise
        if body.refusal is not None:
            await refuse(scope, body.refusal, send)


class BoundedBody:
    # Why no more of the body is read.
    refusal: MnesisError | None = None

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._web = site_config().web
        self._most, self._is_known = self._web.anonymous_bytes, False
        self._size, self._seconds, self._is_whole = 0, 0.0, False

    async def receive(self) -> dict[str, Any]:
        if self._is_whole:
            return await self._receive()
        if self.refusal is not None:
            return GONE
        try:
            if self._size == 0:
                declared = headers_of(self._scope).get("content-length", "")
                is_number = declared.isascii() and declared.isdecimal() and len(declared) < 19
                await self._admit(int(declared) if is_number else 0)
            # Each byte earns a little time. The time of the application and the database does not count.
            began = time.monotonic()
            allowed = self._web.body_seconds + self._size / self._web.body_bytes_per_second
            try:
                async with asyncio.timeout(allowed - self._seconds):
                    message = await self._receive()
            except TimeoutError:
                raise RequestTimeout() from None
            finally:
                self._seconds += time.monotonic() - began
            self._size += len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            await self._admit(self._size)
            return message
        except Exception as error:
            self.refusal = to_error(error, asked=f"{self._scope['method']} {self._scope['path']}")
            return GONE

    async def send(self, message: dict[str, Any]) -> None:
        # A client that is still sending may not see a response, so the body is read first.
        while message["type"] == "http.response.start" and not self._is_whole and self.refusal is None:
            await self.receive()
        if self.refusal is None:
            await self._send(message)

    async def _admit(self, size: int) -> None:
        # The caller is looked up once, and only for a body that unknown callers may not send.
        if size > self._most and not self._is_known and await db(is_known, self._scope):
            self._is_known, self._most = True, most_bytes(self._scope["path"])
        if size > self._most:
            told = (
                f"Without a valid API key or session a request may send {self._most:,} bytes. {NotSignedIn().message}"
            )
            raise RequestTooLarge("" if self._is_known else told)


def most_bytes(path: str) -> int:
    files = site_config().files
    match path.rstrip("/").split("/"):
        case ["", "api", "files"]:
            return files.largest_bytes + FORM_BYTES
        case (
            ["", "api", "projects" | "assistants", _, "files"]
            | ["", "assistants", "add"]
            | ["", "assistants", _, "change"]
        ):
            return files.largest_bytes + FORM_BYTES
        case ["", "api", "uploads", _]:
            return files.largest_bytes
        case ["", "api", "sessions", "import"]:
            return files.import_bytes + FORM_BYTES
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


def is_known(scope: Scope) -> bool:
    """Say whether a request comes with a valid API key or session cookie. The endpoint decides what it may do.

    The proof of a key stays with the request, so that the endpoint need not ask for it again.
    """
    headers = headers_of(scope)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if key := token if scheme else headers.get("x-api-key"):
        scope["proof"]["of_key"] = prove(key) if scheme.lower() in ("bearer", "") else None
        return scope["proof"]["of_key"] is not None
    request = HttpRequest()
    request.session = SessionStore(parse_cookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME))
    return get_user(request).is_authenticated


def check_content_type(text: str) -> None:
    """Refuse what Django fails on when it reads the header, or later the fields of a form.

    Python's encodings include some that are not of text, and some that raise whatever the error handler is.

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
    path = scope["path"]
    if path.startswith(("/rpc", "/mcp")):
        response = refusal(error)
    elif path.startswith(PROGRAM_PATHS):
        response = program_error(path, error)
    else:
        response = render(None, "errors/error.html", {"error": error}, status=error.status)
    response.headers["Content-Length"] = str(len(response.content))
    response.headers["Connection"] = "close"
    await send_response(response, send)


class Compression(GZipMiddleware):
    """Django's own, limited to compressible responses and run in a thread: a long page takes milliseconds."""

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        response = await cast("Awaitable[HttpResponseBase]", self.get_response(request))
        is_whole = request.method == "GET" and response.status_code == 200
        takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        if isinstance(response, AsyncServeStaticFileResponse) and is_whole and takes_gzip:
            # Django compresses each piece of a stream by itself, and browsers read only the first one.
            content = b"".join([piece async for piece in response])
            response = HttpResponse(content, headers=response.headers)
        if not is_compressible(response):
            return response
        return await asyncio.to_thread(super().process_response, request, response)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return super().process_response(request, response) if is_compressible(response) else response


def is_compressible(response: HttpResponseBase) -> bool:
    # Streams must go out as they come; ranges count the bytes of the file. Django adds random bytes, and masks CSRF tokens,
    # against BREACH.
    is_text = response.headers.get("Content-Type", "").startswith(COMPRESSIBLE)
    return is_text and not response.streaming and response.status_code != 206
