"""Turns whose process died: closed by the process that comes next, with everything that was said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.utils import timezone

from agents_app.turns import transactions
from agents_app.turns.claim import claim_turn, recover_turn, recover_turns
from agents_app.turns.transactions import TurnEnd
from mnesis_core.config import StreamConfig
from mnesis_core.errors import Conflict
from mnesis_core.llm import interface as llm
from mnesis_core.messages import CitationPart, Message, ProviderToolPart, ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.records import SessionRecord, TurnRecord, TurnState, UsageRecord
from sessions_app.database.threads import db
from sessions_app.models import StreamJournal, Turn
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_live_texts, load_message_rows, load_messages
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_turn
from tests.agents_app.turns.test_answers_in_an_outage import begin_answer
from tests.support.people.story import say, spoken

pytestmark = pytest.mark.both_databases


@pytest.fixture
def left_behind(session: SessionRecord) -> TurnRecord:
    """A turn whose process died while it streamed, with a tool call that never got its result."""
    started = claim_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key=None, lease_owner="dead")
    turn_id = started.turn.id
    with change(session.id) as record:
        called = message_store.append_message(record, turn_id=turn_id, message=Message(role="assistant", parts=()))
        message_store.append_parts(record, message_id=called, parts=[ToolPart(tool_name="t", tool_call_id="c")])
        stub = message_store.append_message(record, turn_id=turn_id, message=Message(role="assistant", parts=()))
        turn_store.start_call(
            record,
            turn_id=turn_id,
            message_id=stub,
            model="demo",
            provider_model="demo/chat",
            parameters={},
            manifest=[],
            context_seq=1,
            digest="0" * 64,
            estimated_tokens=1,
        )
    pieces = [
        message_store.Piece(part_index=0, part_type="reasoning", offset=0, text="hm "),
        message_store.Piece(part_index=1, part_type="text", offset=0, text="half \x00"),
        message_store.Piece(part_index=1, part_type="text", offset=6, text=" an answer"),
    ]
    message_store.append_journal(session_id=session.id, message_id=stub, pieces=pieces)
    Turn.objects.filter(id=turn_id).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    return started.turn


def test_what_was_streamed_is_kept_and_the_end_is_visible(session, left_behind):
    assert recover_turns(lease_owner="me") == 1
    turn = load_turn(left_behind.id, session_id=session.id)
    assert (turn.state, turn.error_code) == (TurnState.INTERRUPTED, "TURN_INTERRUPTED")
    _, called, answer = load_messages(session.id)
    assert [stored.part for stored in answer.parts] == [
        ReasoningPart(text="hm "),
        TextPart(text="half \x00 an answer"),
    ]
    ended = load_message_rows(session.id, [answer.id])[answer.id]
    assert (ended.finalized_at is not None, ended.outcome, ended.error_code) == (True, "broken", "TURN_INTERRUPTED")
    tool = called.parts[0].part
    assert isinstance(tool, ToolPart)
    assert (tool.state, tool.output) == (ToolState.ERROR, None)
    assert StreamJournal.objects.count() == 0
    assert load_session(session.id).running_turn_id is None


@dataclass
class Dying:
    """A model whose process dies once it has said something."""

    said: Sequence[llm.Delta]
    spec: llm.ModelSpec

    async def stream(self, request: llm.Request) -> AsyncIterator[llm.Item]:
        for item in self.said:
            yield item
        await asyncio.sleep(2 * StreamConfig().journal_seconds)
        raise asyncio.CancelledError


async def test_sources_and_searches_that_came_whole_are_kept_too_and_are_no_text_for_followers(session):
    search = ProviderToolPart(provider="openai", tool_name="web_search", tool_call_id="ws", output="found \x00 \ud800")
    source = CitationPart(title="Tide tables", url="https://example.org/tides", start=0, end=4, provider="openai")
    said = (search, llm.TextDelta(text="Noon"), source, llm.OpaqueBlock(kind="reasoning", data="{}"))
    turn, message_id = await db(begin_answer, session)
    made_by = {"provider": "openai", "model": "", "prompt": ""}
    answer = transactions.Answer(
        session_id=session.id,
        message_id=message_id,
        config=StreamConfig(),
        made_by=lambda: made_by,
        owner_id=session.owner_id,
    )
    spec = llm.ModelSpec(alias="dying", litellm_model="x/dying", context_window=8_000, max_output_tokens=900)
    with pytest.raises(asyncio.CancelledError):
        await answer.stream(Dying(said, spec), llm.Request(payload={}, max_output_tokens=1))
    assert [text.text for text in await db(load_live_texts, session.id)] == ["Noon"]
    await db(Turn.objects.filter(id=turn.id).update, lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert await db(recover_turns, lease_owner="me") == 1
    kept = (await db(load_messages, session.id))[-1]
    assert [stored.part for stored in kept.parts] == [search, TextPart(text="Noon"), source]


def test_two_processes_that_recover_at_once_do_it_once(session, left_behind):
    assert recover_turn(session.id, left_behind.id, lease_owner="one")
    assert not recover_turn(session.id, left_behind.id, lease_owner="two")


def test_a_turn_that_lives_is_left_alone(session, left_behind):
    Turn.objects.filter(id=left_behind.id).update(lease_expires_at=timezone.now() + timedelta(seconds=60))
    assert recover_turns(lease_owner="me") == 0
    assert load_turn(left_behind.id, session_id=session.id).state == TurnState.RUNNING


def test_a_process_that_was_only_asleep_cannot_write_over_the_recovery(session, left_behind):
    recover_turns(lease_owner="me")
    before = load_messages(session.id)
    with pytest.raises(Conflict):
        transactions.finish_turn(left_behind, TurnEnd(state=TurnState.COMPLETED), step=None, usage=UsageRecord())
    with pytest.raises(Conflict), transactions.held(left_behind) as record:
        message_store.append_message(
            record, turn_id=left_behind.id, message=Message(role="assistant", parts=(TextPart(text="late"),))
        )
    assert load_messages(session.id) == before


async def test_the_next_message_recovers_the_session_by_itself(session, left_behind, script):
    script("Here I am.")
    turn = await say(session, "Are you there?")
    assert turn.state == TurnState.COMPLETED
    assert (await db(load_turn, left_behind.id, session_id=session.id)).state == TurnState.INTERRUPTED
    assert spoken((await db(load_messages, session.id))[-1]) == "Here I am."
