"""Sending requests to one server with one key."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from types import TracebackType
from typing import Any, Self, cast

import httpx

from mnesis_client import requests
from mnesis_client.errors import ConnectionFailed, read_answer
from mnesis_client.requests import Request
from mnesis_client.streams import ATTEMPTS, PAUSE_SECONDS, READ_SECONDS, Follower
from mnesis_client.values import Frame, Message, Page


class Connection:
    """One server, asked with one key. Close it, or use it as a context manager."""

    def __init__(self, url: str, *, key: str, timeout_seconds: float = 60.0) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._follow_timeout = httpx.Timeout(timeout_seconds, read=READ_SECONDS)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _send(self, request: Request) -> Any:
        return read_answer(self._answer(request))

    def _items(self, request: Request) -> list[Any]:
        return cast(list[Any], (self._send(request))["items"])

    def _pages(self, request: Request, *, parameter: str = "cursor", first: int | None = None) -> Iterator[Any]:
        """Yield the items of every page."""
        cursor: str | int | None = first
        while True:
            page = cast(Page[Any], self._send(request.page(parameter, cursor)))
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _answer(self, request: Request) -> httpx.Response:
        """Return a successful answer. A safe request is sent again after a lost connection.

        :raises MnesisError: the server answers an error
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

    def _bytes(self, request: Request) -> Generator[bytes, None]:
        """Yield the body of an answer as it arrives."""
        try:
            with self._http.stream(request.method, request.path, params=request.params) as answer:
                if not answer.is_success:
                    answer.read()
                    read_answer(answer)
                for piece in answer.iter_bytes():
                    yield piece
        except httpx.TransportError as problem:
            raise ConnectionFailed(str(problem)) from problem

    def _frames(self, session_id: str, follower: Follower) -> Generator[Frame, None]:
        """Yield the frames of a session without end, over as many connections as it takes."""
        while True:
            try:
                with closing(self._frames_of_connection(session_id, follower)) as frames:
                    for frame in frames:
                        yield frame
            except httpx.TransportError as problem:
                if not follower.lost():
                    raise ConnectionFailed(str(problem)) from problem
            time.sleep(PAUSE_SECONDS)

    def _frames_of_connection(self, session_id: str, follower: Follower) -> Generator[Frame, None]:
        request = requests.get("sessions", session_id, "events", after=follower.seq)
        headers = {"Accept": "text/event-stream"}
        with self._http.stream(
            "GET", request.path, params=request.params, headers=headers, timeout=self._follow_timeout
        ) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                read_answer(answer)
            for line in answer.iter_lines():
                frame = follower.read(line)
                if frame is None:
                    continue
                if seq := follower.missed(frame):
                    for text in follower.missed_texts(self._message(session_id, seq)):
                        yield text
                yield frame
        raise httpx.ReadError("the server ended the stream")

    def _message(self, session_id: str, seq: int) -> Message:
        [message] = self._items(requests.get("sessions", session_id, "messages", after=seq - 1, limit=1))
        return cast(Message, message)
