"""An answer that streams while the database is away: what could not be written is written later, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError

from agents_app.turns.claim import claim_turn
from agents_app.turns.transactions import Answer, held
from mnesis_core.config import StreamConfig
from mnesis_core.llm.interface import Request
from mnesis_core.messages import Message
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import SessionRecord, TurnRecord
from sessions_app.database.threads import db
from sessions_app.record import message_store
from sessions_app.record.message_queries import journal_texts

pytestmark = pytest.mark.both_databases

SAID = "Rain fell on the roof all night, and the cat slept through all of it."
ASKED = Request(payload={"messages": [{"role": "user", "content": "Go"}]}, max_output_tokens=100)


@pytest.mark.parametrize("is_committed", [False, True])
async def test_what_the_journal_did_not_take_is_in_it_later_once(
    session: SessionRecord, script: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    write, outages = message_store.append_journal, 3

    def break_off(**values: Any) -> None:
        nonlocal outages
        outages -= 1
        if outages < 0 or is_committed:
            write(**values)
        if outages >= 0:
            raise OperationalError("the server closed the connection")

    monkeypatch.setattr(message_store, "append_journal", break_off)
    _, message_id = await db(begin_answer, session)
    config = replace(StreamConfig(), journal_bytes=1)
    answer = Answer(
        session_id=session.id, message_id=message_id, config=config, made_by=dict, owner_id=session.owner_id
    )
    await answer.stream(script(SAID), ASKED)
    await answer.flush()
    assert outages < -1
    assert [text.text for text in await db(journal_texts, session.id, message_id=message_id)] == [SAID]


def begin_answer(session: SessionRecord) -> tuple[TurnRecord, str]:
    """A running turn, and the id of its answer."""
    turn = claim_turn(
        session.id, owner_id=session.owner_id, message="Go", idempotency_key=None, lease_owner="here"
    ).turn
    with held(turn) as record:
        return turn, message_store.append_message(record, turn_id=turn.id, message=Message(role="assistant", parts=()))
