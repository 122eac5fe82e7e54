"""The inspector of a session whose messages are a tree: its branches, and on each page the branch that stood then."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agents_app.turns import lifecycle
from compaction_app import store as compaction_store
from compaction_app.compact import compact_now
from compaction_app.context.manifests import compare_calls, load_manifest
from compaction_app.context.state import load_state
from compaction_app.inspector.messages import trace
from compaction_app.inspector.occupancy import StandingInTree, load_occupancy
from compaction_app.queries import list_summaries
from mnesis_core.context.entries import SummaryEntry
from mnesis_core.context.fitting import SUMMARY_FRAME
from mnesis_core.records import SessionRecord
from sessions_app.database.threads import db
from sessions_app.models import MessagePart
from sessions_app.record import session_store
from sessions_app.record.branch_queries import load_path
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.test_branches import CONFIG, Talk
from tests.sessions_app.pages.test_branch_pages import branch, choose
from tests.support.people.cast import make_user
from tests.support.people.story import ended, history, say
from tests.support.record.inspected import add_summary, add_turn, claim, revise, tool_part
from tests.support.record.talks import exchange, new_session


@pytest.fixture
def reader(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def talk(alice: User, script: Any) -> Talk:
    """Eight turns that both branches share, summarised with what only branch 0 has, and then with what only branch 1 has."""
    script(lambda request: "- The ledgers moved.", window=4_000)
    talk = Talk(session=lifecycle.create_session(owner=alice, config=CONFIG))
    for _ in range(8):
        talk.say(8)
    shared = talk.tip
    for _ in range(6):
        talk.say(8)
    compact_now(talk.session.id)
    talk.say(2, after=shared)
    for _ in range(8):
        talk.say(8)
    compact_now(talk.session.id)
    return talk


def get(client: Client, session_id: str, path: str = "branches/", /, **query: Any) -> str:
    answer = client.get(f"/sessions/{session_id}/inspect/{path}", query)
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def test_a_session_without_branches_says_so(reader: Client, alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "one", "answer")
    page = get(reader, session_id)
    assert "No branches yet." in page
    assert "<table" not in page


def test_the_tree_is_drawn_and_listed_with_the_chosen_branch(reader: Client, alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "one", "answer")
    exchange(session_id, "two", "answer")
    branch(session_id, parent=0, after=2)
    exchange(session_id, "two otherwise", "answered <otherwise>")
    branch(session_id, parent=1, after=5, chosen=False)
    branch(session_id, parent=0, after=0, chosen=False)
    page = get(reader, session_id)
    assert "4 branches, 0 to 3 shown." in page
    rows = re.findall(r'<tr id="branch-(\d+)">(.*?)</tr>', page, re.DOTALL)
    words = {int(number): " ".join(re.sub(r"<[^>]+>", " ", row).split()) for number, row in rows}
    assert words == {
        0: "0 the start of the session 4 message 4 answer",
        1: "1 chosen message 2 of branch 0 2 message 6 answered &lt;otherwise&gt;",
        2: "2 message 5 of branch 1 0 no messages yet",
        3: "3 nothing: another beginning 0 no messages yet",
    }
    assert re.findall(r'class="tree-path" d="([^"]+)"', page) == ["M0.0 8H333.3", "M666.7 24H1000.0"]
    assert re.findall(r'class="tree-line" d="([^"]+)"', page) == ["M0.0 8H666.7", "M666.7 24H1000.0"]
    assert re.findall(r'class="tree-leaves"\s+d="([^"]+)"', page) == [
        "M333.3 8V24H666.7",
        "M833.3 24V40h4",
        "M0.0 8V56h4",
    ]
    assert f'href="/sessions/{session_id}/?branch=1&amp;at=6"' in page


def test_another_persons_branches_are_not_there_and_an_inspector_sees_them(inspector: Client, alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "one", "answer")
    branch(session_id, parent=0, after=1)
    stranger = Client()
    stranger.force_login(make_user("eve"))
    assert stranger.get(f"/sessions/{session_id}/inspect/branches/").status_code == 404
    page = get(inspector, session_id)
    assert "/inspect/messages/msg_" in page
    assert f'href="/sessions/{session_id}/?branch' not in page


@pytest.mark.slow
def test_ten_thousand_branches_come_in_pages(reader: Client, alice: User, django_assert_max_num_queries: Any) -> None:
    session_id = new_session(alice)
    exchange(session_id, "one", "answer")
    with change(session_id) as record:
        for _ in range(9_999):
            session_store.begin_branch(record, parent=0, after_seq=1)
        session_store.choose_branch(record, 7_000)
    began = timezone.now()
    with django_assert_max_num_queries(20):
        page = get(reader, session_id, "branches/", **{"from": 5_020})
    assert timezone.now() - began < timedelta(seconds=2)
    assert "10,000 branches, 5,000 to 5,049 shown." in page
    assert page.count("<tr id=") == 50
    assert 'The chosen branch is <a href="?from=7000#branch-7000">' in page
    assert len(page) < 80_000
    last = get(reader, session_id, "branches/", **{"from": 10**30})
    assert "9,950 to 9,999" in last
    assert "Later branches" not in last
    assert reader.get(f"/sessions/{session_id}/inspect/branches/", {"from": "x"}).status_code == 422


def test_a_drawing_has_the_summaries_that_serve_a_branch(reader: Client, talk: Talk) -> None:
    session_id = talk.session.id
    drawn = {number: json.loads(get(reader, session_id, "summaries/drawing.json", branch=number)) for number in (0, 1)}
    ids = {number: set(values["id"]) for number, values in drawn.items()}
    assert ids[0] & ids[1], "a shared beginning is summarised once"
    assert ids[0] - ids[1]
    assert ids[1] - ids[0]
    assert ids[0] | ids[1] == {summary.id for summary in list_summaries(session_id)}
    assert json.loads(get(reader, session_id, "summaries/drawing.json"))["id"] == drawn[1]["id"]
    for values in drawn.values():
        assert any(mark & 1 for mark in values["marks"])
    assert reader.get(f"/sessions/{session_id}/inspect/summaries/drawing.json", {"branch": 9}).status_code == 404
    page = get(reader, session_id, "summaries/", view="table", branch=0)
    assert "The chosen branch is 1." in page
    assert set(re.findall(r'data-id="(sum_\w+)"', page)) <= ids[0]
    assert f'data-drawing="/sessions/{session_id}/inspect/summaries/drawing.json?branch=1"' in get(
        reader, session_id, "summaries/"
    )


def test_a_summary_says_which_branches_it_serves(reader: Client, talk: Talk) -> None:
    session_id = talk.session.id
    ids = {
        number: set(json.loads(get(reader, session_id, "summaries/drawing.json", branch=number))["id"])
        for number in (0, 1)
    }

    def served(id: str) -> list[str]:
        place = re.search(r"<dt>Used by</dt>(.*?)</dd>", get(reader, session_id, f"summaries/{id}/"), re.DOTALL)
        return re.findall(r"branch=(\d+)", place[1]) if place else []

    assert served(min(ids[0] & ids[1])) == ["0", "1"]
    assert served(min(ids[0] - ids[1])) == ["0"]
    assert served(min(ids[1] - ids[0])) == ["1"]


def test_dividers_and_what_left_the_context_are_those_of_a_branch(reader: Client, talk: Talk) -> None:
    def divided(number: int) -> tuple[int, str]:
        page = reader.get(f"/sessions/{talk.session.id}/compactions/", {"branch": number}).content.decode()
        out = re.search(r'data-spans="([^"]*)"', page)
        assert out
        return page.count("data-after="), out[1]

    first, second = divided(0), divided(1)
    assert first != second
    assert (first[0], second[0]) == (1, 2)


def test_the_context_as_of_an_event_is_that_of_the_branch_of_then(inspector: Client, alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "one", "answer")
    exchange(session_id, "two", "answer")
    before = load_session(session_id).event_seq
    branch(session_id, parent=0, after=2)
    exchange(session_id, "two otherwise", "other answer")

    def shown(at: int) -> tuple[str, list[int]]:
        page = inspector.get(
            f"/admin/compaction_app/summarynode/inspect/{session_id}/context/", {"at": at}
        ).content.decode()
        said = re.search(r"It belongs to branch (\d+)", page)
        items = page.rpartition("<h2>")[2]
        return said[1] if said else "", [int(seq) for seq in re.findall(r"<td>message (\d+)</td>", items)]

    assert shown(before) == ("0", [1, 2, 3, 4])
    assert shown(load_session(session_id).event_seq) == ("1", [1, 2, 5, 6])
    choose(session_id, 0)
    assert shown(load_session(session_id).event_seq) == ("0", [1, 2, 3, 4])


def test_a_tombstone_of_another_branch_is_said_to_be_there(reader: Client, alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "one", "answer")
    ids = add_turn(session_id, "Read.", tool_part())
    part = MessagePart.objects.get(message_id=ids[1], part_type="tool").id
    run = claim(session_id)
    with change(session_id) as record:
        compaction_store.prune(record, run.id, [part], tokens=900)
    assert "The model sees a tombstone instead" in get(reader, session_id, "tombstones/")
    branch(session_id, parent=0, after=2)
    assert "It is on branch 0, which does not lead to the chosen branch" in get(reader, session_id, "tombstones/")
    choose(session_id, 0)
    assert "The model sees a tombstone instead" in get(reader, session_id, "tombstones/")


def test_the_ledger_says_in_words_what_became_of_branches(reader: Client, alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "one", "answer")
    branch(session_id, parent=0, after=1)
    branch(session_id, parent=0, after=0, chosen=False)
    page = get(reader, session_id, "ledger/")
    words = re.findall(r'<a href="(\S+/branches/\S+)">([^<]+)</a>', page)
    there = f"/sessions/{session_id}/inspect/branches/"
    assert words == [
        (f"{there}?from=2#branch-2", "branch 2 begins before the first message"),
        (f"{there}?from=1#branch-1", "branch 1 goes on"),
        (f"{there}?from=1#branch-1", "branch 1 begins after message 1 of branch 0"),
    ]
    entry = get(reader, session_id, "ledger/", seq=load_session(session_id).event_seq)
    assert "Branch 2 begins before the first message" in entry


@pytest.mark.slow
def test_a_messages_page_follows_the_branch(reader: Client, talk: Talk) -> None:
    session_id = talk.session.id
    messages = {message.seq: message.id for message in load_messages(session_id, limit=1_000)}

    def story(seq: int) -> str:
        return " ".join(get(reader, session_id, f"messages/{messages[seq]}/").split())

    assert "It is on branch 0, which does not lead to the chosen branch" in story(28)
    link = rf'<a href="/sessions/{session_id}/inspect/ledger/\?seq=(\d+)">event (\d+)</a>'
    assert re.search(rf"Not in the context since turn \d+</strong> \({link}\): a summary replaced it", story(1))
    assert re.search(rf"<strong>It is in the context now</strong>, since {link}\.", story(max(messages)))
    choose(session_id, 0)
    assert "<strong>It is in the context now</strong>" in story(28)
    assert "It is on branch 1" in story(max(messages))


def test_turns_say_their_branch_where_there_are_any(reader: Client, talk: Talk, alice: User) -> None:
    page = get(reader, talk.session.id, "")
    assert page.count('<span class="chip">branch 1</span>') == 9
    assert page.count('<span class="chip">branch 0</span>') == 14
    turn = re.search(r'href="/sessions/[^"]+/inspect/turns/([^"/]+)/"', page)
    assert turn
    assert "?from=1#branch-1" in get(reader, talk.session.id, f"turns/{turn[1]}/")
    line = new_session(alice)
    exchange(line, "one", "answer")
    assert '<span class="chip">branch' not in get(reader, line, "")


@pytest.mark.slow
async def test_calls_that_saw_a_message_and_what_each_showed_follow_the_branch(
    session: SessionRecord, script: Any
) -> None:
    script("1", "2", "3", "4")
    await say(session, "a")
    await say(session, "b")
    first, _, third, _ = await history(session)
    turn = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="c", parent_id=first.id)
    await ended(turn.turn)
    await say(session, "d")
    calls = [call.id for call in (await db(list_calls, session.id))[::-1]]

    def seen(message_id: str) -> tuple[int, list[str]]:
        path = load_path(session.id)
        story = trace(session.id, message_id, path=path)
        return story.seen["count"], [one["call"].id for one in story.seen["ends"]]

    assert await db(seen, first.id) == (4, [calls[0], calls[3]])
    assert await db(seen, third.id) == (1, [calls[1]])
    compared = await db(compare_calls, calls[2], owner_id=session.owner_id)
    reasons = {(change.change, change.reason) for change in compared.changes}
    assert reasons == {("left", "other_branch"), ("entered", "other_branch")}
    assert {change.id for change in compared.changes if change.change == "left"} == {
        third.id,
        (await history(session))[1].id,
    }
    occupancy = await db(load_occupancy, session.id)
    assert occupancy is not None
    assert len(occupancy.columns) == 4


@pytest.mark.slow
async def test_a_call_on_the_first_branch_is_read_without_what_the_others_said(
    session: SessionRecord, script: Any
) -> None:
    script("1", "2", "3", "4")
    await say(session, "a")
    first, _ = await history(session)
    turn = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="b", parent_id=first.id)
    await ended(turn.turn)
    await db(choose, session.id, 0)
    await say(session, "c")
    [newest, *_] = await db(list_calls, session.id)
    assert [row["seq"] for row in await db(load_manifest, newest) if row["kind"] == "message"] == [1, 2, 5]
    messages = await history(session)

    # A summary of branch 0 hides nothing from the calls of branch 1.
    def summarise() -> None:
        add_summary(session.id, claim(session.id), [first.id, messages[1].id], (1, 2))
        choose(session.id, 1)

    await db(summarise)
    await say(session, "d")
    await db(choose, session.id, 0)
    path = await db(load_path, session.id)
    story = await db(trace, session.id, first.id, path=path)
    assert story.replaced_by
    assert story.seen["count"] == 4
    assert (await db(trace, session.id, messages[1].id, path=path)).seen["count"] == 1


def test_a_tombstone_and_the_table_are_those_of_the_branch(reader: Client, alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "one", "answer")
    ids = add_turn(session_id, "Read.", tool_part())
    exchange(session_id, "two", "answer")
    part = MessagePart.objects.get(message_id=ids[1], part_type="tool").id
    run = claim(session_id)
    with change(session_id) as record:
        compaction_store.prune(record, run.id, [part], tokens=900)
    seqs = {message.id: message.seq for message in load_messages(session_id)}
    first, last = min(seqs[id] for id in ids), max(seqs[id] for id in ids)
    branch(session_id, parent=0, after=last)
    more = exchange(session_id, "three", "answer")
    end = max(message.seq for message in load_messages(session_id))
    long = add_summary(session_id, run, [*ids, *more], (first, end), count=len(ids) + 2, branch=1)
    choose(session_id, 0)
    assert "The model sees a tombstone instead" in get(reader, session_id, "tombstones/")
    short = add_summary(session_id, run, ids, (first, last))
    for number, id in ((0, short), (1, long)):
        choose(session_id, number)
        page = get(reader, session_id, "tombstones/")
        assert "The model sees a summary that covers it" in page
        assert f"summaries/{id}/" in page
    newest = revise(session_id, short, ids)
    choose(session_id, 0)
    assert re.findall(r'data-id="(sum_\w+)"', get(reader, session_id, "summaries/", view="table")) == [newest]


def test_the_occupancy_counts_the_summaries_of_the_branch_of_each_call(talk: Talk) -> None:
    sizes = {summary.id: 10**place for place, summary in enumerate(list_summaries(talk.session.id))}
    for number in (0, 1):
        tree = StandingInTree(talk.session.id, sizes, {"call": number})
        state = load_state(talk.session.id, branch=number)
        ids = [entry.id for entry in state.entries if isinstance(entry, SummaryEntry)]
        assert ids
        assert tree.at(load_session(talk.session.id).event_seq, "call") == sum(sizes[id] + SUMMARY_FRAME for id in ids)
