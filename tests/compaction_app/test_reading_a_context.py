"""The rows behind a context: few queries, one moment."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction_app.context import load_frame, load_state, read_state
from mnesis_core.dag import MessageEntry
from mnesis_core.messages import Message, TextPart, ToolPart, ToolState
from sessions_app import store
from sessions_app.ledger import change
from sessions_app.queries import load_messages, load_session
from tests.support.cast import make_user
from tests.support.inspected import add_summary, add_turn, claim
from tests.support.talks import new_session, tool

pytestmark = pytest.mark.django_db


@pytest.fixture
def session_id() -> str:
    return new_session(make_user("alice"))


@pytest.mark.parametrize("turns", [4, 100])
def test_messages_are_one_query_and_summaries_another_whatever_the_history(session_id, turns):
    for _ in range(turns):
        add_turn(session_id, "tide", tool(output="high"))
    frame = load_frame(session_id)
    with CaptureQueriesContext(connection) as plain:
        assert len(read_state(frame).entries) == 2 * turns
    said = load_messages(session_id, limit=1_000)
    add_summary(session_id, claim(session_id), [message.id for message in said[:4]], (1, 4))
    with CaptureQueriesContext(connection) as summarised:
        assert len(read_state(frame).entries) == 2 * turns - 3
    assert (len(plain), len(summarised)) == (1, 2)


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
        turn_id = store.start_turn(record, model="demo")
        store.append_message(record, turn_id=turn_id, message=Message(role="assistant", parts=()))
    entries = load_state(session_id).entries
    assert [entry.message for entry in entries if isinstance(entry, MessageEntry)] == load_messages(session_id)
