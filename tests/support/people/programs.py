"""A program of a user, which asks an endpoint of chats in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient


class Program:
    """A program with a key, at one address."""

    def __init__(self, key: str, path: str) -> None:
        self.http = AsyncClient(raise_request_exception=False)
        self.path = path
        self.headers = {"Authorization": f"Bearer {key}"}

    async def get(self, path: str) -> Any:
        return await self.http.get(path, headers=self.headers)

    async def post(self, path: str = "", *, session: str = "", **body: Any) -> Any:
        headers = self.headers | ({"X-Mnesis-Session": session} if session else {})
        return await self.http.post(
            path or self.path, data=json.dumps(body), content_type="application/json", headers=headers
        )

    async def ask(self, text: str, *, session: str = "", stream: bool = False, **body: Any) -> Any:
        """Return the response to one question of Chat Completions or Messages."""
        asked = {"model": "demo", "messages": [{"role": "user", "content": text}], "stream": stream} | body
        return await self.post(session=session, **asked)


@pytest.fixture
async def no_connection_left() -> AsyncIterator[None]:
    """Close the connection of the thread in which the test client lets a key be checked."""
    yield
    await sync_to_async(connections.close_all)()
