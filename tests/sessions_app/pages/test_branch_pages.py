"""The page of a session whose messages are a tree: the chosen path, others to look at, and the switchers between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from mnesis_core.messages import TextPart
from mnesis_core.records import TurnState
from sessions_app.models import Message
from sessions_app.pages import transcript
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_session
from tests.support.people.cast import make_user
from tests.support.people.pages import Ask
from tests.support.record.talks import exchange, new_session, say

DEEP = 300
MANY = 10_000


def branch(session_id: str, *, parent: int, after: int, chosen: bool = True) -> int:
    """A new branch; returns its number."""
    with change(session_id) as record:
        number = session_store.begin_branch(record, parent=parent, after_seq=after)
        if chosen:
            session_store.choose_branch(record, number)
    return number


def choose(session_id: str, number: int) -> None:
    with change(session_id) as record:
        session_store.choose_branch(record, number)


def said_at(session_id: str, seq: int) -> str:
    return Message.objects.get(session_id=session_id, seq=seq).created_at.isoformat()


def seqs(page: str) -> list[int]:
    return [int(seq) for seq in re.findall(r'id="msg-(\d+)"', page)]


def versions(page: str) -> dict[int, str]:
    """What each switcher says, by the number of the message before."""
    labels = re.findall(r'aria-label="Version ([\d,]+ of [\d,]+)".*?name="after" value="(\d+)"', page, re.DOTALL)
    return {int(after): label for label, after in labels}


@pytest.fixture
def tree(reader: User) -> str:
    """Branch 0 has 1 to 4, branch 1 leaves it after 2 with 5 and 6, branch 2 begins anew with 7 and 8, and is chosen."""
    session_id = new_session(reader)
    for question in ("one", "two"):
        exchange(session_id, question, f"answer to {question}")
    branch(session_id, parent=0, after=2)
    exchange(session_id, "two otherwise", "other answer")
    branch(session_id, parent=0, after=0)
    exchange(session_id, "a new beginning", "fine")
    return session_id


def test_a_page_shows_the_path_to_the_chosen_branch_and_where_others_leave_it(ask: Ask, tree: str) -> None:
    page = ask(f"/sessions/{tree}/")
    assert (seqs(page), versions(page)) == ([7, 8], {0: "2 of 2"})
    choose(tree, 1)
    page = ask(f"/sessions/{tree}/")
    assert (seqs(page), versions(page)) == ([1, 2, 5, 6], {0: "1 of 2", 2: "2 of 2"})
    assert 'data-branch="1"' in page
    assert "data-looking" not in page


def test_another_branch_is_looked_at_without_being_chosen(ask: Ask, tree: str) -> None:
    page = ask(f"/sessions/{tree}/", branch=0)
    assert (seqs(page), versions(page)) == ([1, 2, 3, 4], {0: "1 of 2", 2: "1 of 2"})
    assert "You are viewing branch 0. The conversation continues on branch 2." in page
    assert "data-looking" in page
    assert 'id="composer"' not in page
    assert 'data-act="edit"' not in page
    assert 'class="versions numbers"' in page
    assert f'method="get" action="/sessions/{tree}/branch/"' in page
    assert load_session(tree).branch == 2


@pytest.mark.parametrize("wrong", ["3", "99999999999999999999", "x", "-1"])
def test_a_branch_that_is_not_there_is_said_in_words(browser: Client, tree: str, wrong: str) -> None:
    for path in ("", "messages/", "context/", "compactions/"):
        answer = browser.get(f"/sessions/{tree}/{path}", {"branch": wrong})
        assert answer.status_code in (404, 422)
        assert b"no such branch" in answer.content or b"whole number" in answer.content


@pytest.mark.slow
def test_a_jump_to_a_message_elsewhere_shows_its_branch_and_says_so(browser: Client, ask: Ask, tree: str) -> None:
    page = ask(f"/sessions/{tree}/", at=6)
    assert seqs(page) == [1, 2, 5, 6]
    assert "You are viewing branch 1." in page
    assert "data-elsewhere" in ask(f"/sessions/{tree}/messages/", at=6, branch=2)
    assert "data-elsewhere" not in ask(f"/sessions/{tree}/messages/", at=6, branch=1)
    # Of the branches that lead there, the chosen one is the first choice.
    choose(tree, 1)
    page = ask(f"/sessions/{tree}/", at=2, branch=2)
    assert 'data-branch="1"' in page
    assert "data-looking" not in page
    # A place alone does not leave the branch, nor does a time.
    assert seqs(ask(f"/sessions/{tree}/messages/", near=4)) == [1, 2, 5, 6]
    assert seqs(ask(f"/sessions/{tree}/messages/", at="2020-01-01")) == [1, 2, 5, 6]
    assert seqs(ask(f"/sessions/{tree}/messages/", at="2999-01-01")) == [1, 2, 5, 6]
    shown = ask(f"/sessions/{tree}/messages/", at=said_at(tree, 3))  # message 3 is on another one
    assert seqs(shown) == [1, 2, 5, 6]
    assert "data-elsewhere" not in shown
    soon = (timezone.now() + timedelta(days=1)).isoformat()
    assert "data-here" in ask(f"/sessions/{tree}/messages/", at=soon)


def test_more_is_loaded_along_the_path(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    for number in range(30):
        exchange(session_id, f"q{number}", "a")
    branch(session_id, parent=0, after=40)
    for number in range(30):
        exchange(session_id, f"other {number}", "a")
    path = [*range(1, 41), *range(61, 121)]
    page = ask(f"/sessions/{session_id}/")
    assert seqs(page) == path[-50:]
    assert "?before=71" in page
    older = ask(f"/sessions/{session_id}/messages/", before=71, branch=1)
    assert seqs(older) == path[:50]
    assert "data-more" not in older
    assert versions(older) == {40: "2 of 2"}
    newer = ask(f"/sessions/{session_id}/messages/", after=38, branch=1)
    assert seqs(newer) == path[38:88]
    assert "?after=108" in newer
    assert seqs(ask(f"/sessions/{session_id}/messages/", after=120, branch=1)) == []
    around = ask(f"/sessions/{session_id}/messages/", at=39, branch=1)
    assert seqs(around) == [*path[:40], 61, 62, 63]
    assert "?after=63" in around


def test_one_message_is_rendered_with_its_switcher(ask: Ask, tree: str) -> None:
    choose(tree, 1)
    message_id = re.findall(r'data-message="(\w+)"', ask(f"/sessions/{tree}/"))[2]
    assert versions(ask(f"/sessions/{tree}/messages/{message_id}/", branch=1)) == {2: "2 of 2"}
    assert versions(ask(f"/sessions/{tree}/messages/{message_id}/", branch=2)) == {}


def test_where_nothing_is_new_no_end_is_shown(ask: Ask, tree: str) -> None:
    assert "No messages on this branch yet." not in ask(f"/sessions/{tree}/messages/", after=8, branch=2)


def test_a_branch_on_which_nothing_was_said_yet_can_be_left(ask: Ask, tree: str) -> None:
    number = branch(tree, parent=0, after=3)
    page = ask(f"/sessions/{tree}/")
    assert seqs(page) == [1, 2, 3]
    assert "No messages on this branch yet." in page
    assert versions(page) == {0: "1 of 2", 2: "1 of 2", 3: "2 of 2"}
    for query in ({"before": 3}, {"after": 3}, {"after": 1}):
        shown = ask(f"/sessions/{tree}/messages/", branch=number, **query)
        assert ("No messages on this branch yet." in shown) == (query == {"after": 1})
    branch(tree, parent=0, after=0)
    page = ask(f"/sessions/{tree}/")
    assert seqs(page) == []
    assert versions(page) == {0: "3 of 3"}


def test_while_a_turn_runs_no_switcher_can_be_used(ask: Ask, tree: str) -> None:
    assert "<fieldset >" in ask(f"/sessions/{tree}/")
    with change(tree) as record:
        turn_store.start_turn(record, model="demo")
    page = ask(f"/sessions/{tree}/")
    assert "<fieldset disabled>" in page
    assert "<fieldset disabled>" in ask(f"/sessions/{tree}/", branch=1)  # to go on there


def test_an_archived_session_is_looked_at(ask: Ask, tree: str) -> None:
    with change(tree) as record:
        session_store.archive_session(record)
    page = ask(f"/sessions/{tree}/")
    assert f'method="get" action="/sessions/{tree}/branch/"' in page
    assert 'data-act="edit"' not in page
    assert "Continue here" not in ask(f"/sessions/{tree}/", branch=1)


def test_a_form_leads_to_a_version(browser: Client, tree: str) -> None:
    def goes(**query: object) -> str:
        answer = browser.get(f"/sessions/{tree}/branch/", query)
        assert answer.status_code == 302, answer.content
        return answer["Location"].removeprefix(f"/sessions/{tree}/")

    assert goes(after=2, place=2) == "?branch=1&at=5"
    assert goes(after=2, place=1) == "?branch=0&at=3"
    # Of the branches through a message, the one that was begun last.
    assert goes(after=0, place=1) == "?branch=1&at=1"
    assert goes(after=0, typed="2") == "?branch=2&at=7"
    assert goes(branch=1) == "?branch=1"
    for query in (
        {"after": 2, "place": 3},
        {"after": 2, "place": 0},
        {"after": 4, "place": 1},
        {"after": 2**70, "place": 1},
    ):
        assert browser.get(f"/sessions/{tree}/branch/", query).status_code == 404
    for query in ({}, {"after": "x", "place": 1}, {"after": 2}, {"after": 2, "typed": "zwei"}, {"branch": ""}):
        assert browser.get(f"/sessions/{tree}/branch/", query).status_code == 422


def test_what_an_edit_continues_and_what_an_answer_answers_is_told(browser: Client, ask: Ask, tree: str) -> None:
    ids = dict(zip([1, 2, 5, 6], re.findall(r'data-message="(\w+)"', ask(f"/sessions/{tree}/", branch=1)), strict=True))
    there = f"/sessions/{tree}/messages"
    assert browser.get(f"{there}/{ids[5]}/said/").json()["parent_id"] == ids[2]
    assert browser.get(f"{there}/{ids[1]}/said/").json()["parent_id"] == "root"
    assert browser.get(f"{there}/{ids[6]}/question/").json() == {"id": ids[5]}
    assert browser.get(f"{there}/{ids[5]}/question/").json() == {"id": ids[5]}
    assert browser.get(f"{there}/msg_nowhere/question/").status_code == 404


def test_another_persons_branches_are_not_there(tree: str) -> None:
    stranger = Client()
    stranger.force_login(make_user("eve"))
    message_id = transcript.load_chunk(tree)[0].id
    for path in ("?branch=1", "branch/?branch=1", f"messages/{message_id}/question/", "context/?branch=1"):
        assert stranger.get(f"/sessions/{tree}/{path}").status_code == 404
    for path in ("branch/choose/",):
        assert stranger.post(f"/sessions/{tree}/{path}", {"branch": 1}).status_code == 404
    assert Client().get(f"/sessions/{tree}/branch/?branch=1").status_code == 302
    assert load_session(tree).branch == 2


def test_a_form_chooses_a_version(browser: Client, tree: str) -> None:
    answer = browser.post(f"/sessions/{tree}/branch/choose/", {"after": 0, "place": 1})
    assert answer["Location"] == f"/sessions/{tree}/?at=1"
    assert load_session(tree).branch == 1
    json = {"Accept": "application/json"}
    answer = browser.post(f"/sessions/{tree}/branch/choose/", {"after": 2, "typed": "1"}, headers=json)
    assert answer.json() == {"branch": 0, "seq": 3}
    assert browser.post(f"/sessions/{tree}/branch/choose/", {"branch": 9}).status_code == 404
    with change(tree) as record:
        turn = turn_store.start_turn(record, model="demo")
    answer = browser.post(f"/sessions/{tree}/branch/choose/", {"branch": 2}, headers=json)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "SESSION_BUSY")
    assert (
        "A turn is already running" in browser.post(f"/sessions/{tree}/branch/choose/", {"branch": 2}).content.decode()
    )
    with change(tree) as record:
        turn_store.finish_turn(record, turn, state=TurnState.COMPLETED)
        session_store.archive_session(record)
    answer = browser.post(f"/sessions/{tree}/branch/choose/", {"branch": 2})
    assert "This session is archived" in answer.content.decode()
    assert load_session(tree).branch == 0


@pytest.mark.slow
def test_ten_thousand_versions_and_a_tree_three_hundred_deep_are_pages_like_others(
    ask: Ask, reader: User, django_assert_max_num_queries: Callable
) -> None:
    session_id = new_session(reader)
    exchange(session_id, "one", "answer")
    exchange(session_id, "two", "answer")
    with change(session_id) as record:
        for _ in range(MANY - 1):
            session_store.begin_branch(record, parent=0, after_seq=2)
        session_store.choose_branch(record, 5_000)
    exchange(session_id, "in the middle", "answer")
    began = timezone.now()
    page = ask(f"/sessions/{session_id}/")
    assert timezone.now() - began < timedelta(seconds=2)
    assert versions(page) == {2: "5,001 of 10,000"}
    assert 'name="typed"' in page
    assert len(page) < 80_000

    deep, after = new_session(reader), 2
    exchange(deep, "one", "answer")
    exchange(deep, "two", "answer")
    for number in range(DEEP):
        branch(deep, parent=number, after=after)
        say(deep, ("user", [TextPart(text="again")]), ("assistant", [TextPart(text="a")]))
        say(deep, ("user", [TextPart(text="left behind")]))
        after = 6 + 3 * number
    with django_assert_max_num_queries(30):
        page = ask(f"/sessions/{deep}/")
    assert len(versions(page)) == 24
    first = ask(f"/sessions/{deep}/messages/", at=1)
    assert seqs(first)[:2] == [1, 2]
