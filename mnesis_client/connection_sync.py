"""What a client does over its connections. Made from connection_aio.py: do not edit."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Any, Self, cast

import httpx

from mnesis_client.errors import ConnectionFailed
from mnesis_client.requests import Request
from mnesis_client.streams import ATTEMPTS, PAUSE_SECONDS, READ_SECONDS, error_in
from mnesis_client.values import Page


class Connection:
    """One server, asked with one key. Close it, or use it as a context manager."""

    def __init__(self, url: str, *, key: str, timeout_seconds: float = 60.0) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._following = httpx.Timeout(timeout_seconds, read=READ_SECONDS)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _all(self, request: Request, *, place: str = "cursor", first: int | None = None) -> Iterator[Any]:
        """The items of every page."""
        cursor: str | int | None = first
        while True:
            page = cast(Page[Any], self._send(request.at(place, cursor)))
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _send(self, request: Request) -> Any:
        return read_answer(self._answer(request))

    def _answer(self, request: Request) -> httpx.Response:
        """What a request is answered.

        :raises MnesisError: an error
        """
        left = ATTEMPTS if request.is_safe else 1
        while True:
            left -= 1
            try:
                answer = self._http.request(
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
                time.sleep(PAUSE_SECONDS)
            else:
                return answer if answer.is_success else read_answer(answer)

    def _pieces(self, request: Request) -> Generator[bytes, None, None]:
        try:
            with self._http.stream(request.method, request.path, params=request.params) as answer:
                if not answer.is_success:
                    answer.read()
                    read_answer(answer)
                for piece in answer.iter_bytes():
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
