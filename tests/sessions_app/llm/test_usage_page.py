"""The page of usage: whose calls it adds up, by what, and that sub-agents count under who launched them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mnesis_core.records import new_id
from sessions_app.llm import spending_store
from sessions_app.models import ModelCall
from sessions_app.record import session_store
from sessions_app.record.change import change
from tests.support.people.cast import make_user

HOSTILE = "<script>alert(1)</script>\u202egpj"


def add_session(owner: User, title: str = "Harbour", **values: Any) -> str:
    return session_store.create_session(owner=owner, model="demo", title=title, **values)


def add_call(session_id: str, **values: Any) -> None:
    """A call that has ended, as the store would have written it."""
    now = timezone.now()
    ModelCall.objects.bulk_create([ModelCall(**{
        "id": new_id("call"), "session_id": session_id, "model": "demo", "provider_model": "demo/chat", "digest": "0" * 64,
        "state": "completed", "created_at": now, "ended_at": now, "tokens_input": 1_000, "tokens_output": 200,
        "tokens_cache_read": 0, "cost_micros": 50_000, "usage_source": "provider",
    } | values)])  # fmt: skip


def test_without_calls_the_page_says_what_will_stand_there(ask: Callable[..., str]) -> None:
    page = ask("/usage/")
    assert "No model calls in this period." in page
    assert "<svg viewBox" not in page.split("<main")[1]


@pytest.mark.both_databases
def test_a_person_sees_their_own_by_day_model_purpose_and_session(reader: User, ask: Callable[..., str]) -> None:
    session_id = add_session(reader)
    add_call(session_id)
    add_call(session_id, model="big", purpose="summary", cost_micros=None)
    add_call(add_session(make_user("grace"), "Not yours"), tokens_input=7_777_777)
    page = ask("/usage/")
    assert "2,000" in page
    assert "$0.05" in page
    assert "Compaction" in page
    assert "1 call without a price" in page
    assert f"/sessions/{session_id}/" in page
    assert "7,777,777" not in page
    assert "Not yours" not in page
    assert "people-names" not in page


@pytest.mark.both_databases
def test_sub_agents_count_under_the_session_at_the_top_and_forks_by_themselves(
    reader: User, ask: Callable[..., str]
) -> None:
    top = add_session(reader, "At the top")
    child = add_session(reader, "Helper", parent_id=top, parent_part_id="part_x")
    grandchild = add_session(reader, "Deeper", parent_id=child, parent_part_id="part_y")
    fork = add_session(reader, "A fork", parent_id=top, forked_message_id="msg_x")
    for id in (child, grandchild, fork):
        add_call(id)
    page = ask("/usage/")
    sessions = page.split('id="sessions-title"')[1]
    assert "At the top" in sessions
    assert "with 2 sub-agents" in sessions
    assert "2,400" in sessions or "2,000" in sessions
    assert "A fork" in sessions
    assert "Helper" not in sessions
    assert "Deeper" not in sessions


@pytest.mark.both_databases
def test_days_are_chosen_in_the_address_and_begin_at_midnight_utc(reader: User, ask: Callable[..., str]) -> None:
    session_id = add_session(reader)
    for day, tokens in ((1, 111), (2, 222_000), (3, 333_000)):
        midnight = datetime(2026, 3, day, tzinfo=UTC)
        add_call(session_id, created_at=midnight, tokens_input=tokens)
    add_call(session_id, created_at=datetime(2026, 3, 2, 23, 59, 59, 999_999, tzinfo=UTC), tokens_input=444_000)
    page = ask("/usage/", **{"from": "2026-03-02", "to": "2026-03-02"})
    assert "666,000" in page
    assert "333,000" not in page
    assert ask("/usage/", **{"from": "2025-03-04", "to": "2026-03-03"}).count('class="usage-bar"') == 2


@pytest.mark.parametrize(
    "asked",
    [
        {"from": "x"},
        {"to": "9" * 40},
        {"from": "\x00"},
        {"from": "2026-02-30"},
        {"from": "0001-01-01"},
        {"from": "2026-03-02", "to": "2026-03-01"},
        {"from": "2020-01-01", "to": "2026-03-01"},
        {"to": "9999-12-31"},
    ],
)
def test_a_bad_day_is_refused_in_words(asked: dict[str, str], browser: Client) -> None:
    for path in ("/usage/", "/usage/rows.csv"):
        assert browser.get(path, asked).status_code == 422


@pytest.mark.both_databases
def test_only_who_sees_records_may_ask_for_others(ada: User, inspector: Client) -> None:
    grace = make_user("grace")
    add_call(add_session(grace, "Grace asks"), tokens_input=7_777_777)
    add_call(add_session(ada, "Ada asks"))
    assert "7,777,777" not in inspector.get("/usage/").content.decode()
    everybody = inspector.get("/usage/", {"person": "*"}).content.decode()
    assert "By person" in everybody
    assert "7,778,777" in everybody
    one = inspector.get("/usage/", {"person": "grace"}).content.decode().partition("<main")[2]
    assert "Grace asks" in one
    assert "Ada asks" not in one
    assert inspector.get("/usage/", {"person": "nobody\x00"}).status_code == 404
    inspector.force_login(grace)
    for person in ("*", "ada", "nosuch"):
        assert inspector.get("/usage/", {"person": person}).status_code == 404
        assert inspector.get("/usage/rows.csv", {"person": person}).status_code == 404
    assert inspector.get("/usage/", {"person": "grace"}).status_code == 200


def test_people_are_a_list_to_choose_from_that_ends(inspector: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions_app.llm.usage.MOST_PEOPLE", 3)
    for name in ("aa", "ab", "ac", "zz"):
        make_user(name)
    page = inspector.get("/usage/").content.decode().partition("<datalist")[2].partition("</datalist>")[0]
    assert [part.partition('"')[0] for part in page.split('<option value="')[1:]] == ["*", "aa", "ab", "ac"]


def test_the_same_comes_as_csv_without_formulas(reader: User, browser: Client) -> None:
    session_id = add_session(reader)
    add_call(session_id, model="=cmd()", created_at=datetime(2026, 3, 1, tzinfo=UTC))
    answer = browser.get("/usage/rows.csv", {"from": "2026-03-01", "to": "2026-03-02"})
    assert answer.headers["Content-Disposition"] == 'attachment; filename="usage-2026-03-01-2026-03-02.csv"'
    [header, row] = list(csv.reader(io.StringIO(answer.getvalue().decode())))
    assert dict(zip(header, row, strict=True)) == {
        "day": "2026-03-01", "model": "'=cmd()", "purpose": "turn", "calls": "1", "tokens_input": "1000",
        "tokens_output": "200", "tokens_cache_read": "0", "cost_micros": "50000", "calls_without_price": "0",
    }  # fmt: skip


def test_limits_and_what_is_left_of_them_are_shown(reader: User, ask: Callable[..., str]) -> None:
    spending_store.put_account_limits(reader.pk, {"day": {"tokens": 10_000}})
    add_call(add_session(reader))
    page = ask("/usage/")
    assert "1,200 of 10,000 tokens a day" in page


def test_hostile_titles_and_models_run_nothing(reader: User, ask: Callable[..., str]) -> None:
    for number in range(8):
        add_call(add_session(reader, HOSTILE), model=f"{HOSTILE}{number}", purpose="<b>")
    page = ask("/usage/")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "others" in page


def test_a_deleted_session_still_counts_and_is_not_named(reader: User, ask: Callable[..., str]) -> None:
    session_id = add_session(reader, "Secret plans")
    add_call(session_id)
    with change(session_id) as record:
        session_store.soft_delete_session(record)
    page = ask("/usage/")
    assert "A deleted session" in page
    assert "Secret plans" not in page
    assert session_id not in page


def test_a_temporary_chat_still_counts_and_is_not_named(reader: User, ask: Callable[..., str]) -> None:
    session_id = add_session(reader, "Secret plans", temporary=True)
    add_call(session_id)
    page = ask("/usage/")
    assert "A temporary chat" in page
    assert "Secret plans" not in page
    assert session_id not in page


@pytest.mark.slow
@pytest.mark.both_databases
def test_the_page_asks_as_much_for_one_session_as_for_many(ada: User, inspector: Client) -> None:
    counts = []
    for size in (1, 30):
        for number in range(size):
            parent = add_session(ada, f"{size} {number}")
            child = add_session(make_user(f"user {size} {number}"), parent_id=parent, parent_part_id="part_x")
            add_call(child, model=f"model {number}", created_at=timezone.now() - timedelta(days=number % 20))
        with CaptureQueriesContext(connection) as captured:
            assert inspector.get("/usage/", {"person": "*"}).status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 13
