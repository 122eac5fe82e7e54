"""What the lens beside a conversation asks for: its calls, how each was shown the messages, and those of a summary."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from compaction_app.compact import compact_now
from compaction_app.inspector.calls import shown_by
from compaction_app.models import SummaryEdge
from compaction_app.queries import load_graph, messages_of_summaries
from mnesis_core.messages import Message, TextPart
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import GATEWAY, SessionRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.models import Message as MessageRow
from sessions_app.models import MessagePart, ModelCall
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.agents_app.sessions.test_branches import ask
from tests.compaction_app.context.test_rebuilding import add_call
from tests.compaction_app.inspector.test_inspect_calls import (
    check_status,
    oldest_first,
    prune_newest,
    reader,
    reply,
    talk,
)
from tests.support.people.story import say
from tests.support.record.inspected import add_session, add_summary, add_turn, claim
from tests.support.record.trees import make_tree

pytestmark = pytest.mark.both_databases

__all__ = ["reader"]

CALLS, EACH = 2_000, 80
"""Turns with a call each, and those that a summary stands for."""


def places(reader: Client, session_id: str, **query: Any) -> list[list[Any]]:
    answer = reader.get(reverse("inspect-call-places", args=[session_id]), query)
    assert answer.status_code == 200, answer.content
    found: list[list[Any]] = answer.json()["calls"]
    return found


def shown(reader: Client, session_id: str, call_id: str) -> dict[str, Any]:
    answer = reader.get(reverse("inspect-call-messages", args=[session_id, call_id]))
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def numbers(runs: list[list[int]]) -> set[int]:
    return {seq for first, last in runs for seq in range(first, last + 1)}


async def check_marks(session: SessionRecord, reader: Client, model: ScriptedModel) -> list[dict[str, Any]]:
    """Compare what is told of each call with the prompt that was sent; return it."""
    sent = [str(request.payload["messages"]) for request in model.requests if "MNESIS" not in str(request.payload)]
    messages = await db(load_messages, session.id)
    questions = {message.seq: message.parts[0].part.text for message in messages if message.role == "user"}
    seen = [await db(shown, reader, session.id, call.id) for call in await db(oldest_first, session)]
    for prompt, told in zip(sent, seen, strict=True):
        there = {seq for seq, question in questions.items() if question in prompt}
        assert numbers(told["shown"]) & questions.keys() == there
        assert not numbers(told["shown"]) & numbers(told["summarised"])
        assert bool(told["summarised"]) == ("- Sums." in prompt)
        assert {one.seq for one in messages if one.id in told["quoted"]} <= numbers(told["summarised"])
    return seen


@pytest.mark.slow
async def test_what_is_marked_is_what_each_prompt_really_had(session, script, reader):
    model = script(reply)
    for number in range(8):
        await say(session, f"How much is it? {number} " + "and why, dear? " * 60)
        if number == 2:
            await db(prune_newest, session)
        if number == 5:
            await db(compact_now, session.id)
    seen = await check_marks(session, reader, model)
    assert any(told["summarised"] for told in seen)
    [part] = await db(list, MessagePart.objects.filter(compacted_at__isnull=False).select_related("message")[:1])
    whole = [part.message.seq not in numbers(told["tombstoned"]) for told in seen]
    assert whole[0]
    assert not all(whole)


@pytest.mark.slow
async def test_the_bar_has_every_call_of_a_turn_with_its_number_and_answer(session, script, reader):
    script(reply)
    await talk(session, 3)
    await db(compact_now, session.id)
    await talk(session, 1)
    calls = (await db(list_calls, session.id))[::-1]
    numbered = {call.id: number for number, call in enumerate(calls, start=1)}
    seqs = {message.id: message.seq for message in await db(load_messages, session.id)}
    assert await db(places, reader, session.id) == [
        [call.id, numbered[call.id], int(call.created_at.timestamp()), seqs[call.message_id]]
        for call in calls
        if call.purpose == "turn"
    ]
    summary = next(call for call in calls if call.purpose == "summary")
    assert (await db(shown, reader, session.id, summary.id))["words"].startswith("This call was made outside a turn")


@pytest.mark.slow
async def test_a_branch_has_its_own_calls_and_they_saw_its_own_messages(session, script, reader):
    model = script(reply)
    await talk(session, 3)
    root = (await db(load_messages, session.id))[-1]
    await say(session, "And on the first branch? " + "Why, dear? " * 60)
    for number in range(3):
        await ask(session, f"And {number} on the second one? " + "Why, dear? " * 60, root.id if not number else None)
    await db(compact_now, session.id)
    await say(session, "And now?")
    await check_marks(session, reader, model)
    one, other = [{id for id, *_ in await db(places, reader, session.id, branch=branch)} for branch in (0, 1)]
    assert {id for id, *_ in await db(places, reader, session.id)} == other
    assert one | other == {call.id for call in await db(oldest_first, session)}
    assert (len(one - other), len(other - one), len(one & other)) == (2, 8, 6)
    address = reverse("inspect-call-places", args=[session.id])
    assert (await db(reader.get, address, {"branch": 9})).status_code == 404
    assert (await db(reader.get, address, {"branch": "x"})).status_code == 422


def test_the_messages_of_a_summary_with_gaps_are_exactly_its_sources(
    alice: User, django_assert_max_num_queries: Any
) -> None:
    session_id = make_tree(alice)
    graph = load_graph(session_id)
    with django_assert_max_num_queries(2):
        found = messages_of_summaries(graph, list(graph.nodes.values()), session_id=session_id)
    assert any(len(runs) > 1 for runs in found.values())
    seqs = dict(MessageRow.objects.filter(session_id=session_id).values_list("id", "seq"))
    for node in graph.nodes.values():
        sources = {seqs[id] for leaf in graph.leaves(node.id) for id in leaf_sources(leaf.id)}
        assert numbers([list(run) for run in found[node.id]]) == sources
        assert len(sources) == node.message_count


def leaf_sources(summary_id: str) -> list[str]:
    return list(SummaryEdge.objects.filter(node_id=summary_id).values_list("source_id", flat=True))


@pytest.mark.slow
def test_the_rows_of_the_table_name_their_messages(reader: Client, alice: User) -> None:
    session_id = make_tree(alice)
    page = reader.get(reverse("inspect-summaries", args=[session_id]), {"view": "table", "branch": 1}).content.decode()
    rows = re.findall(r'data-messages="([\d -]+)"', page)
    assert rows
    assert any(len(row.split()) > 1 for row in rows)


def row(kind: str, seq: int, **values: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"tombstoned": [], "unanswered": [], "omitted": [], "shortened": []}
    return {"kind": kind, "id": f"m{seq}", "seq": seq, "parts": 1} | usual | values


def test_each_way_to_show_a_message_has_its_place() -> None:
    cut = {"part": "p", "field": "output", "head": 1, "tail": 1}
    told = shown_by(
        [
            {"kind": "system", "id": ""},
            {"kind": "summary", "id": "s", "first_seq": 1, "last_seq": 6},
            row("pinned", 2),
            {"kind": "gap", "id": "", "messages": 2, "summaries": 0, "first_seq": 7, "last_seq": 8},
            {"kind": "retrieved", "id": "", "lines": [{"id": "m4"}, {"id": "m3"}, {"id": "m4"}]},
            row("message", 9),
            row("message", 10, tombstoned=["p"]),
            row("message", 11, shortened=[cut]),
            row("message", 12, omitted=["p"]),
        ]
    )
    assert told == {
        "shown": ((2, 2), (9, 12)),
        "shortened": ((11, 12),),
        "tombstoned": ((10, 10),),
        "summarised": [(1, 6)],
        "left_out": [(7, 8)],
        "quoted": ["m3", "m4"],
    }


@pytest.mark.slow
async def test_nobody_else_is_told_but_staff_who_see_all_records(session, script, client, alice, bob):
    script("Fine.")
    await say(session, "How high is the tide?")
    [call] = await db(oldest_first, session)
    # The second leads on to a page; the third tells what a payload holds, for which staff need more.
    names = [("inspect-call-places", []), ("inspect-call-at", []), ("inspect-call-messages", [call.id])]
    addresses = [reverse(name, args=[session.id, *args]) for name, args in names]
    await db(check_status, addresses, client, alice, bob)


def test_a_call_is_not_told_of_under_another_session(session, reader, alice):
    call_id = add_call(add_session(alice), [])
    for id in (call_id, "call_none", "%00", "x" * 9_000):
        assert reader.get(f"/sessions/{session.id}/inspect/calls/{id}/messages.json").status_code == 404


@pytest.mark.parametrize("manifest", [[7], [{"kind": "context", "form": 9, "items": 0, "parts": 0}], [{"id": "x"}]])
def test_what_the_record_does_not_give_is_said_in_words(session, reader, manifest):
    assert places(reader, session.id) == []
    add_turn(session.id, "How high is the tide?")
    call = ModelCall.objects.get(purpose="turn")
    assert "does not show" in shown(reader, session.id, call.id)["words"]  # its manifest is none
    with change(session.id) as record:
        call_id = start_call(record, call.turn_id, manifest=manifest, context_seq=1)
    assert "does not show" in shown(reader, session.id, call_id)["words"]
    assert [id for id, *_ in places(reader, session.id)] == [call.id, call_id]


def test_a_request_of_a_program_is_on_the_bar_and_marks_nothing(session, reader):
    add_turn(session.id, "How high is the tide?")
    turn_id = ModelCall.objects.get(purpose="turn").turn_id
    with change(session.id) as record:
        call_id = start_call(record, turn_id, manifest=[], context_seq=1, purpose=GATEWAY)
    assert places(reader, session.id)[-1][0] == call_id
    assert shown(reader, session.id, call_id)["words"].startswith("A program wrote this prompt")


def make_long(session_id: str) -> list[str]:
    """Ten thousand messages in two thousand turns, with a call each; a summary stands for every four hundred but the last."""
    calls, ids = [], list[str]()
    run = claim(session_id)
    items = parts = 0
    for number in range(CALLS):
        with change(session_id) as record:
            turn_id = turn_store.start_turn(record, model="demo")
            said = [Message(role=role, parts=(TextPart(text="word"),)) for role in ("user", *["assistant"] * 4)]
            ids += [message_store.append_message(record, turn_id=turn_id, message=one) for one in said]
            items, parts = items + 5, parts + 5
            manifest = [{"kind": "context", "form": 1, "items": items, "parts": parts}]
            about = {"message_id": ids[-1], "manifest": manifest, "context_seq": record.event_seq}
            calls.append(start_call(record, turn_id, **about))
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
        if not (number + 1) % EACH and number + 1 < CALLS:
            first = len(ids) - 5 * EACH + 1
            add_summary(session_id, run, ids[-5 * EACH :], (first, len(ids)))
            items, parts = items - 5 * EACH + 1, parts - 5 * EACH
    return calls


def start_call(record: Change, turn_id: str | None, **about: Any) -> str:
    usual = {"message_id": None, "model": "demo", "provider_model": "demo", "parameters": {}}
    return turn_store.start_call(record, turn_id=turn_id, digest="0" * 64, estimated_tokens=1, **usual | about)


@pytest.mark.slow
def test_ten_thousand_messages_and_two_thousand_calls(
    session: SessionRecord, reader: Client, django_assert_max_num_queries: Any
) -> None:
    calls = make_long(session.id)
    reader.get(reverse("inspect-call-places", args=[session.id]))
    began = timezone.now()
    with django_assert_max_num_queries(6):
        found = places(reader, session.id)
    listed = timezone.now()
    assert [id for id, *_ in found] == calls
    for call_id in calls[::200]:
        with django_assert_max_num_queries(8):
            assert len(numbers(shown(reader, session.id, call_id)["shown"])) <= 5 * EACH
    each = (timezone.now() - listed) / 10
    print(f"all places in {listed - began}, the messages of a call in {each}")
    assert listed - began < timedelta(seconds=2)
    assert each < timedelta(seconds=0.5)
