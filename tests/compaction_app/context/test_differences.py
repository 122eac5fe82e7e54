"""Two calls of a session compared: at the endpoint, with what really happened between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from compaction_app.compact import compact_now
from compaction_app.context import manifests
from compaction_app.queries import list_summaries
from mnesis_core.llm.interface import Request, ToolCall
from mnesis_core.providers.scripted import Script
from mnesis_core.records import SessionRecord
from sessions_app.database.threads import db
from sessions_app.models import MessagePart
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.context.test_rebuilding import add_call
from tests.support.people.story import say

SUM = ToolCall(id="c1", name="calculator", arguments='{"expression": "6*7"}')
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def compare_with(session: SessionRecord, client: Client, alice: Any) -> Ask:
    """Alice compares."""
    client.force_login(alice)

    def ask(call_id: str, earlier: str | None = None, *, status: int = 200) -> dict[str, Any]:
        answer = client.get(f"/api/calls/{call_id}/difference", {} if earlier is None else {"from": earlier})
        assert answer.status_code == status, answer.content
        body: dict[str, Any] = answer.json()
        return body

    return ask


def reply(request: Request) -> Script:
    if "MNESIS-SUMMARISE" in str(request.payload["messages"][0]["content"]):
        return "## Goal\n- Sums."
    return SUM if request.payload["messages"][-1]["role"] == "user" else "It is 42."


def prune_newest(session: SessionRecord) -> str:
    """Make a tombstone of the newest tool's output; returns its part."""
    part = MessagePart.objects.filter(session_id=session.id, part_type="tool").order_by("message__seq").last()
    assert part is not None
    with change(session.id) as record:
        message_store.tombstone_parts(record, [part.id])
    return part.id


async def test_what_happened_between_two_calls_is_told(session, script, compare_with):
    script(reply)
    for number in range(5):
        await say(session, f"How much is it? {number} " + "and why, dear? " * 60)
    before = (await db(list_calls, session.id))[0]
    pruned = await db(prune_newest, session)
    await db(compact_now, session.id)
    await say(session, "And now?")
    calls = (await db(list_calls, session.id))[:2]
    messages = await db(load_messages, session.id)
    [summary] = await db(list_summaries, session.id)
    answer = await db(compare_with, calls[1].id)
    assert answer["from"] == before.id
    assert answer["to"] == calls[1].id
    told = {(item["change"], item["id"]): (item["reason"], item["by"]) for item in answer["changes"]}
    for message in messages[: summary.message_count]:
        assert told["summarised", message.id] == ("summarised", summary.id)
    assert told["entered", summary.id] == ("stands_for_earlier", "")
    assert told["tombstoned", pruned] == ("pruned", "")
    assert told["entered", messages[-3].id] == ("new", "")
    assert answer["total"] == len(answer["changes"]) == sum(answer["counts"].values())
    assert answer["counts"]["summarised"] == summary.message_count
    within = await db(compare_with, calls[0].id)
    assert [(item["change"], item["reason"]) for item in within["changes"]] == [("entered", "new")]
    first = (await db(list_calls, session.id))[-1]
    opening = await db(compare_with, first.id)
    assert opening["from"] is None
    assert {item["reason"] for item in opening["changes"]} == {"first_call"}


def test_only_earlier_calls_of_the_same_session_are_compared(session, compare_with, client, alice, bob):
    first, second = add_call(session.id, []), add_call(session.id, [])
    assert compare_with(second)["from"] == first
    assert compare_with(second, first)["total"] == 0
    assert compare_with(first, second, status=422)["error"]["details"]["field"] == "from"
    assert compare_with(first, first, status=422)["error"]["code"] == "INVALID_REQUEST"
    theirs = add_call(session_store.create_session(owner=bob, model="demo"), [])
    assert compare_with(second, theirs, status=404)["error"]["code"] == "CALL_NOT_FOUND"
    elsewhere = add_call(session_store.create_session(owner=alice, model="demo"), [])
    assert compare_with(second, elsewhere, status=422)["error"]["details"]["field"] == "from"
    client.force_login(bob)
    assert compare_with(second, status=404)["error"]["code"] == "CALL_NOT_FOUND"


def test_a_summarisers_call_and_a_broken_manifest_are_refused_in_words(session, compare_with):
    broken = add_call(session.id, [7])
    assert "row 1" in compare_with(broken, status=422)["error"]["message"]
    with change(session.id) as record:
        call = turn_store.start_call(
            record,
            turn_id=None,
            message_id=None,
            purpose="summary",
            model="demo",
            provider_model="demo",
            parameters={},
            manifest=[],
            context_seq=1,
            digest="",
            estimated_tokens=1,
        )
    assert "turns" in compare_with(call, status=422)["error"]["message"]


def test_however_much_changed_the_answer_is_bounded(session, compare_with, monkeypatch):
    monkeypatch.setattr(manifests, "MOST_CHANGES", 3)
    rows = [{"kind": "summary", "id": f"sum_{seq}", "first_seq": seq, "last_seq": seq} for seq in range(9)]
    answer = compare_with(add_call(session.id, rows))
    assert (len(answer["changes"]), answer["total"], answer["is_cut"]) == (3, 9, True)
