"""The store and its ledger: what one change writes, and what it refuses."""

from __future__ import annotations

import itertools
import json
import threading

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnesis_core.errors import (
    ImmutableFieldError,
    MessageNotFoundError,
    PartNotFoundError,
    SessionBusy,
    SessionNotFoundError,
)
from mnesis_core.events import GENESIS, entry_hash
from mnesis_core.messages import (
    CompactionMarkerPart,
    DataPart,
    FileRefPart,
    Message,
    PatchPart,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.records import MessageEnd, TurnState, UsageRecord
from sessions_app.database.tables import commitments_of
from sessions_app.models import Event, MessagePart, Session
from sessions_app.record import message_queries, message_store, session_queries, session_store, turn_store
from sessions_app.record.change import Change, change
from tests.support.people.cast import make_user

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def session_id() -> str:
    return session_store.create_session(owner=make_user("alice"), model="demo")


def start(session_id: str, *parts: object, role: str = "user") -> tuple[str, str]:
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        message = Message(role=role, parts=parts)  # type: ignore[arg-type]
        return turn_id, message_store.append_message(record, turn_id=turn_id, message=message)


def test_every_change_is_an_event_in_one_unbroken_chain(session_id):
    turn_id, message_id = start(session_id, TextPart(text="Hello"), ToolPart(tool_name="t", tool_call_id="c"))
    part_id = MessagePart.objects.get(part_type="tool").id
    with change(session_id) as record:
        message_store.start_tool(record, part_id)
        message_store.finish_tool(record, part_id, output="done", error=None)
        message_store.finalize_message(record, message_id, MessageEnd(outcome="complete"))
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    events = list(Event.objects.filter(session_id=session_id).order_by("seq"))
    assert [event.type for event in events] == [
        "session.created",
        "turn.started",
        "message.created",
        "part.state_changed",
        "part.state_changed",
        "message.finalized",
        "turn.completed",
    ]
    previous = GENESIS
    for seq, event in enumerate(events, 1):
        assert (event.seq, event.prev_hash) == (seq, previous)
        previous = entry_hash(prev_hash=previous, seq=seq, type=event.type, body=event.body)
        assert event.hash == previous
    head = Session.objects.get(id=session_id)
    assert (head.event_seq, head.head_hash) == (len(events), previous)


def test_events_hold_commitments_and_no_content(session_id):
    start(
        session_id, TextPart(text="my secret word"), ToolPart(tool_name="t", tool_call_id="c", input="my secret word")
    )
    bodies = "".join(Event.objects.values_list("body", flat=True))
    assert "secret" not in bodies
    bound = json.loads(Event.objects.get(type="message.created").body)["rows"]
    for row in MessagePart.objects.values():
        for entry in commitments_of(MessagePart).inserted(row, salt=row["salt"]):
            assert entry in bound
        assert not any(entry in bound for entry in commitments_of(MessagePart).inserted(row, salt="00" * 32))


def fail_after_writing(record: Change) -> None:
    turn_id = turn_store.start_turn(record, model="demo")
    message_store.append_message(record, turn_id=turn_id, message=Message(role="user", parts=(TextPart(text="x"),)))
    raise ZeroDivisionError


def test_a_change_that_fails_leaves_neither_rows_nor_events(session_id):
    before = list(Event.objects.values_list("seq", "type"))
    with pytest.raises(ZeroDivisionError), change(session_id) as record:
        fail_after_writing(record)
    assert list(Event.objects.values_list("seq", "type")) == before
    assert message_queries.load_messages(session_id) == []


PARTS = (
    TextPart(text="text"),
    ReasoningPart(text="thought"),
    ToolPart(tool_name="t", tool_call_id="c1", input='{"a": 1}', output="out", state=ToolState.COMPLETED),
    ToolPart(tool_name="t", tool_call_id="c2", input="not json", error="why", state=ToolState.ERROR),
    FileRefPart(file_id="file_1", path="a.txt", file_type="text", token_count=3, exploration_summary="three words"),
    CompactionMarkerPart(summary_id="sum_1", level=2, compacted_message_count=4, compacted_token_count=5),
    StepStartPart(step_index=1),
    StepFinishPart(step_index=1),
    PatchPart(unified_diff="--- a\n+++ b\n", files_changed=("a", "b")),
    DataPart(label="x:y", text='{"z": 1}'),
)


def test_every_kind_of_part_comes_back_as_it_was_in_one_query(session_id, django_assert_num_queries):
    start(session_id, *PARTS)
    with django_assert_num_queries(1):
        [message] = message_queries.load_messages(session_id)
    assert tuple(stored.part for stored in message.parts) == PARTS
    assert [stored.index for stored in message.parts] == list(range(len(PARTS)))
    assert message_queries.load_messages_by_ids([message.id], session_id=session_id) == [message]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60))
def test_any_text_at_all_comes_back_as_it_was(session_id, text, output):
    part = ToolPart(tool_name=text[:20], tool_call_id=text[:20], input=text, output=output, state=ToolState.COMPLETED)
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        message = Message(role="user", parts=(TextPart(text=text), part))
        message_store.append_message(record, turn_id=turn_id, message=message)
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    [message] = message_queries.load_messages(session_id, newest=True, limit=1)
    assert tuple(stored.part for stored in message.parts) == (TextPart(text=text), part)


def test_numbers_are_written_once(session_id):
    turn_id, message_id = start(session_id, TextPart(text="x"), role="assistant")
    end = MessageEnd(outcome="complete", usage=UsageRecord(tokens_input=1, tokens_output=2, usage_source="provider"))
    with change(session_id) as record:
        message_store.finalize_message(record, message_id, end)
    with pytest.raises(ImmutableFieldError), change(session_id) as record:
        message_store.finalize_message(record, message_id, end)
    with pytest.raises(MessageNotFoundError), change(session_id) as record:
        message_store.finalize_message(record, "msg_nosuch", end)
    with change(session_id) as record:
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    with pytest.raises(Exception, match="ended already"), change(session_id) as record:
        turn_store.finish_turn(record, turn_id, state=TurnState.FAILED)


def test_a_tools_result_is_written_once(session_id):
    start(session_id, ToolPart(tool_name="t", tool_call_id="c"))
    part_id = MessagePart.objects.get().id
    with change(session_id) as record:
        message_store.finish_tool(record, part_id, output="first", error=None)
    with pytest.raises(ImmutableFieldError), change(session_id) as record:
        message_store.finish_tool(record, part_id, output="second", error=None)
    with pytest.raises(PartNotFoundError), change(session_id) as record:
        message_store.finish_tool(record, "part_nosuch", output="x", error=None)
    assert MessagePart.objects.get().output == "first"


def test_a_tombstone_is_set_once_and_keeps_the_output(session_id):
    start(session_id, ToolPart(tool_name="t", tool_call_id="c", output="out", state=ToolState.COMPLETED))
    part = MessagePart.objects.get()
    for expected in (1, 0):
        with change(session_id) as record:
            assert message_store.tombstone_parts(record, [part.id]) == expected
    part.refresh_from_db()
    assert part.output == "out"
    assert Event.objects.get(seq=part.compacted_seq, session_id=session_id).type == "part.compacted"


def test_the_errors_say_what_is_not_there(session_id):
    with pytest.raises(SessionNotFoundError), change("sess_nosuch"):
        pass
    with pytest.raises(MessageNotFoundError), change(session_id) as record:
        message_store.append_parts(record, message_id="msg_nosuch", parts=[TextPart(text="x")])
    with pytest.raises(MessageNotFoundError):
        message_queries.load_messages_by_ids(["msg_nosuch"], session_id=session_id)
    with pytest.raises(SessionNotFoundError):
        session_queries.load_session("nul \x00 and \ud800", owner_id=1)


def test_a_deleted_session_is_out_of_sight_and_all_of_it_stays(session_id):
    start(session_id, TextPart(text="x"))
    with change(session_id) as record:
        session_store.soft_delete_session(record)
    with pytest.raises(SessionNotFoundError):
        session_queries.load_session(session_id)
    assert MessagePart.objects.count() == 1


def test_writers_at_once_leave_one_chain_without_gaps(session_id):
    def write(index: int) -> None:
        try:
            for _ in range(5):
                with change(session_id) as record:
                    session_store.update_session(record, title=f"writer {index}")
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(Event.objects.filter(session_id=session_id).order_by("seq"))
    assert [event.seq for event in events] == list(range(1, 22))
    assert all(event.prev_hash == before.hash for before, event in itertools.pairwise(events))


def test_only_one_of_two_turns_at_once_starts(session_id):
    start(session_id, TextPart(text="first"))
    with pytest.raises(SessionBusy):
        start(session_id, TextPart(text="second"))
    assert len(message_queries.load_messages(session_id)) == 1


@pytest.mark.slow
def test_a_part_of_20_mb_comes_back_as_it_was(session_id):
    text = "the tide at the north pier " * 750_000 + "\x00\ud800 ™"
    output = ToolPart(tool_name="t", tool_call_id="c", output=text, state=ToolState.COMPLETED)
    start(session_id, output, role="assistant")
    [message] = message_queries.load_messages(session_id)
    assert message.parts[0].part == output
