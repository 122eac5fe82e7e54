"""The rows behind a context: few queries, one moment."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction_app.context.state import (
    FEWEST_READ,
    load_frame,
    load_meter,
    load_state,
    meter_of,
    read_newest_state,
    read_state,
)
from mnesis_core.context.entries import MessageEntry, SummaryEntry
from mnesis_core.messages import FileRefPart, Message, ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.records import TurnState
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from tests.support.people.cast import make_user
from tests.support.record.inspected import add_summary, add_turn, claim
from tests.support.record.talks import new_session, tool

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]


@pytest.fixture
def session_id() -> str:
    return new_session(make_user("alice"))


@pytest.mark.slow
@pytest.mark.parametrize("turns", [4, 100])
def test_messages_are_one_query_and_summaries_two_more_whatever_the_history(session_id, turns):
    for _ in range(turns):
        add_turn(session_id, "tide", tool(output="high"))
    frame = load_frame(session_id)
    with CaptureQueriesContext(connection) as plain:
        assert len(read_state(frame).entries) == 2 * turns
    said = load_messages(session_id, limit=1_000)
    add_summary(session_id, claim(session_id), [message.id for message in said[:4]], (1, 4))
    with CaptureQueriesContext(connection) as summarised:
        assert len(read_state(frame).entries) == 2 * turns - 3
    # One is for facts, and one says whether the last compaction has left room for a refill.
    assert (len(plain), len(summarised)) == (2, 4)


def test_a_context_says_as_of_which_event_it_was_read(session_id):
    frame = load_frame(session_id)
    assert read_state(frame).context_seq == frame.session.event_seq
    add_turn(session_id, "tide")
    assert read_state(frame).context_seq == load_session(session_id).event_seq > frame.session.event_seq


def test_a_message_is_the_same_in_a_context_as_in_the_record(session_id):
    hostile = "nul \x00, lone \ud800, escape \u241b"
    call = ToolPart(tool_name="t", tool_call_id="c", input=hostile, output=hostile, state=ToolState.COMPLETED)
    add_turn(session_id, hostile, TextPart(text=""), call)
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        message_store.append_message(record, turn_id=turn_id, message=Message(role="assistant", parts=()))
    entries = load_state(session_id).entries
    assert [entry.message for entry in entries if isinstance(entry, MessageEntry)] == load_messages(session_id)


# A context that is far too large


def small_session() -> str:
    """A session whose window takes some hundred short messages."""
    return new_session(make_user("bob"), config={"context_window": 4_000})


def tell(session_id: str, turns: int, *, steps: int = 1) -> list[str]:
    """Turns of a question and so many answers with everything that is sent and not sent; returns the tools' parts."""
    answer = Message(
        role="assistant",
        parts=(
            ReasoningPart(text="The tide may have turned since. " * 9),
            TextPart(text="It reads forty one, and it is rising."),
            tool(output="41 at Portwell " * 5, input='{"place": "Portwell"}'),
            tool(output="42 at Sandbar " * 9, input='{"place": "Sandbar"}'),
            FileRefPart(file_id="file_0123456789abcdef", path="tides.csv", exploration_summary="Rows of tides."),
        ),
    )
    with change(session_id) as record:
        for number in range(turns):
            turn_id = turn_store.start_turn(record, model="demo")
            question = Message(role="user", parts=(TextPart(text=f"What does gauge {number} read?"),))
            message_store.append_message(record, turn_id=turn_id, message=question)
            for _ in range(steps):
                message_store.append_message(record, turn_id=turn_id, message=answer)
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    said = load_messages(session_id, limit=10_000)
    return [stored.id for message in said for stored in message.parts if isinstance(stored.part, ToolPart)]


@pytest.mark.slow
def test_of_a_context_that_is_far_too_large_its_end_is_measured_and_the_rest_is_summed_up():
    session_id = small_session()
    tools = tell(session_id, 400)
    said = load_messages(session_id, limit=10_000)
    add_summary(session_id, claim(session_id), [message.id for message in said[:4]], (1, 4))
    with change(session_id) as record:
        message_store.tombstone_parts(record, tools[8:60:2])
    newest, whole = read_newest_state(load_frame(session_id)), load_state(session_id)
    assert len(whole.entries) == 797
    assert len(newest.entries) == FEWEST_READ + 1
    assert isinstance(newest.entries[0], SummaryEntry)
    measured, exact = load_meter(session_id), meter_of(whole)
    assert measured.breakdown == exact.breakdown
    assert abs(measured.used_tokens - exact.used_tokens) < exact.used_tokens / 20
    assert measured.used_tokens > 10 * measured.hard_tokens


def test_of_a_turn_that_is_far_too_large_everything_from_its_question_on_is_measured():
    session_id = small_session()
    tell(session_id, 3)
    tell(session_id, 1, steps=300)
    newest, whole = read_newest_state(load_frame(session_id)), load_state(session_id)
    assert [entry.message.role for entry in newest.entries if isinstance(entry, MessageEntry)].count("user") >= 1
    assert meter_of(newest) == meter_of(whole)


def test_of_very_small_messages_as_many_are_read_as_may_fit():
    session_id = small_session()
    with change(session_id) as record:
        for _ in range(900):
            turn_id = turn_store.start_turn(record, model="demo")
            message_store.append_message(
                record, turn_id=turn_id, message=Message(role="user", parts=(TextPart(text="41"),))
            )
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    newest, whole = read_newest_state(load_frame(session_id)), load_state(session_id)
    assert FEWEST_READ < len(newest.entries) < len(whole.entries)
    assert meter_of(newest) == meter_of(whole)
