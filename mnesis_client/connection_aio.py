"""What a client does over its connections, for code with async and await."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Any, Self, cast

import httpx

from mnesis_client.errors import ConnectionFailed
from mnesis_client.requests import Request
from mnesis_client.streams import ATTEMPTS, PAUSE_SECONDS, READ_SECONDS, error_in
from mnesis_client.values import Page


class AsyncConnection:
    """One server, asked with one key. Close it, or use it as a context manager."""

    def __init__(self, url: str, *, key: str, timeout_seconds: float = 60.0) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._following = httpx.Timeout(timeout_seconds, read=READ_SECONDS)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _all(self, request: Request, *, place: str = "cursor", first: int | None = None) -> AsyncIterator[Any]:
        """The items of every page."""
        cursor: str | int | None = first
        while True:
            page = cast(Page[Any], await self._send(request.at(place, cursor)))
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def _send(self, request: Request) -> Any:
        return read_answer(await self._answer(request))

    async def _answer(self, request: Request) -> httpx.Response:
        """What a request is answered.

        :raises MnesisError: an error
        """
        left = ATTEMPTS if request.is_safe else 1
        while True:
            left -= 1
            try:
                answer = await self._http.request(
                    request.method,
                    request.path,
                    params=request.params,
                    json=request.body,
                    headers=request.headers,
                    content=request.content,
                    data=request.form,
                    files=request.attached,
                )
            except httpx.TransportError as problem:
                if not left:
                    raise ConnectionFailed(str(problem)) from problem
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return answer if answer.is_success else read_answer(answer)

    async def _pieces(self, request: Request) -> AsyncGenerator[bytes, None]:
        try:
            async with self._http.stream(request.method, request.path, params=request.params) as answer:
                if not answer.is_success:
                    await answer.aread()
                    read_answer(answer)
                async for piece in answer.aiter_bytes():
                    yield piece
        except httpx.TransportError as problem:
            raise ConnectionFailed(str(problem)) from problem


def read_answer(answer: httpx.Response) -> Any:
    """The JSON of a good answer.

    :raises MnesisError: it is none
    """
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_success and body is not None:
        return body
    raise error_in(body, answer.status_code)
