"""What was spent and what is left, over REST: of a session, of a turn that runs, of today; and on the page."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from sessions_app.llm import spending_store
from tests.support.people.cast import make_user
from tests.support.processes.spenders import open_turn, spend
from tests.support.record.talks import new_session

DAY = {"day": {"tokens": 1_000}}


def get(client: Client, path: str) -> Any:
    answer = client.get(f"/api/{path}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def line(scope: str, measure: str, limit: float, spent: float, **more: Any) -> dict[str, Any]:
    left = max(0, limit - spent)
    return {
        "scope": scope,
        "measure": measure,
        "limit": limit,
        "spent": spent,
        "left": left,
        "unpriced_calls": 0,
    } | more


def test_a_session_says_what_its_next_call_may_take(alice: User, program: Client) -> None:
    spending_store.put_account_limits(alice.pk, DAY)
    session = new_session(alice, config={"limits": {"session": {"tool_calls": 3}, "turn": {"tokens": 500}}})
    spend(open_turn(session), 400)
    assert get(program, f"sessions/{session}")["budget"] == [
        line("turn", "tokens", 500, 400),
        line("session", "tool_calls", 3, 0),
        line("day", "tokens", 1_000, 400),
    ]


def test_without_limits_there_is_no_budget(alice: User, program: Client) -> None:
    session = new_session(alice)
    turn = open_turn(session)
    assert get(program, f"sessions/{session}")["budget"] == []
    assert get(program, f"sessions/{session}/turns/{turn.id}")["budget"] == []


def test_a_turn_says_it_while_it_runs(alice: User, program: Client) -> None:
    session = new_session(alice, config={"limits": {"turn": {"tokens": 500}}})
    turn = open_turn(session)
    spend(turn, 30)
    assert get(program, f"sessions/{session}/turns/{turn.id}")["budget"] == [line("turn", "tokens", 500, 30)]


def test_today_is_by_session_the_largest_first_and_ones_own(alice: User, program: Client) -> None:
    spending_store.put_account_limits(alice.pk, DAY)
    small, large = new_session(alice, title="Small"), new_session(alice, title="Large")
    spend(open_turn(small), 100)
    spend(open_turn(large), 200)
    spend(open_turn(new_session(make_user("eve"))), 700)
    usage = get(program, "usage")
    assert [(item["title"], item["tokens"]) for item in usage["items"]] == [("Large", 200), ("Small", 100)]
    assert usage["total"]["tokens"] == 300
    assert usage["budget"] == [line("day", "tokens", 1_000, 300)]
    assert usage["ends_at"] > usage["day"]
    assert [item["title"] for item in get(program, "usage?limit=1")["items"]] == ["Large"]


def test_nobodys_usage_is_shown_to_nobody(client: Client, db: None) -> None:
    assert client.get("/api/usage").status_code == 401


def test_the_page_shows_limits_where_there_are_some(alice: User, program: Client) -> None:
    free, limited = new_session(alice), new_session(alice, config={"limits": DAY})
    spend(open_turn(limited), 900)
    assert "Limits" not in program.get(f"/sessions/{free}/context/").content.decode()
    page = program.get(f"/sessions/{limited}/context/").content.decode()
    assert "900 of 1,000 tokens a day" in page
    assert "nearly used up" in page
