"""Which calls read a message in order to summarise it: exactly those whose questions hold it, and what is shown of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents_app.turns import lifecycle
from compaction_app import revise
from compaction_app.compact import compact_now
from compaction_app.context.state import rebuild_payload
from compaction_app.inspector.messages import MOST, MOST_SPANS, list_readings
from compaction_app.queries import list_summaries
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import Script
from mnesis_core.records import CallRecord, SessionRecord
from sessions_app.record import turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.test_compaction import WORDS, add_turns

pytestmark = pytest.mark.django_db(transaction=True)


def summary_calls(session: SessionRecord) -> list[CallRecord]:
    """The oldest first."""
    return [call for call in list_calls(session.id)[::-1] if call.purpose == "summary"]


def question(call: CallRecord) -> str:
    rebuilt = rebuild_payload(call)
    assert rebuilt.digest_matches
    assert rebuilt.payload
    return str(rebuilt.payload["messages"][-1]["content"])


def page(client: Client, session: SessionRecord, seq: int) -> str:
    message = load_messages(session.id)[seq - 1]
    answer = client.get(reverse("inspect-sightings", args=[session.id, message.id]))
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.slow
def test_a_call_read_a_message_if_its_question_holds_it_also_in_pieces_and_when_it_was_merged(session, script):
    def reply(request: Request) -> Script:
        is_merge = "You merge" in str(request.payload["messages"][0])
        return "- " + "A detail of the move. " * (4 if is_merge else 8)

    script(reply, window=4_000)
    add_turns(session, 1, text=WORDS * 2_000)
    add_turns(session, 6)
    for _ in range(2):
        compact_now(session.id)
        add_turns(session, 4)
    questions = {call.id: question(call) for call in summary_calls(session)}
    told = set()
    for message in load_messages(session.id):
        found = list_readings(session.id, message.seq)
        told |= {reading.call.id for reading in found.calls}
        assert [reading.call.id for reading in found.calls] == [
            call_id for call_id, asked in questions.items() if f"[{message.seq} {message.role}" in asked
        ][:MOST]
    not_told = [call for call in summary_calls(session) if call.id not in told]
    assert not_told, "the calls that merged drafts"
    assert not any(row["kind"] == "messages" for call in not_told for row in call.manifest)


def test_what_came_of_each_call_is_told_and_shown(session, script, client, alice):
    script("", "## Goal\n- Move the ledgers.", "## Goal\n- Move all of them.")
    add_turns(session, 8)
    compact_now(session.id)
    [summary] = list_summaries(session.id)
    first, second = list_readings(session.id, 1).calls
    assert (first.number, first.attempt.accepted, first.summary.id) == (1, False, summary.id)
    assert (second.number, second.attempt.accepted, second.summary.id) == (2, True, summary.id)
    assert list_readings(session.id, summary.last_seq).calls == [first, second]
    assert list_readings(session.id, summary.last_seq + 1).calls == []
    client.force_login(alice)
    shown = page(client, session, 1)
    assert "No turn called a model while it was in the context." in shown
    assert "2 calls</strong> read it to summarise it" in shown
    assert f"rejected: {first.attempt.reason}" in shown
    assert reverse("inspect-call", args=[session.id, second.call.id]) in shown
    assert f"for the summary of messages 1–{summary.last_seq}" in shown
    assert "read it to summarise it" not in page(client, session, summary.last_seq + 1)


def test_a_revision_reads_it_again_long_after_it_left_the_context(session, script, client, alice):
    script(lambda request: "## Goal\n- Move the ledgers.")
    add_turns(session, 8)
    compact_now(session.id)
    [summary] = list_summaries(session.id)
    preview_id = revise.preview(summary.id)
    _, again = list_readings(session.id, 1).calls
    assert (again.attempt.summary_id, again.summary) == (preview_id, None)
    client.force_login(alice)
    assert "no summary came of it" in page(client, session, 1)
    revise.apply(preview_id)
    assert list_readings(session.id, 1).calls[1].summary.id == preview_id


def add_question(session_id: str, manifest: list[Any]) -> str:
    """A call for a summary as an import from anybody may hold it."""
    with change(session_id) as record:
        return turn_store.start_call(
            record,
            turn_id=None,
            message_id=None,
            purpose="summary",
            model="demo",
            provider_model="demo",
            parameters={},
            manifest=manifest,
            context_seq=1,
            digest="0" * 64,
            estimated_tokens=1,
        )


PROMPT = {"kind": "prompt", "id": "level1.2", "target": 9}
PIECE = {"kind": "piece", "number": 1, "count": 1, "limit": 900}


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        [PROMPT, PIECE, 7],
        [PROMPT, PIECE, {"kind": "messages", "ranges": "1"}],
        [PROMPT, PIECE, {"kind": "messages", "ranges": [["1", "2"]]}],
        [PROMPT, PIECE, {"kind": "messages", "ranges": [[1, 2], [9, 3]]}],
        [PROMPT, PIECE, {"kind": "messages", "ranges": [[3, 9], [0, 2]]}],
        [PROMPT, {"kind": "tools", "names": []}, {"kind": "messages", "ranges": [[1, 2]]}],
        [PROMPT, {**PIECE, "count": 2, "number": 2}, {"kind": "messages", "ranges": [[1, 2**53]]}],
        [PROMPT, {"kind": "try", "id": "try_x"}, PIECE],
    ],
)
def test_an_imported_manifest_that_is_none_tells_of_nothing(session, manifest):
    add_turns(session, 1)
    add_question(session.id, manifest)
    assert list_readings(session.id, 1).calls == []


@pytest.mark.both_databases
def test_spans_with_gaps_have_what_lies_between_their_ends(session, client, alice):
    add_turns(session, 4)
    spans = [[[1, 2]], [[1, 2], [4, 4]], [[1, 1], [3, 3], [5, 8]], [[5, 8]]]
    ids = [add_question(session.id, [PROMPT, PIECE, {"kind": "messages", "ranges": ranges}]) for ranges in spans]
    for seq, expected in {1: (0, 1, 2), 2: (0, 1), 3: (2,), 4: (1,), 5: (2, 3), 8: (2, 3)}.items():
        readings = list_readings(session.id, seq).calls
        assert [reading.call.id for reading in readings] == [ids[place] for place in expected]
        assert all(reading.attempt is None for reading in readings)
    client.force_login(alice)
    assert "running" in page(client, session, 1)


@pytest.mark.both_databases
@pytest.mark.parametrize("spans", [1, MOST_SPANS + 2])
def test_many_calls_are_read_as_fast_as_a_few_and_are_not_all_told(session, alice, spans):
    def statements(session: SessionRecord, count: int) -> int:
        add_turns(session, 4)
        for number in range(count):
            ranges = [[1, 8 + number % spans]]
            add_question(session.id, [PROMPT, {**PIECE, "count": 2}, {"kind": "messages", "ranges": ranges}])
        with CaptureQueriesContext(connection) as captured:
            found = list_readings(session.id, 1)
        assert len(found.calls) == min(count, MOST if count > spans else MOST_SPANS)
        assert found.has_more == (count > MOST or spans > MOST_SPANS)
        return len(captured)

    few, many = statements(session, spans), statements(lifecycle.create_session(owner=alice), 10 * MOST)
    assert few == many == 4 + min(spans, MOST_SPANS)
