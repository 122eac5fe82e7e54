"""A program whose requests go through the gateway, and what the record has of them."""

from __future__ import annotations

import asyncio
from typing import Any

from django.contrib.auth.models import User

from mnesis_core.records import SessionRecord, TurnRecord
from sessions_app.database.threads import db
from sessions_app.record.branch_queries import path_in
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.record.turn_queries import list_turns
from tests.support.people.programs import Program
from tests.support.people.story import spoken
from tests.support.waiting import PATIENCE_SECONDS

PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}


class Client(Program):
    """A program that sends its whole history through the gateway."""

    def __init__(self, key: str, path: str, **more: Any) -> None:
        super().__init__(key, path)
        self.headers = self.headers | {"X-Mnesis-Mode": "gateway"}
        self.more = more

    async def send(self, messages: list[Any], **more: Any) -> Any:
        body = {"model": "raw", "max_tokens": 500, "messages": messages, "system": "Be brief."} | self.more | more
        return await self.post(**body)

    async def raw(self, data: bytes, path: str = "", **headers: str) -> Any:
        return await self.http.post(
            path or self.path, data=data, content_type="application/json", headers=self.headers | headers
        )


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def said(content: Any) -> Any:
    return {"role": "assistant", "content": content}


def text(content: str) -> Any:
    return {"type": "text", "text": content}


async def content_of(response: Any) -> bytes:
    if not response.streaming:
        return bytes(response.content)
    return b"".join([piece async for piece in response.streaming_content])


async def sessions_of(owner: User) -> list[SessionRecord]:
    found = await db(list_sessions, owner_id=owner.pk, limit=50)
    return sorted(found.items if hasattr(found, "items") else found, key=lambda one: one.id)


async def path_of(session_id: str) -> list[tuple[str, str]]:
    """Who said what on the chosen branch."""

    def read() -> list[tuple[str, str]]:
        session = load_session(session_id)
        return [(one.role, spoken(one)) for one in load_messages(session.id, limit=500, path=path_in(session))]

    return await db(read)


async def settled(session_id: str) -> list[TurnRecord]:
    """The turns of a session when none of them runs, oldest first."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            turns = await db(list_turns, session_id)
            if all(turn.state != "running" for turn in turns):
                return turns[::-1]
            await asyncio.sleep(0.01)
