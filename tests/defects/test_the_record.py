"""Defects 16, 17, 28, 36 and 37 of the reference library: half commits, loose ends, silent events, the clock."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents_app.turns import lifecycle
from compaction_app.models import SummaryEdge, SummaryNode
from mnesis_core.errors import ContextChanged
from mnesis_core.events import EventType
from mnesis_core.messages import Message, TextPart
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState
from sessions_app.database.threads import db
from sessions_app.live import follow
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_context_items, load_events
from sessions_app.record.message_queries import load_messages, load_messages_since
from tests.defects.talks import add_turn
from tests.support.people.story import ended, frames_until, history, spoken
from tests.support.record.inspected import add_summary, claim

pytestmark = pytest.mark.both_databases

ROOT = Path(__file__).resolve().parents[2]


def changes_of(session_id: str) -> list[int]:
    """The events that made summaries or changed the context."""
    types = (EventType.SUMMARY_CREATED, EventType.CONTEXT_CHANGED)
    return [event.seq for event in load_events(session_id, limit=1_000) if event.type in types]


@pytest.mark.parametrize("stranger", ["nowhere", "another session's", "gone"])
def test_a_summary_of_what_is_not_in_the_context_leaves_nothing_at_all(alice, session, stranger):
    """Defects 16 and 28: a node was four commits and the swap a fifth, and what it stood for was not looked at."""
    other = lifecycle.create_session(owner=alice)
    for each in (session, other):
        for index in range(3):
            add_turn(each, f"Question {index}.")
    ids = [item.item_id for item in load_context_items(session.id)]
    strangers = {"nowhere": "msg_nowhere", "another session's": load_context_items(other.id)[0].item_id, "gone": ids[0]}
    run = claim(session.id)
    if stranger == "gone":
        with change(session.id) as record:
            message_store.swap_context_items(record, removed_ids=ids[:1], summary_id="sum_elsewhere")
    before = load_context_items(session.id), changes_of(session.id)
    with pytest.raises(ContextChanged):
        add_summary(session.id, run, [strangers[stranger], ids[1]], (1, 2))
    assert (load_context_items(session.id), changes_of(session.id)) == before
    assert SummaryNode.objects.count() == SummaryEdge.objects.count() == 0


async def test_a_follower_that_breaks_hurts_neither_the_turn_nor_another_follower(session, script):
    """Defect 17: a subscriber's exception came out of the call that had told it."""
    gate = asyncio.Event()
    model = script(Step(text=("one ", "two ", "three"), gate=gate))

    async def break_at_the_first_delta() -> None:
        async with aclosing(follow(session.id)) as frames:
            async for frame in frames:
                if frame["type"] == "delta":
                    raise RuntimeError("a subscriber's mistake")

    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(frames_until(session, "turn.completed"))
        broken = asyncio.ensure_future(break_at_the_first_delta())
        started = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Count.")
        await model.at_gate.wait()
        with pytest.raises(RuntimeError, match="a subscriber's mistake"):
            await broken
        gate.set()
    assert (await ended(started.turn)).state == TurnState.COMPLETED
    assert spoken((await history(session))[-1]) == "one two three"
    assert "".join(frame["text"] for frame in other.result() if frame["type"] == "delta") == "one two three"


async def test_a_session_is_followed_from_its_creation(session):
    """Defect 36: the first event was over before anybody could subscribe."""
    first, *_ = await frames_until(session, "caught_up")
    assert (first["type"], first["seq"]) == ("session.created", 1)
    assert {event.session_id for event in await db(load_events, session.id)} == {session.id}


def test_every_event_of_the_vocabulary_is_sent_by_something():
    """Defect 36: five events were reserved and never sent."""
    packages = ("sessions_app", "compaction_app", "files_app", "agents_app", "audit_app")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    named = set(re.findall(r"EventType\.([A-Z_]+)", "\n".join(path.read_text() for path in sources)))
    assert {type.name for type in EventType} - named == set()


def test_messages_of_one_instant_keep_their_order_and_are_all_found(session):
    """Defect 37: the clock was the order, and what came in the same millisecond was passed over."""
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    with change(session.id, now=noon) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        said = [Message(role="user", parts=(TextPart(text=f"Message {index}"),)) for index in range(12)]
        ids = [message_store.append_message(record, turn_id=turn_id, message=message) for message in said]
    assert {message.created_at for message in load_messages(session.id)} == {noon}
    assert [message.id for message in load_messages(session.id)] == ids
    assert [message.id for message in load_messages_since(ids[4], session_id=session.id)] == ids[5:]
