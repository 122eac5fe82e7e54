"""Compression of text responses.

Streams are not compressed, since they must go out as they come, nor are ranges of files and downloads. Against BREACH,
which guesses a secret by how well it compresses beside a guess, Django adds random bytes to each response and masks the
CSRF token anew in each page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

from django.http import HttpRequest, HttpResponse
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


class Compression(GZipMiddleware):
    """Django's own, limited to compressible responses and run in a thread: a long page takes milliseconds."""

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        response = await cast("Awaitable[HttpResponseBase]", self.get_response(request))
        if isinstance(response, AsyncServeStaticFileResponse) and is_sent_whole(request, response):
            response = await in_one(response)
        if not is_compressible(response):
            return response
        return await asyncio.to_thread(super().process_response, request, response)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return super().process_response(request, response) if is_compressible(response) else response


def is_compressible(response: HttpResponseBase) -> bool:
    is_text = response.headers.get("Content-Type", "").startswith(TEXT)
    return is_text and not response.streaming and response.status_code != 206


def is_sent_whole(request: HttpRequest, response: HttpResponseBase) -> bool:
    return (
        request.method == "GET" and response.status_code == 200 and "gzip" in request.headers.get("Accept-Encoding", "")
    )


async def in_one(response: AsyncServeStaticFileResponse) -> HttpResponse:
    # Django compresses each piece of a stream by itself, and browsers read only the first one.
    content = b"".join([piece async for piece in response])
    return HttpResponse(content, headers=response.headers)
