"""The pages of runs: whose they are, what they show of each, what they cost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents_app import store
from agents_app.maps.views import PAGE, spell_of
from agents_app.queries import load_run
from mnesis_core.maps.throughput import Ending
from mnesis_core.maps.values import RunState
from mnesis_core.messages import TextPart, ToolPart, ToolState
from mnesis_core.spending import TurnLimits
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message
from sessions_app.schemas import place_of
from tests.support.people.cast import make_user
from tests.support.people.pages import Ask, ask, browser, reader
from tests.support.record.operators import accept, add_run, claim, finish, refuse, settle, tried
from tests.support.record.talks import new_session, say

__all__ = ["ask", "browser", "reader"]

pytestmark = pytest.mark.django_db
PARTS = (
    "",
    "progress/",
    "charts/",
    "items/",
    "items/1/",
    "items/1/input/",
    "items/1/tries/1/output/",
    "items/1/tries/1/prompt/",
)


# Who sees what


@pytest.mark.parametrize("end", PARTS)
def test_another_persons_run_is_not_found_at_any_address(end: str, browser: Client) -> None:
    run_id = tried(new_session(make_user("bob"), title="secret"))
    answer = browser.get(f"/runs/{run_id}/{end}")
    assert answer.status_code == 404
    assert b"0000001" not in answer.content
    assert Client().get(f"/runs/{run_id}/{end}").status_code == 302


def test_the_list_holds_the_readers_own_runs_alone(ask: Ask, browser: Client, reader: User) -> None:
    bobs = new_session(make_user("bob"))
    tried(bobs, path="/of-bob.jsonl")
    assert "No runs yet." in ask("/runs/")
    tried(new_session(reader, title="Tides"), path="/of-ada.jsonl")
    page = ask("/runs/")
    for words in ("of-ada.jsonl", "Tides", "2 of 3", "1 failed", "running"):
        assert words in page
    assert "of-bob.jsonl" not in page
    assert browser.get("/runs/", {"session": bobs}).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "/runs/map_nowhere/",
        "/runs/%00/",
        "/runs/{run}/items/99/",
        "/runs/{run}/items/0/",
        "/runs/{run}/items/99999999999999999999999/",
        "/runs/{run}/items/1/tries/7/output/",
        "/runs/{run}/items/1/tries/99999999999999999999/output/",
        "/runs/{run}/items/3/tries/1/prompt/",
    ],
)
def test_what_is_not_there_is_not_found(address: str, browser: Client, reader: User) -> None:
    assert browser.get(address.format(run=tried(new_session(reader)))).status_code == 404


@pytest.mark.parametrize("query", ["state=done", "from=x", "before=-1", "state=%00"])
def test_what_cannot_be_asked_is_refused(query: str, browser: Client, reader: User) -> None:
    run_id = tried(new_session(reader))
    assert browser.get(f"/runs/{run_id}/items/?{query}").status_code == 422
    assert browser.get("/runs/?cursor=yesterday").status_code == 422


# The list


def test_many_runs_come_page_by_page_the_newest_first(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    ids = [add_run(session_id, items=1) for _ in range(PAGE + 2)]
    first = ask("/runs/")
    assert first.count('class="session-row"') == PAGE
    assert first.index(ids[-1]) < first.index(ids[-2])
    cursor = place_of(load_run(ids[2]).created_at, ids[2])
    rest = ask("/runs/rows/", cursor=cursor)
    assert rest.count('class="session-row"') == 2
    assert "Load more" not in rest


def test_a_session_has_a_list_of_its_own(ask: Ask, reader: User) -> None:
    talk, other = new_session(reader, title="Tides"), new_session(reader)
    tried(talk, path="/tides.jsonl")
    tried(other, path="/notes.jsonl")
    page = ask("/runs/", session=talk)
    assert "tides.jsonl" in page
    assert "notes.jsonl" not in page
    assert "This session has no runs." in ask("/runs/", session=new_session(reader))


# One run


def test_the_page_of_a_run_says_how_far_it_is_and_what_it_took(ask: Ask, reader: User) -> None:
    run_id = tried(new_session(reader, title="Tides"), path="/data/tides.jsonl", limits=TurnLimits(tokens=5_000))
    page = ask(f"/runs/{run_id}/")
    for words in (
        "LLM map over <bdi>tides.jsonl</bdi>",
        "Tides",
        "66 %",
        "2 of 3 items",
        "Tokens in",
        "$0.000014",
        "1.00 per item",
        "1 completed, 1 failed, 0 cancelled, 1 with workers, of 3 items",
        "Say {{ item }}",
        "Schema of results",
        "at most 5,000",
        "this is no JSON",
        "First failures",
        "&quot;0000002&quot;",
        'data-action="pause"',
        'data-action="cancel"',
    ):
        assert words in page
    assert 'data-action="resume"' not in page
    assert "Retry" not in page


def test_each_state_has_its_own_words_and_buttons(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    run_id = tried(session_id)
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.PAUSED, reason="budget")
    paused = ask(f"/runs/{run_id}/progress/")
    assert "This run has reached its spending limit." in paused
    assert "Retry 1 failed" in paused
    assert 'data-action="resume"' in paused
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.CANCELLED, reason="person")
    cancelled = ask(f"/runs/{run_id}/progress/")
    assert 'data-action="resume"' in cancelled
    assert "Retry" not in cancelled
    assert 'class="alert' not in cancelled


def test_a_completed_run_may_try_again_what_failed_and_links_its_output(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    run_id = add_run(session_id, items=2)
    first, second = claim(session_id, run_id)
    settle(session_id, run_id, [accept(first), refuse(second)])
    file_id = finish(session_id, run_id)
    page = ask(f"/runs/{run_id}/")
    assert "Retry 1 failed" in page
    assert f'href="/files/{file_id}/"' in page
    assert "left" not in page.split("run-percent")[1].split("</p>")[0]


def test_a_run_whose_input_is_being_read_and_one_without_items_are_said_to_be_that(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    waiting = ask(f"/runs/{add_run(session_id, items=0, begun=False)}/")
    assert "reading input" in waiting
    assert "The number of items is not known yet." in waiting
    assert "Items appear here once the input has been read." in waiting
    empty = ask(f"/runs/{add_run(session_id, items=0)}/")
    assert "This run has no items." in empty
    assert "100 %" in empty


def test_the_time_of_a_run_that_stands_still_ends_with_its_last_item(reader: User) -> None:
    session_id = new_session(reader)
    run_id = tried(session_id)
    now = timezone.now()
    endings = [Ending(at=now - timedelta(seconds=seconds)) for seconds in (50, 40)]
    assert spell_of(load_run(run_id), endings, now).until == now
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.PAUSED)
    assert spell_of(load_run(run_id), endings, now).until == now - timedelta(seconds=40)
    assert spell_of(load_run(run_id), [], now).until == now


# The tool's card


def test_the_card_of_a_tool_call_leads_to_the_run_that_it_asked_for(ask: Ask, browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    call = ToolPart(tool_name="llm_map", tool_call_id="c1", state=ToolState.COMPLETED)
    _, message = say(session_id, ("user", [TextPart(text="Sort them")]), ("assistant", [call]))
    [part] = load_message(message, session_id=session_id).parts
    place = f"/sessions/{session_id}/runs/{part.id}/"
    assert f'hx-get="{place}"' in ask(f"/sessions/{session_id}/")
    assert ask(place).strip() == ""
    run_id = add_run(session_id, part_id=part.id)
    assert f'href="/runs/{run_id}/"' in ask(place)
    other = Client()
    other.force_login(make_user("bob"))
    assert other.get(place).status_code == 404


# What it costs


def count(browser: Client, path: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert browser.get(path).status_code == 200
    return len(queries)


@pytest.mark.parametrize("end", ["", "progress/", "charts/", "items/", "items/?state=failed", "items/1/"])
def test_a_run_of_many_items_costs_as_many_queries_as_one_of_few(end: str, browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    costs = []
    for items in (3, 300):
        run_id = add_run(session_id, items=items)
        claimed = claim(session_id, run_id, limit=items - 1)
        settle(session_id, run_id, [refuse(item) if item.number % 2 else accept(item) for item in claimed])
        costs.append(count(browser, f"/runs/{run_id}/{end}"))
    assert costs[0] == costs[1]
    assert costs[0] <= 14


@pytest.mark.slow
def test_the_page_of_a_run_never_reads_all_its_items(browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    run_id = add_run(session_id, items=1_500)
    settle(session_id, run_id, [accept(item) for item in claim(session_id, run_id, limit=1_400)])
    with CaptureQueriesContext(connection) as queries:
        page = browser.get(f"/runs/{run_id}/").content.decode()
    assert "Based on a sample of" in page
    about_items = [query["sql"] for query in queries if "operator_items" in query["sql"]]
    assert about_items
    assert all("LIMIT" in sql or "IN (" in sql or "COUNT" in sql for sql in about_items)


def test_a_list_of_many_costs_as_many_queries_as_one_of_few(browser: Client, reader: User) -> None:
    tried(new_session(reader))
    few = count(browser, "/runs/")
    for _ in range(10):
        tried(new_session(reader))
    assert count(browser, "/runs/") == few
