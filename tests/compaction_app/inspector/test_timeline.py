"""The inspector's timeline and tombstones: what all turns together say, to whom, and what they ask the database."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compaction_app import store as compaction_store
from mnesis_core.messages import TextPart, ToolState
from mnesis_core.records import MessageEnd
from sessions_app.models import MessagePart, Turn
from sessions_app.pages.permissions import SEES_RECORDS
from sessions_app.record.change import change
from sessions_app.record.session_store import create_session
from sessions_app.record.timeline_queries import TurnFilter, list_timeline
from sessions_app.record.turn_store import finish_call, start_call, start_turn
from tests.support.record.belongings import start_lone_call
from tests.support.record.inspected import ORIGINAL, USAGE, add_summary, add_turn, claim, finish, texts_in, tool_part
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool
from tests.support.record.voyage import Ask, Voyage, sail

pytestmark = pytest.mark.django_db
ADDRESSES = (
    "",
    "totals/",
    "turns/",
    "turns/{turn}/",
    "turns/{turn}/steps/",
    "compactions/{run}/",
    "tombstones/",
    "tombstones/rows/",
    "outputs/{part}/",
)


def turns_in(page: str) -> list[int]:
    """The turns that a list shows."""
    return [int(seq) for seq in re.findall(r'id="turn-(\d+)"', page)]


# Who may look


@pytest.mark.parametrize("path", ADDRESSES)
def test_somebody_else_s_inspector_is_not_found_at_any_address(path: str, owner_client: Client) -> None:
    voyage = sail(User.objects.create_user("eve"))
    answer = owner_client.get(voyage.at(path))
    assert answer.status_code == 404
    assert b"Harbour" not in answer.content
    assert ORIGINAL.encode() not in answer.content


def test_staff_look_only_with_every_permission(client: Client) -> None:
    voyage = sail(User.objects.create_user("eve"))
    staff = User.objects.create_user("sam", is_staff=True)
    client.force_login(staff)
    names = [name.partition(".")[2] for name in SEES_RECORDS]
    staff.user_permissions.set(Permission.objects.filter(codename__in=names[1:]))
    assert client.get(voyage.at("")).status_code == 404
    staff.user_permissions.set(Permission.objects.filter(codename__in=names))
    page = client.get(voyage.at("")).content.decode()
    assert turns_in(page) == [4, 3, 2, 1]
    assert f'href="/sessions/{voyage.id}/"' not in page  # the conversation is its owner's alone
    assert client.get(voyage.at("outputs/{part}/")).content.decode() == ORIGINAL
    steps = client.get(voyage.at("turns/{turn}/steps/")).content.decode()
    links = re.findall(r'class="step-title" href="([^"]+)"', steps)
    assert len(links) == 4
    # What a call was sent takes more permissions still.
    assert [client.get(link).status_code for link in links if "/calls/" not in link] == [200] * 3


def test_a_stranger_signs_in_first_and_nothing_can_be_sent(voyage: Voyage, owner_client: Client) -> None:
    answer = Client().get(voyage.at(""))
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/sign-in/")
    assert owner_client.post(voyage.at("")).status_code == 405


def test_a_turn_or_an_output_is_found_only_in_its_own_session(
    owner: User, voyage: Voyage, owner_client: Client
) -> None:
    other = new_session(owner)
    for path in ("turns/{turn}/", "turns/{turn}/steps/", "compactions/{run}/", "outputs/{part}/"):
        there = voyage.at(path).replace(voyage.id, other)
        assert owner_client.get(there).status_code == 404, there
    assert (
        "No tombstones yet."
        in owner_client.get(f"/sessions/{other}/inspect/tombstones/?part={voyage.part}").content.decode()
    )


# Turns


def test_the_newest_turn_stands_first_with_what_it_took(voyage: Voyage, ask: Ask) -> None:
    page = ask(voyage.at(""))
    assert turns_in(page) == [4, 3, 2, 1]
    assert "Read the log of the north port." in page
    assert "The model wants a pause." in page
    assert page.count('<span class="chip chip-accent">1 compaction</span>') == 1
    row = page[page.index('id="turn-1"') :]
    took, cost = (re.search(rf'data-name="{name}">([^<]*)<', row) for name in ("took", "cost"))
    assert took
    assert re.fullmatch(r"\d+ m?s", took[1])
    assert cost
    assert cost[1].startswith("$0.00")
    assert "1,200" in row  # tokens
    assert "style=" not in page


def test_the_overview_counts_everything(voyage: Voyage, ask: Ask) -> None:
    facts = " ".join(ask(voyage.at("totals/")).split())
    numbers = dict(re.findall(r"<dt>([\w ]+)</dt> <dd> ([^<]+?) <", facts))
    assert numbers == {
        "Turns": "4",
        "Calls": "3",
        "Tools": "3",
        "Tokens in": "4,500",
        "Tokens out": "384",
        "Cost": "$0.003744",
        "Compactions": "1",
        "Errors": "1",
    }
    assert "1 turn<" in facts
    assert "beside turns" not in facts
    with change(voyage.id) as record:
        start_lone_call(record, "summary")
    assert "1 more beside turns" in ask(voyage.at("totals/"))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=failed", [2]),
        ("errors=1", [2]),
        ("compactions=1", [3]),
        ("tool=read_log", [4, 3, 1]),
        ("tool=READ", []),
        ("q=READ_L", [4, 3, 1]),
        ("q=pause", [2]),
        ("q=rate_limited", [2]),
        ("q=read&state=failed", []),
        ("before=3", [2, 1]),
        ("before=1", []),
        ("from=3", [4, 3]),
        ("turn=3", [3, 2, 1]),
        ("turn=3&before=2", [1]),
        (f"turn={10**40}", [4, 3, 2, 1]),
        ("q=%00", []),
        ("tool=%ED%A0%80", []),
        (f"before={10**40}", [4, 3, 2, 1]),
    ],
)
def test_turns_are_filtered_by_the_address(query: str, found: list[int], voyage: Voyage, ask: Ask) -> None:
    assert turns_in(ask(voyage.at(f"turns/?{query}"))) == found
    if not query.startswith("from"):
        assert turns_in(ask(voyage.at(f"?{query}"))) == found


@pytest.mark.parametrize("query", ["before=x", "before=-1", "from=1e3", "state=odd", "before=%00", "state=%00"])
def test_a_wrong_filter_is_an_invalid_request(query: str, voyage: Voyage, owner_client: Client) -> None:
    assert owner_client.get(voyage.at(f"?{query}")).status_code == 422


def test_a_failed_tool_counts_as_an_error_of_its_turn(owner: User, ask: Ask) -> None:
    session_id = new_session(owner)
    exchange(session_id, "Hello", "Good day")
    say(session_id, ("assistant", [tool(tool_name="dig", state=ToolState.ERROR, error="The spade broke.")]))
    assert turns_in(ask(f"/sessions/{session_id}/inspect/?errors=1")) == [2]
    assert turns_in(ask(f"/sessions/{session_id}/inspect/?q=spade")) == [2]


def test_a_list_is_paged_by_turn_and_never_says_one_twice(owner: User, ask: Ask) -> None:
    session_id = new_session(owner)
    for number in range(52):
        exchange(session_id, f"question {number}", "answer")
    first = ask(f"/sessions/{session_id}/inspect/")
    more = re.search(r'hx-get="(/sessions/[^"]+before=\d+)"', first)
    assert more
    assert turns_in(first) + turns_in(ask(more[1])) == list(range(52, 0, -1))


def test_a_session_without_turns_says_what_will_stand_there(owner: User, ask: Ask) -> None:
    session_id = create_session(owner=owner, model="demo")
    assert "No turns yet." in ask(f"/sessions/{session_id}/inspect/")
    assert "No tombstones yet." in ask(f"/sessions/{session_id}/inspect/tombstones/")


def test_a_turn_that_runs_counts_what_its_calls_took_so_far(owner: User) -> None:
    session_id = new_session(owner)
    with change(session_id) as record:
        turn = start_turn(record, model="demo")
        for number in range(2):
            call = start_call(
                record,
                turn_id=turn,
                message_id=None,
                model="demo",
                provider_model="demo/chat",
                parameters={},
                manifest=[],
                context_seq=1,
                digest="ab" * 32,
                estimated_tokens=7,
            )
            if number == 0:
                finish_call(record, call, MessageEnd(outcome="complete", usage=USAGE))
    [line] = list_timeline(session_id, TurnFilter())
    assert (line.state, line.calls, line.usage.tokens_input) == ("running", 2, 1_200)


# Hostile texts, and how much is asked


def test_hostile_text_is_shown_and_does_nothing(owner: User, ask: Ask) -> None:
    session_id = new_session(owner, title=HOSTILE)
    parts = [
        TextPart(text=HOSTILE),
        tool(tool_name=HOSTILE, input=f'{{"path": "{HOSTILE}"}}', output=HOSTILE),
        tool(tool_call_id="2", tool_name=HOSTILE, state=ToolState.ERROR, error=HOSTILE),
    ]
    say(session_id, ("user", [TextPart(text=HOSTILE)]), ("assistant", parts), error_code="X", error_message=HOSTILE)
    turn = Turn.objects.get(session_id=session_id).id
    part = MessagePart.objects.filter(session_id=session_id, output__isnull=False).get().id
    run = claim(session_id)
    with change(session_id) as record:
        compaction_store.prune(record, run.id, [part], tokens=9)
    here = f"/sessions/{session_id}/inspect/"
    page = ask(here) + ask(f"{here}turns/{turn}/") + ask(f"{here}tombstones/")
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
    assert not re.search(r"<img(?! src=\"/static/)", page)
    assert "\u202e" not in page
    assert any("<script>alert(1)</script>" in text for text in texts_in(page, "bdi"))


def count_queries(owner_client: Client, path: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert owner_client.get(path).status_code == 200
    return len(captured)


@pytest.mark.slow
def test_no_page_asks_more_of_a_longer_session(owner: User, owner_client: Client) -> None:
    short = sail(owner)
    long = sail(owner)
    for number in range(40):
        ids = add_turn(long.id, f"question {number}", tool_part(call_id=f"d{number}"), tool_part(call_id=f"e{number}"))
        run = claim(long.id)
        parts = MessagePart.objects.filter(message_id=ids[1], part_type="tool").values_list("id", flat=True)
        with change(long.id) as record:
            compaction_store.prune(record, run.id, list(parts), tokens=9)
        add_summary(long.id, run, ids, (2 * number + 8, 2 * number + 9))
        finish(long.id, run)
    for path, most in (
        ("", 20),
        ("turns/", 11),
        ("turns/?errors=1&tool=read_log&q=log&compactions=1", 12),
        ("totals/", 8),
        ("turns/{turn}/steps/", 13),
        ("tombstones/", 14),
    ):
        needed = count_queries(owner_client, long.at(path))
        assert needed == count_queries(owner_client, short.at(path)), path
        assert needed <= most, (path, needed)


def test_the_chat_page_leads_to_the_inspector(voyage: Voyage, ask: Ask) -> None:
    assert f'href="/sessions/{voyage.id}/inspect/"' in ask(f"/sessions/{voyage.id}/")
