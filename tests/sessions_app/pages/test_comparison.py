"""The page of two answers to one question, side by side."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mnesis_core.messages import TextPart
from mnesis_core.records import TurnState
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from tests.support.people.cast import make_user
from tests.support.people.pages import Ask
from tests.support.record.talks import HOSTILE, exchange, new_session, say


def answer_again(session_id: str, text: str, *, state: TurnState = TurnState.COMPLETED, **end: str) -> int:
    """Another answer to the first question, on a branch that is chosen; returns its number."""
    with change(session_id) as record:
        number = session_store.begin_branch(record, parent=0, after_seq=1)
        session_store.choose_branch(record, number)
    say(session_id, ("assistant", [TextPart(text=text)] if text else []), state=state, **end)
    return number


@pytest.fixture
def answered(reader: User) -> str:
    """A question with three answers: 2 on branch 0, where the talk went on, 5 on branch 1 and 6 on branch 2, the chosen one."""
    session_id = new_session(reader, title="Tides")
    exchange(session_id, "When is spring tide?", "At full moon.")
    exchange(session_id, "Thanks", "You are welcome.")
    answer_again(session_id, "At new moon.")
    answer_again(session_id, "Twice a month.")
    return session_id


def columns(page: str) -> list[str]:
    return page.split('<article class="comparison-answer"')[1:]


def seqs(page: str) -> list[int]:
    return [int(seq) for seq in re.findall(r'id="msg-(\d+)"', page)]


def test_two_answers_stand_side_by_side_with_what_they_took(ask: Ask, answered: str) -> None:
    page = ask(f"/sessions/{answered}/compare/1/0/2/")
    assert seqs(page) == [1, 2, 6]
    left, right = columns(page)
    assert ("At full moon." in left, "Twice a month." in right) == (True, True)
    assert "Thanks" not in page
    assert "1.2k in, 34 out" in left
    assert "/compare/1/1/2/" in left  # the answer between them, in place of this one
    assert "/compare/1/0/1/" in right
    assert 'name="place"' in left
    assert 'name="place"' not in right  # the talk goes on there
    assert seqs(ask(f"/sessions/{answered}/compare/1/0/2/answers/")) == [2, 6]


def test_the_switcher_of_an_answer_leads_to_the_comparison(ask: Ask, answered: str) -> None:
    assert f'href="/sessions/{answered}/compare/1/1/2/"' in ask(f"/sessions/{answered}/")
    assert f'href="/sessions/{answered}/compare/1/0/1/"' in ask(f"/sessions/{answered}/", branch=0)


@pytest.mark.parametrize("place", ["1/0/0", "1/0/9", "2/0/1", "9/0/1", "0/0/1", f"1/0/{9**400}"])
def test_what_are_not_two_answers_of_a_question_is_not_found(browser: Client, answered: str, place: str) -> None:
    answer = browser.get(f"/sessions/{answered}/compare/{place}/")
    assert (answer.status_code, b"no such branch" in answer.content) == (404, True)


def test_a_question_that_was_asked_otherwise_is_no_answer(browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "one", "a")
    with change(session_id) as record:
        session_store.choose_branch(record, session_store.begin_branch(record, parent=0, after_seq=1))
    exchange(session_id, "another question", "b")
    assert browser.get(f"/sessions/{session_id}/compare/1/0/1/").status_code == 404


def test_answers_of_another_person_are_not_found(answered: str) -> None:
    other = Client()
    other.force_login(make_user("eve"))
    for path in ("", "answers/"):
        assert other.get(f"/sessions/{answered}/compare/1/0/1/{path}").status_code == 404
        assert Client().get(f"/sessions/{answered}/compare/1/0/1/{path}").status_code == 302


def test_a_failed_answer_says_why_and_can_be_tried_again(ask: Ask, answered: str) -> None:
    problem = {"error_code": "MODEL_UNAVAILABLE", "error_message": f"Nobody answers {HOSTILE}"}
    with_a_message = answer_again(answered, "", state=TurnState.FAILED, **problem)
    _, right = columns(ask(f"/sessions/{answered}/compare/1/0/{with_a_message}/"))
    assert "MODEL_UNAVAILABLE" in right
    assert "Try again" in right
    assert "<script>" not in right


def test_a_turn_that_said_nothing_has_its_column(ask: Ask, answered: str) -> None:
    with change(answered) as record:
        silent = session_store.begin_branch(record, parent=0, after_seq=1)
        session_store.choose_branch(record, silent)
        turn_id = turn_store.start_turn(record, model="demo")
    _, right = columns(ask(f"/sessions/{answered}/compare/1/0/{silent}/"))
    assert ("Working…" in right, "data-open" in right, 'data-do="stop"' in right) == (True, True, True)
    with change(answered) as record:
        turn_store.finish_turn(record, turn_id, state=TurnState.FAILED, error_code="BUDGET", error_message="Too much.")
    left, right = columns(ask(f"/sessions/{answered}/compare/1/0/{silent}/"))
    assert ("Too much." in right, "BUDGET" in right, "data-open" in right) == (True, True, False)
    assert "disabled" not in left
    first = re.search(r'data-message="(\w+)"', left)
    assert first
    assert f'data-again="/sessions/{answered}/messages/{first[1]}/compare/"' in right


def test_an_archived_comparison_is_only_read(ask: Ask, answered: str) -> None:
    with change(answered) as record:
        session_store.archive_session(record)
    page = ask(f"/sessions/{answered}/compare/1/0/2/")
    assert seqs(page) == [1, 2, 6]
    assert ("choose/" in page, "data-compare" in page, 'id="comparing"' in page) == (False, False, False)
