"""Messages that calls showed beside the items of their context: counted from manifests, on their page and on that of searches."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents_app.turns import lifecycle
from compaction_app.context.manifests import with_manifests
from compaction_app.inspector.messages import trace
from mnesis_core.context.wording import message_row
from mnesis_core.records import CallRecord, SessionRecord
from sessions_app.database.threads import db
from sessions_app.record.message_queries import load_message, load_messages
from sessions_app.record.turn_queries import list_calls
from tests.agents_app.turns.test_long_turns import TASK, long_session, reader
from tests.compaction_app.context.test_rebuilding import add_call
from tests.support.people.story import say
from tests.support.record.inspected import add_turn

pytestmark = pytest.mark.both_databases


def calls_of(session: SessionRecord) -> list[CallRecord]:
    """The calls of turns, oldest first, with every row of their manifests."""
    calls = [call for call in list_calls(session.id, limit=300) if call.purpose == "turn"]
    return [call for one in calls[::-1] for call in with_manifests([one])]


def read(client: Client, owner: User, name: str, *args: str, **query: str) -> str:
    client.force_login(owner)
    answer = client.get(reverse(name, args=args), query)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"</?(strong|a|span)\b[^>]*>", "", answer.content.decode()))


def ids_that_show(calls: list[CallRecord], message_id: str, kind: str) -> list[str]:
    return [call.id for call in calls if any((row["kind"], row["id"]) == (kind, message_id) for row in call.manifest)]


@pytest.mark.slow
async def test_a_question_that_is_pinned_beside_its_summary_says_in_which_calls(alice, script, client):
    script(reader(90))
    session = await long_session(alice)
    await say(session, TASK)
    question, answer, *_ = await db(load_messages, session.id)
    calls = await db(calls_of, session)
    pinned = ids_that_show(calls, question.id, "pinned")
    assert pinned[-1] == calls[-1].id
    story = await db(trace, session.id, question.id)
    assert story.seen["count"] == len(ids_that_show(calls, question.id, "message")) == len(calls) - len(pinned)
    [beside] = story.seen["beside"]
    assert (beside["kind"], beside["count"], story.still_shown) == ("pinned", len(pinned), "pinned")
    assert [(end["call"].id, end["how"]) for end in beside["ends"]] == [(pinned[0], "whole"), (pinned[-1], "whole")]
    shown = await db(read, client, alice, "inspect-sightings", session.id, question.id)
    assert f"It was pinned in {len(pinned)} calls. The first and the last:" in shown
    assert "but the model still sees it: it was pinned in the newest call." in shown
    assert "Not in the context" not in shown
    found = await db(read, client, alice, "search", q='"name the one that is missing"', kind="messages")
    assert "pinned in the newest call" in found
    assert "not in context since" not in found
    other = await db(read, client, alice, "inspect-sightings", session.id, answer.id)
    assert "Not in the context since turn 1" in other
    assert "pinned" not in other


@pytest.mark.slow
async def test_what_was_pinned_once_and_is_no_more_says_both(alice, script, client):
    script(reader(70))
    session = await long_session(alice, retrieval={"max_passages": 0})
    await say(session, TASK)
    for number in range(2):
        await say(session, f"And which was number {number}?")
    question = (await db(load_messages, session.id))[0]
    calls = await db(calls_of, session)
    pinned = ids_that_show(calls, question.id, "pinned")
    assert pinned
    assert pinned[-1] != calls[-1].id
    shown = await db(read, client, alice, "inspect-sightings", session.id, question.id)
    assert f"It was pinned in {len(pinned)} calls" in shown
    assert "Not in the context since turn 1" in shown
    assert "not in context since" in await db(read, client, alice, "search", q='"every ledger"', kind="messages")


def test_a_message_that_was_quoted_says_in_which_calls(session: SessionRecord, alice: User, client: Client) -> None:
    message = load_message(add_turn(session.id, "How high is the tide?")[0], session_id=session.id)
    line = {"id": message.id, "part": message.parts[0].id, "field": "text", "start": 0, "end": 8}
    rows = [{"kind": "retrieved", "id": "", "lines": [line, {**line, "start": 12, "end": 16}]}]
    ids = [add_call(session.id, rows, context_seq=50) for _ in range(3)]
    [beside] = trace(session.id, message.id).seen["beside"]
    assert (beside["kind"], beside["count"]) == ("retrieved", 3)
    assert [(end["call"].id, end["how"]) for end in beside["ends"]] == [(ids[0], "quoted"), (ids[-1], "quoted")]
    shown = read(client, alice, "inspect-sightings", session.id, message.id)
    assert "It was retrieved in 3 calls. The first and the last:" in shown
    assert "partly quoted in its prompt" in shown


def test_many_calls_are_counted_with_the_queries_of_a_few(session: SessionRecord, alice: User) -> None:
    def statements(session_id: str, count: int) -> int:
        message = load_message(add_turn(session_id, "How high is the tide?")[0], session_id=session_id)
        for _ in range(count):
            add_call(session_id, [message_row(message) | {"kind": "pinned"}], context_seq=50)
        add_call(session_id, [7], context_seq=50)
        with CaptureQueriesContext(connection) as captured:
            [beside] = trace(session_id, message.id).seen["beside"]
        assert beside["count"] == count
        return len(captured)

    assert statements(session.id, 2) == statements(lifecycle.create_session(owner=alice).id, 60)
