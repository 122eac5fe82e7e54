"""Sessions in host mode, as stories use them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from agents_app.queries import list_inbox
from agents_app.turns import lifecycle
from agents_app.turns import runner as runner_module
from agents_app.turns.runner import runner
from mnesis_core.llm.interface import Request, ToolCall
from mnesis_core.records import SessionRecord, TurnRecord
from mnesis_core.turns.inbox import Draft, InboxMessage
from sessions_app.database.threads import db
from sessions_app.live import follow
from sessions_app.record.turn_queries import list_turns

Make = Callable[..., SessionRecord]
OTHERS = "somebody-else"
"""Who holds the lease of a turn of another process."""


@pytest.fixture(autouse=True)
def _hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a process that serves the web, and that looks for nothing that it was not called for."""
    monkeypatch.setattr(runner, "takes_messages", True)
    monkeypatch.setattr(runner_module, "SWEEP_SECONDS", 1_000.0)
    monkeypatch.setattr(runner, "_swept_at", time.monotonic())


@pytest.fixture
def host(alice: Any) -> Make:
    """Makes a session of Alice's in host mode."""

    def make(name: str, **values: Any) -> SessionRecord:
        return lifecycle.create_session(owner=alice, host_mode=True, peer_name=name, **values)

    return make


async def send(session: SessionRecord, text: str, **values: Any) -> InboxMessage:
    return await lifecycle.send_message(session.id, owner_id=session.owner_id, draft=Draft(text=text, **values))


async def turns_ended(session: SessionRecord, count: int) -> list[TurnRecord]:
    """The session's turns, oldest first, when so many have come to an end."""
    left = count
    async with asyncio.timeout(60), aclosing(follow(session.id, after=0)) as frames:  # type: ignore[type-var]
        async for frame in frames:
            left -= frame["type"] in lifecycle.TURN_ENDS
            if not left:
                break
    return (await db(list_turns, session.id))[::-1]


async def inbox(session: SessionRecord, **values: Any) -> list[InboxMessage]:
    return await db(list_inbox, session.id, **values)


def asked(request: Request) -> dict[str, Any]:
    """The newest message of a request."""
    message: dict[str, Any] = request.payload["messages"][-1]
    return message


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=f"call_{name}", name=name, arguments=json.dumps(arguments))


def offered(request: Request) -> set[str]:
    return {entry["function"]["name"] for entry in request.payload.get("tools", ())}
