"""The list of sessions: newest first, searched, archived, ten thousand of them, hostile titles."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit_app.proof.verify import verify_session
from mnesis_core.llm.interface import LimitSource, ModelSpec, StatedLimits, settle_limits
from mnesis_core.messages import TextPart
from mnesis_core.records import TurnState
from sessions_app.conf import DEMO
from sessions_app.llm.model_store import put_model, remove_model
from sessions_app.models import Session
from sessions_app.pages.new_chat import DEMO_EXAMPLES, EXAMPLES
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.organisation_store import home_of
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE, exchange, new_session, say

pytestmark = pytest.mark.django_db
Ask = Callable[..., str]
READING_A_SESSION = 2
"""Queries that every page asks first: the cookie's session and its user."""


@pytest.mark.both_databases
@pytest.mark.parametrize("cursor", ["x", "~", "2026-01-01~sess_1\x00", "0001-01-01T00:00:00+14:00~x", "9" * 5_000])
def test_a_foreign_cursor_is_refused_or_finds_nothing(cursor: str, browser: Client) -> None:
    assert browser.get("/sessions/rows/", {"cursor": cursor}).status_code in (200, 422)


def test_an_empty_list_says_what_to_do(ask: Ask) -> None:
    rows = ask("/sessions/rows/")
    assert "No sessions yet." in rows
    assert '<a href="/">Start a new chat</a>' in rows


@pytest.mark.both_databases
def test_a_new_chat_offers_models_and_beginnings_beside_the_sidebar(ask: Ask, reader: User) -> None:
    new_session(reader, title="Earlier")
    page = ask("/")
    assert page.count("data-example=") == len(EXAMPLES) + len(DEMO_EXAMPLES)
    assert '<option value="demo"' in page
    assert "Earlier" in page.partition('id="sidebar-rows"')[2].partition("</nav>")[0]


@pytest.mark.both_databases
def test_a_new_chat_begins_with_the_model_that_its_person_used_last(ask: Ask, reader: User) -> None:
    def chosen() -> str:
        return str(re.findall(r'value="([\w-]+)"\s+selected', ask("/"))[0])

    sessions = {}
    for model, owner in (("brief", reader), ("unseen", reader), ("theirs", make_user("someone-else"))):
        put_model(replace(DEMO, alias=model))
        sessions[model] = new_session(owner)
        with change(sessions[model]) as record:
            turn_id = turn_store.start_turn(record, model=model)
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    session_store.mark_seen(sessions["theirs"], turns=1)
    assert chosen() == "demo"
    session_store.mark_seen(sessions["brief"], turns=1)
    assert chosen() == "brief"
    remove_model("brief")
    assert chosen() == "demo"


@pytest.mark.both_databases
def test_the_list_shows_the_newest_first_with_state_and_model(ask: Ask, reader: User) -> None:
    exchange(new_session(reader, title="Earlier"), "q", "a")
    failed = new_session(reader, title="Later", model="gpt-4o")
    say(failed, ("user", [TextPart(text="q")]), state=TurnState.FAILED, error_code="MODEL_UNREACHABLE")
    page = ask("/sessions/")
    assert page.index("Later") < page.index("Earlier")
    assert "badge-failed" in page
    assert "gpt-4o" in page
    assert "2 messages" in page


def test_archived_sessions_are_listed_apart(ask: Ask, reader: User) -> None:
    with change(new_session(reader, title="Put away")) as record:
        session_store.archive_session(record)
    assert "Put away" not in ask("/sessions/rows/")
    page = ask("/sessions/rows/", archived="1")
    assert "Put away" in page
    assert '<span class="badge">archived</span>' in page


@pytest.mark.both_databases
def test_a_search_looks_at_titles_and_keeps_its_address(browser: Client, reader: User) -> None:
    new_session(reader, title="Lighthouses of Brittany")
    new_session(reader, title="Bread")
    answer = browser.get("/sessions/rows/", {"q": "LIGHT", "archived": ""})
    assert b"Brittany" in answer.content
    assert b"Bread" not in answer.content
    assert answer["HX-Replace-Url"] == "/sessions/?q=LIGHT"
    assert "No title contains “<bdi>zz</bdi>”" in browser.get("/sessions/rows/", {"q": "zz"}).content.decode()


@pytest.mark.slow
@pytest.mark.both_databases
def test_thousands_of_sessions_are_paged_without_counting_them(browser: Client, reader: User) -> None:
    now, home = timezone.now(), home_of(reader.pk)
    Session.objects.bulk_create(
        Session(
            id=f"sess_{number:05}",
            owner=reader,
            organisation_id=home,
            model="demo",
            title=f"Session {number}",
            created_at=now,
            # Ties on purpose: many sessions of one import have the same time.
            updated_at=now - timedelta(seconds=number // 7),
        )
        for number in range(2_000)
    )
    with CaptureQueriesContext(connection) as queries:
        page = browser.get("/sessions/").content.decode()
    # Sessions, for the page and for the sidebar, pinned ones, projects, and who launched sub-agents.
    assert len(queries) <= READING_A_SESSION + 5
    assert not any("COUNT(" in query["sql"].upper() for query in queries)
    seen = re.findall(r'<li class="session-row" id="(\w+)"', page)
    for _ in range(3):
        cursor = re.search(r'"cursor": "([^"]+)"', page)
        assert cursor
        page = browser.get("/sessions/rows/", {"cursor": cursor[1]}).content.decode()
        seen += re.findall(r'<li class="session-row" id="(\w+)"', page)
    assert len(seen) == len(set(seen)) == 200


def test_a_hostile_title_is_text(ask: Ask, reader: User) -> None:
    session_id = new_session(reader, title=f'"><b>{HOSTILE}')
    for page in (ask("/sessions/"), ask(f"/sessions/{session_id}/")):
        assert "<b>" not in page
        assert "<script>alert" not in page
        assert "⟨U+202E⟩" in page


def test_the_choice_of_a_model_shows_its_window_and_whether_it_is_known(ask: Ask) -> None:
    for alias, source in (("mine", LimitSource.DEFAULT), ("theirs", LimitSource.LITELLM)):
        window = StatedLimits(source=source, context_window=32_000)
        put_model(ModelSpec(alias=alias, litellm_model="openai/x", **settle_limits(window)))
    page = ask("/")
    assert "demo · 8k</option>" in page
    assert "mine · 32k, assumed</option>" in page
    assert "theirs · 32k</option>" in page


@pytest.mark.both_databases
def test_labels_are_shown_and_lead_to_the_sessions_that_have_them(ask: Ask, reader: User) -> None:
    new_session(reader, title="Tagged", labels={"stage": "review & more", "<b>": HOSTILE})
    new_session(reader, title="Plain")
    page = ask("/sessions/")
    address = re.search(r'href="(/sessions/\?label=stage[^"]+)"', page)
    assert address
    assert "<b>" not in page
    assert "<script>alert" not in page
    filtered = ask(address[1].replace("&amp;", "&")).partition("<main")[2]
    assert "Tagged" in filtered
    assert "Plain" not in filtered
    assert "No session has the label" in ask("/sessions/", label="stage=other")
    assert "No session has the label" in ask("/sessions/", label="\x00__gt")


def test_a_label_and_a_search_keep_their_address(browser: Client, reader: User) -> None:
    answer = browser.get("/sessions/rows/", {"q": "x", "label": "a=b"})
    assert answer["HX-Replace-Url"] == "/sessions/?q=x&label=a%3Db"


@pytest.mark.slow
def test_days_stand_above_the_rows_in_the_readers_own_time(browser: Client, reader: User) -> None:
    now = timezone.now()
    for days in (0, 0, 1, 5, 20):
        Session.objects.filter(pk=new_session(reader)).update(updated_at=now - timedelta(days=days))

    def headings() -> list[str]:
        return re.findall(r"<h2>(.*?)</h2>", browser.get("/sessions/rows/").content.decode())

    assert headings() == ["Today", "Yesterday", "Previous 7 days", "Previous 30 days"]
    for zone in ("Pacific/Kiritimati", "../../etc/passwd", "\x01", "Nowhere/Land"):
        browser.cookies["zone"] = zone
        assert headings()[-1] == "Previous 30 days"


def test_rows_of_the_next_page_do_not_repeat_the_heading(browser: Client, reader: User) -> None:
    for _ in range(51):
        new_session(reader)
    cursor = re.search(r'"cursor": "([^"]+)"', browser.get("/sessions/rows/").content.decode())
    assert cursor
    page = browser.get("/sessions/rows/", {"cursor": cursor[1]}).content.decode()
    assert 'class="session-row"' in page
    assert "<h3>" not in page


@pytest.mark.both_databases
def test_states_of_rows_are_told_to_their_owner_alone(browser: Client, reader: User) -> None:
    mine, other = new_session(reader), new_session(User.objects.create_user("eve"))
    with change(mine) as record:
        turn_store.start_turn(record, model="demo")
    with CaptureQueriesContext(connection) as queries:
        page = browser.get("/sessions/states/", {"id": [mine, other, "x\x00"]}).content.decode()
    assert len(queries) <= READING_A_SESSION + 1
    assert f'id="facts-{mine}"' in page
    assert "badge-running" in page
    assert other not in page
    assert browser.get(f"/sessions/{other}/menu/").status_code == 404
    assert browser.get(f"/sessions/{other}/row/").status_code == 404


def test_the_menu_of_an_archived_session_takes_it_out_again(ask: Ask, browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    assert 'data-act="archive"' in ask(f"/sessions/{session_id}/menu/")
    for act in ("archive", "archive"):
        assert browser.post(f"/api/sessions/{session_id}/{act}").json()["archived"]
    assert 'data-act="reopen"' in ask(f"/sessions/{session_id}/menu/")
    for act in ("reopen", "reopen"):
        assert not browser.post(f"/api/sessions/{session_id}/{act}").json()["archived"]
    assert session_id in ask("/sessions/")
    assert verify_session(session_id).ok
