"""What the model saw, in the inspector: calls, the scrub bar, one call in three sections, and who saw a message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from compaction_app.compact import compact_now
from compaction_app.context.manifests import with_manifests
from compaction_app.context.state import rebuild_payload
from compaction_app.inspector.calls import BLOCKS, open_call
from compaction_app.inspector.messages import trace
from compaction_app.inspector.occupancy import load_occupancy
from compaction_app.queries import list_summaries
from compaction_app.templatetags.compaction import CHANGES, REASONS, cache_saved
from mnesis_core.context.prompt_diff import Change, Reason
from mnesis_core.context.replay import BlockKind
from mnesis_core.context.wording import message_row
from mnesis_core.llm.interface import Request, ToolCall
from mnesis_core.providers.rendering import outgoing
from mnesis_core.providers.scripted import Script
from mnesis_core.records import SessionRecord, UsageRecord
from sessions_app.database.guards.triggers import guarded_models, install_guards, remove_guards
from sessions_app.database.threads import db
from sessions_app.models import MessagePart, ModelCall
from sessions_app.pages.permissions import SEES_RECORDS
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message, load_messages
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.context.test_rebuilding import add_call
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.story import say
from tests.support.record.inspected import add_turn

SUM = ToolCall(id="c1", name="calculator", arguments='{"expression": "6*7"}')
HOSTILE = "<img src=x onerror=alert(1)></pre><script>alert(2)</script> \u202egpj.exe \x00 \ud800"
BAD_NUMBERS = ("x", "-1", "%00", "9" * 400, "1e30", "٣")


def reply(request: Request) -> Script:
    if "MNESIS-SUMMARISE" in str(request.payload["messages"][0]["content"]):
        return "## Goal\n- Sums."
    return SUM if request.payload["messages"][-1]["role"] == "user" else "It is 42."


@pytest.fixture
def reader(client: Client, alice: User) -> Client:
    """Alice at her inspector."""
    client.force_login(alice)
    return client


def page(reader: Client, name: str, *args: Any, status: int = 200, **query: Any) -> str:
    """A page of the inspector."""
    answer = reader.get(reverse(name, args=args), query)
    assert answer.status_code == status, answer.content[:500]
    return answer.content.decode()


def oldest_first(session: SessionRecord) -> list[Any]:
    """The calls of turns."""
    return [call for call in with_manifests(list_calls(session.id))[::-1] if call.purpose == "turn"]


async def talk(session: SessionRecord, turns: int) -> None:
    """Some turns, each with a tool call between two calls of the model."""
    for number in range(turns):
        await say(session, f"How much is it? {number} " + "and why, dear? " * 60)


async def test_every_call_is_shown_with_its_proof_and_in_blocks_that_are_what_was_sent(session, script, reader):
    model = script(reply)
    await talk(session, 4)
    await db(prune_newest, session)
    await db(compact_now, session.id)
    await say(session, HOSTILE)
    calls = await db(oldest_first, session)
    sent = [request.payload for request in model.requests if "MNESIS" not in str(request.payload["messages"][0])]
    seen = set()
    for call, payload in zip(calls, sent, strict=True):
        shown = await db(page, reader, "inspect-call", session.id, call.id)
        assert "matches its digest" in shown
        text = json.dumps([payload["messages"], payload.get("tools")], ensure_ascii=False)
        for block in (await db(open_call, call)).blocks:
            seen.add(block.kind)
            for _, said in block.texts if block.kind is not BlockKind.TOOL else [("name", block.name)]:
                assert json.dumps(outgoing(said), ensure_ascii=False)[1:-1] in text
    kinds = {BlockKind.MESSAGE, BlockKind.TOOL, BlockKind.TOOL_OUTPUT, BlockKind.TOMBSTONE, BlockKind.SUMMARY}
    assert seen == kinds | {BlockKind.PASSAGES}


def prune_newest(session: SessionRecord) -> None:
    """Make a tombstone of the newest tool's output."""
    part = MessagePart.objects.filter(session_id=session.id, part_type="tool").order_by("message__seq").last()
    assert part is not None
    with change(session.id) as record:
        message_store.tombstone_parts(record, [part.id])


@pytest.mark.owner
def test_the_first_token_is_shown_of_calls_that_have_one(session, reader, unguarded):
    add_turn(session.id, "Hi")
    [call] = list_calls(session.id)
    assert "First token" not in page(reader, "inspect-call", session.id, call.id)
    ModelCall.objects.filter(id=call.id).update(first_token_ms=340)
    shown = page(reader, "inspect-call", session.id, call.id)
    assert "First token" in shown
    assert "340 ms" in shown
    assert reader.get(f"/api/calls/{call.id}").json()["first_token_ms"] == 340


@pytest.mark.owner
def test_what_a_cache_keeps_for_an_hour_is_shown_of_calls_that_have_some(session, reader, unguarded):
    add_turn(session.id, "Hi")
    [call] = list_calls(session.id)
    for hour, shown in ((None, ""), (0, ""), (2_000, ", 2,000 of these for an hour")):
        ModelCall.objects.filter(id=call.id).update(tokens_cache_write=3_000, tokens_cache_write_1h=hour)
        assert f"cache 3,000 written{shown}<" in page(reader, "inspect-call", session.id, call.id)


def test_what_filling_a_cache_cost_counts_an_hour_apart(session):
    add_turn(session.id, "Hi")
    [call] = list_calls(session.id)
    prices = {"input": 3_000_000, "cache_write": 4_000_000, "cache_write_1h": 6_000_000}
    call = replace(call, usage=UsageRecord(tokens_cache_read=0, tokens_cache_write=3_000_000))
    for hour, marked, cost in (
        (None, "5m", "3.00"),
        (None, "1h", "9.00"),
        (0, "1h", "3.00"),
        (2_000_000, "5m", "7.00"),
    ):
        given = {"prices": prices, "cache": {"lifetime": marked}}
        said = cache_saved(replace(call, parameters=given, tokens_cache_write_1h=hour))
        assert said == f"${cost} of it to fill the cache"


async def test_a_phrase_that_was_compacted_away_leads_to_its_summary_and_to_the_calls_that_saw_it(
    session, script, reader
):
    model = script(reply)
    await talk(session, 5)
    await db(compact_now, session.id)
    await say(session, "And now?")
    calls = await db(oldest_first, session)
    [summary, *_] = await db(list_summaries, session.id)
    question = (await db(load_messages, session.id))[0]
    saw = [
        call
        for call, request in zip(
            calls, [one for one in model.requests if "MNESIS" not in str(one.payload)], strict=True
        )
        if "How much is it? 0" in str(request.payload["messages"])
    ]
    story = await db(trace, session.id, question.id)
    assert (story.seen["count"], story.seen["ends"][0]["call"].id, story.seen["ends"][-1]["call"].id) == (
        len(saw), saw[0].id, saw[-1].id,
    )  # fmt: skip
    assert (story.seen["ends"][0]["how"], story.seen["ends"][-1]["how"], story.removed_turn) == ("whole", "whole", 5)
    assert 0 < len(saw) < len(calls)
    shown = await db(page, reader, "inspect-sightings", session.id, question.id)
    assert "Not in the context since turn 5" in shown
    assert reverse("inspect-call", args=[session.id, saw[-1].id]) in shown
    assert f"summary of messages {summary.first_seq}–{summary.last_seq}" in shown
    after = calls[calls.index(saw[-1]) + 1]
    difference = await db(page, reader, "inspect-call", session.id, after.id, section="difference")
    assert "A summary covers it now." in difference
    assert reverse("inspect-sightings", args=[session.id, question.id]) in difference
    answer = (await db(load_messages, session.id))[1]
    written = await db(page, reader, "inspect-sightings", session.id, answer.id)
    assert reverse("inspect-call", args=[session.id, calls[0].id]) in written


async def test_an_output_that_became_a_tombstone_says_who_saw_it_whole(session, script, reader):
    script(reply)
    await talk(session, 2)
    await db(prune_newest, session)
    await talk(session, 2)
    part = await db(MessagePart.objects.select_related("message").get, compacted_at__isnull=False)
    calls = await db(oldest_first, session)
    rows = [(call.id, row) for call in calls for row in call.manifest if row["id"] == part.message_id]
    whole = [call_id for call_id, row in rows if part.id not in row["tombstoned"]]
    story = await db(trace, session.id, part.message_id)
    [tombstone] = story.tombstones
    assert (tombstone["part_ids"], tombstone["seq"], tombstone["turn_seq"]) == ([part.id], part.compacted_seq, 2)
    assert [end["call"].id for end in tombstone["whole_in"]["ends"]] == list(dict.fromkeys([whole[0], whole[-1]]))
    assert (tombstone["whole_in"]["count"], story.seen["count"]) == (len(whole), len(rows))
    assert len(whole) < len(rows)
    shown = await db(page, reader, "inspect-sightings", session.id, part.message_id)
    assert "became a tombstone in turn 2" in shown


async def test_the_difference_of_any_two_calls_is_counted_and_priced(session, script, reader):
    script(reply)
    await talk(session, 2)
    first, *_, last = await db(oldest_first, session)
    shown = await db(page, reader, "inspect-call", session.id, last.id, compare=first.id)
    answer = await db(reader.get, reverse("inspect-call", args=[session.id, last.id]), {"compare": first.id})
    grown = sum(change["tokens"] or 0 for change in answer.context["changes"])
    assert grown == last.estimated_tokens - first.estimated_tokens
    assert "Added since then." in shown
    one_kind = await db(page, reader, "inspect-call", session.id, last.id, section="difference", change="grew")
    assert "Added since then." not in one_kind
    beginning = await db(page, reader, "inspect-call", session.id, first.id, section="difference")
    assert "This is the first call, so everything is new" in beginning
    await db(page, reader, "inspect-call", session.id, first.id, compare=last.id, status=422)
    await db(page, reader, "inspect-call", session.id, last.id, compare="call_none", status=404)


def test_every_difference_and_its_reason_has_words() -> None:
    assert set(CHANGES) == set(get_args(Change))
    assert set(REASONS) == set(get_args(Reason))


async def test_the_payload_comes_in_pieces_and_as_a_file(session, script, reader):
    model = script("Fine.")
    await say(session, HOSTILE + " word" * 6_000)
    [call] = await db(oldest_first, session)
    shown = await db(page, reader, "inspect-call", session.id, call.id, section="payload")
    assert "Show the next" in shown
    more = await db(page, reader, "inspect-payload", session.id, call.id, offset=20_000)
    assert " word word" in more
    assert "Show the next" not in more
    assert "Show the next" not in await db(page, reader, "inspect-payload", session.id, call.id, offset=10**17)
    whole = await db(page, reader, "inspect-payload-file", session.id, call.id)
    assert json.loads(whole) == model.requests[0].payload
    for body in (shown, more, await db(page, reader, "inspect-block", session.id, call.id, 1)):
        assert "<script>alert" not in body
        assert "<img src=x" not in body
        assert "\u202e" not in body


@pytest.fixture
def unguarded(transactional_db: None) -> Iterator[None]:
    """The guards away, as for the owner of the database."""
    remove_guards(connection, guarded_models())
    yield
    install_guards(connection, guarded_models())


@pytest.mark.owner
def test_a_payload_that_was_tampered_with_is_said_to_be_another_one(session, reader, unguarded):
    question = load_message(add_turn(session.id, "How high is the tide?")[0], session_id=session.id)
    add_call(session.id, [message_row(question)])
    right = rebuild_payload(list_calls(session.id)[0]).digest
    call_id = add_call(session.id, [message_row(question)], digest=right)
    assert "and matches its digest" in page(reader, "inspect-call", session.id, call_id)
    plain(MessagePart).filter(message_id=question.id).update(content="How low?")
    shown = page(reader, "inspect-call", session.id, call_id)
    assert "it does not match its digest" in shown
    assert "and matches its digest" not in shown
    assert right in shown
    plain(ModelCall).filter(id=call_id).update(manifest=[7])
    broken = page(reader, "inspect-call", session.id, call_id)
    assert "This prompt cannot be rebuilt from the record." in broken
    assert "row 1" in broken
    for section in ("payload", "blocks"):
        assert "not available." in page(reader, "inspect-call", session.id, call_id, section=section)
    page(reader, "inspect-payload", session.id, call_id, status=404)
    page(reader, "inspect-payload-file", session.id, call_id, status=404)
    page(reader, "inspect-block", session.id, call_id, 1, status=404)


def test_an_imported_manifest_that_names_what_is_not_there_is_shown_as_far_as_it_goes(session, reader):
    row = {"kind": "message", "id": "msg/../x", "seq": 1, "parts": 1, "tombstoned": [], "unanswered": [], "omitted": []}
    call_id = add_call(session.id, [row | {"shortened": []}])
    assert "msg/../x" in page(reader, "inspect-call", session.id, call_id)
    assert "not available." in page(reader, "inspect-call", session.id, call_id, section="payload")


def addresses(session_id: str, call_id: str, message_id: str) -> list[str]:
    """Every page about calls."""
    return [
        reverse("inspect-calls", args=[session_id]),
        reverse("inspect-call-at", args=[session_id]),
        reverse("inspect-call", args=[session_id, call_id]),
        reverse("inspect-block", args=[session_id, call_id, 1]),
        reverse("inspect-payload", args=[session_id, call_id]),
        reverse("inspect-payload-file", args=[session_id, call_id]),
        reverse("inspect-sightings", args=[session_id, message_id]),
    ]


async def test_nobody_else_sees_any_of_it_but_staff_who_see_all_records(session, script, client, alice, bob):
    script("Fine.")
    await say(session, "How high is the tide?")
    [call] = await db(oldest_first, session)
    message = (await db(load_messages, session.id))[0]
    await db(check_status, addresses(session.id, call.id, message.id), client, alice, bob)


def check_status(places: list[str], client: Client, alice: User, bob: User) -> None:
    def ask(status: set[int]) -> None:
        assert {client.get(place).status_code for place in places} == status

    ask({302})
    client.force_login(alice)
    ask({200, 302})
    client.force_login(bob)
    ask({404})
    bob.is_staff = True
    bob.save()
    for name in SEES_RECORDS:
        ask({404})
        app, codename = name.split(".")
        bob.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    text = Permission.objects.get(codename="view_prompttext")
    assert client.get(places[2]).status_code == 404, "a payload holds the tools' descriptions as well"
    bob.user_permissions.add(text)
    ask({200, 302})
    assert client.post(places[0]).status_code == 405


def test_a_call_is_not_shown_under_another_session(session, reader, alice):
    elsewhere = session_store.create_session(owner=alice, model="demo")
    call_id = add_call(elsewhere, [])
    for place in addresses(session.id, call_id, "msg_none")[2:]:
        assert reader.get(place).status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_bad_numbers_in_an_address_never_make_an_error_of_ours(session, reader, value):
    call_id = add_call(session.id, [])
    places = addresses(session.id, call_id, "msg_none")
    names = ("place", "from", "offset", "before", "compare", "section", "purpose", "state", "model", "change", "text")
    for place in places:
        for name in names:
            assert reader.get(f"{place}?{name}={value}&section=difference").status_code < 500
    assert reader.get(reverse("inspect-block", args=[session.id, call_id, 10**30])).status_code == 404


def test_a_session_that_asked_no_model_says_what_will_stand_here(session, reader):
    assert "No model calls yet." in page(reader, "inspect-calls", session.id)
    page(reader, "inspect-call-at", session.id, place=3, status=404)


def add_calls(session_id: str, count: int) -> list[str]:
    """Calls of turns with ever larger contexts, each with a manifest that nobody wants to read thousands of."""
    manifest = [{"kind": "system", "id": "", "head": 1, "tail": 1}] * 50
    return [add_call(session_id, manifest) for _ in range(count)]


def test_the_list_goes_on_by_a_cursor_and_is_filtered(session, reader):
    ids = add_calls(session.id, 60)
    first = reader.get(reverse("inspect-calls", args=[session.id]))
    assert [call.id for call, _ in first.context["calls"]] == ids[:9:-1]
    assert [number for _, number in first.context["calls"]][:2] == [60, 59]
    second = reader.get(first.context["older_url"])
    assert [call.id for call, _ in second.context["calls"]] == ids[9::-1]
    assert second.context["older_url"] == ""
    none = page(reader, "inspect-calls", session.id, state="failed")
    assert "No matching calls." in none
    assert "No matching calls." not in page(reader, "inspect-calls", session.id, purpose="turn", model="demo")


def test_no_page_asks_more_of_the_database_for_many_calls_or_reads_their_manifests(session, reader, alice):
    def statements(session_id: str, count: int) -> dict[str, list[str]]:
        ids = add_calls(session_id, count)
        found = {}
        for place in addresses(session_id, ids[-1], "msg_none")[:4]:
            with CaptureQueriesContext(connection) as captured:
                assert reader.get(place).status_code < 400
            found[place.replace(session_id, "").replace(ids[-1], "")] = [query["sql"] for query in captured]
        return found

    def of_message(session_id: str) -> int:
        message_id = add_turn(session_id, "How high?")[0]
        with CaptureQueriesContext(connection) as captured:
            page(reader, "inspect-sightings", session_id, message_id)
        return len(captured)

    few = statements(session.id, 3)
    other = session_store.create_session(owner=alice, model="demo")
    many = statements(other, 80)
    assert of_message(session.id) == of_message(other)
    assert {place: len(said) for place, said in few.items()} == {place: len(said) for place, said in many.items()}
    listed = next(said for place, said in many.items() if place.endswith("/calls/"))
    # The meter reads that of the newest call, with which the next prompt begins.
    assert not [said for said in listed if '"manifest"' in said and not said.endswith("LIMIT 1")]


async def test_the_scrub_bar_shows_what_each_call_took_and_leads_to_it(session, script, reader):
    script(reply)
    await talk(session, 5)
    await db(compact_now, session.id)
    await say(session, "And now?")
    calls = await db(oldest_first, session)
    occupancy = await db(load_occupancy, session.id)
    assert [column.call_id for column in occupancy.columns] == [call.id for call in calls]
    assert [column.summaries > 0 for column in occupancy.columns] == [False] * 10 + [True] * 2
    assert all(column.opening > 0 for column in occupancy.columns)
    assert [mark.before for mark in occupancy.marks] == [10]
    shown = await db(page, reader, "inspect-call", session.id, calls[3].id)
    assert 'value="4"' in shown
    assert ">compaction\n" in shown
    assert "automatic excerpt" not in shown
    there = await db(reader.get, reverse("inspect-call-at", args=[session.id]), {"place": "4", "section": "payload"})
    assert there["Location"] == reverse("inspect-call", args=[session.id, calls[3].id]) + "?section=payload"


@pytest.mark.slow
async def test_a_prompt_of_thousands_of_blocks_comes_in_pages(session, script, reader):
    script(lambda request: "Fine.", window=2_000_000)
    for number in range(60):
        await say(session, f"Question {number}")
    call = (await db(oldest_first, session))[-1]
    first = await db(page, reader, "inspect-call", session.id, call.id)
    assert first.count('class="block"') == BLOCKS
    later = await db(reader.get, reverse("inspect-call", args=[session.id, call.id]), {"from": str(BLOCKS)})
    assert later.context["last"] == later.context["total"]


async def test_a_question_for_a_summary_is_shown_as_well(session, script, reader):
    script(reply)
    await talk(session, 5)
    await db(compact_now, session.id)
    [call] = [call for call in await db(list_calls, session.id) if call.purpose == "summary"]
    shown = await db(page, reader, "inspect-call", session.id, call.id)
    assert "matches its digest" in shown
    assert "made outside a turn" in shown
    block = await db(page, reader, "inspect-block", session.id, call.id, 1)
    assert "MNESIS-SUMMARISE" in block
    assert "Block 1: System prompt" in block
    refused = await db(page, reader, "inspect-call", session.id, call.id, section="difference")
    assert "Only calls of turns and of the gateway can be compared." in refused
