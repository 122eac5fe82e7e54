"""A session for the inspector's timeline: turns that failed, called tools and were compacted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import User
from django.test import Client

from compaction_app import store as compaction_store
from mnesis_core.messages import TextPart
from mnesis_core.records import TurnState
from sessions_app.models import MessagePart, Turn
from sessions_app.record.change import change
from tests.support.record.inspected import add_summary, add_turn, claim, finish, tool_part
from tests.support.record.talks import new_session, say

Ask = Callable[[str], str]
"""Gives the text of the page at an address."""


@dataclass(frozen=True, kw_only=True)
class Voyage:
    """A session of four turns: the second failed, the others called a tool; after the third a compaction."""

    id: str
    run: str
    part: str
    """The tool call of the first turn, whose output was pruned."""
    turn: str
    """The first turn."""

    def at(self, path: str) -> str:
        """An address of its inspector."""
        return f"/sessions/{self.id}/inspect/{path.format(turn=self.turn, run=self.run, part=self.part)}"


def sail(owner: User, *, title: str = "Harbour survey") -> Voyage:
    session_id = new_session(owner, title=title)
    first = add_turn(session_id, "Read the log of the north port.", tool_part())
    say(
        session_id,
        ("user", [TextPart(text="And now the weather.")]),
        state=TurnState.FAILED,
        error_code="MODEL_RATE_LIMITED",
        error_message="The model wants a pause.",
    )
    add_turn(session_id, "Once more.", tool_part(call_id="c3"), TextPart(text="As before."))
    part = MessagePart.objects.get(message_id=first[1], part_type="tool").id
    run = claim(session_id)
    with change(session_id) as record:
        compaction_store.prune(record, run.id, [part], tokens=900)
    add_summary(session_id, run, first, (1, 2))
    finish(session_id, run)
    add_turn(session_id, "Anything else?", tool_part(call_id="c4"))
    turn = Turn.objects.get(session_id=session_id, seq=1).id
    return Voyage(id=session_id, run=run.id, part=part, turn=turn)


@pytest.fixture
def voyage(owner: User) -> Voyage:
    return sail(owner)


@pytest.fixture
def ask(owner_client: Client) -> Ask:
    """A page that must be there."""

    def get(path: str) -> str:
        answer = owner_client.get(path)
        assert answer.status_code == 200, answer.status_code
        return answer.content.decode()

    return get
