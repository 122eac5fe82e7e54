"""Answers of text are sent compressed to clients that take it so.

Not what streams, which is to go out as it comes, nor what has bytes of its own: ranges of files, and their downloads.
Against BREACH, which guesses a secret by how well it compresses beside a guess, Django adds random bytes to each answer
and masks the CSRF token anew in each page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from servestatic.middleware import AsyncServeStaticFileResponse

TEXT = (
    "text/",
    "application/json",
    "application/x-ndjson",
    "application/javascript",
    "application/manifest+json",
    "image/svg+xml",
)
"""How the types begin that are worth it."""


class Compression(GZipMiddleware):
    """Django's own, for answers that are worth it, and in a thread: a long page takes milliseconds."""

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on and compress the response."""
        response = await cast("Awaitable[HttpResponseBase]", self.get_response(request))
        if not is_compressible(response):
            return response
        return await asyncio.to_thread(super().process_response, request, response)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """The same where nothing is asynchronous, as in tests."""
        return super().process_response(request, response) if is_compressible(response) else response


def is_compressible(response: HttpResponseBase) -> bool:
    """Whether compressing a response makes it shorter and nothing of it wrong."""
    if response.streaming and not isinstance(response, AsyncServeStaticFileResponse):
        return False
    return response.status_code != 206 and response.headers.get("Content-Type", "").startswith(TEXT)
