"""Ratings: who rates what, which one counts, and what the ledger says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import Client

from audit_app.proof.verify import verify_session
from mnesis_core.records import Thumb
from mnesis_core.text import decode_text
from sessions_app.llm.model_store import create_key
from sessions_app.models import Event, Message, Rating
from sessions_app.record import histories
from sessions_app.record.message_queries import load_message
from sessions_app.record.ratings import LONGEST_COMMENT, list_ratings, rate_answer
from sessions_app.record.session_queries import load_session
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE, exchange, new_session

pytestmark = pytest.mark.both_databases


@pytest.fixture
def talk(ada: User) -> str:
    session_id = new_session(ada, title="Tides")
    exchange(session_id, "When is high tide?", "At noon.")
    return session_id


@pytest.fixture
def program(ada: User) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_key(owner_id=ada.pk)}"}, raise_request_exception=False)


def ids(talk: str) -> tuple[str, str]:
    question, answer = Message.objects.filter(session_id=talk).order_by("seq").values_list("id", flat=True)
    return question, answer


def put(program: Client, talk: str, message: str, **body: Any) -> tuple[int, dict[str, Any]]:
    answered = program.put(f"/api/sessions/{talk}/messages/{message}/rating", body, content_type="application/json")
    return answered.status_code, answered.json()


def test_the_newest_rating_counts_and_the_others_stay(talk: str, program: Client) -> None:
    _, answer = ids(talk)
    assert put(program, talk, answer, thumb="up")[1]["thumb"] == "up"
    put(program, talk, answer, thumb="down", comment="It is low at noon.")
    [current] = program.get(f"/api/sessions/{talk}/ratings").json()["items"]
    assert (current["thumb"], current["comment"]) == ("down", "It is low at noon.")
    assert Rating.objects.count() == 2
    assert put(program, talk, answer, thumb="")[1]["thumb"] == ""
    assert program.get(f"/api/sessions/{talk}/ratings?message_id={answer}").json()["items"] == []
    assert verify_session(talk).ok


def test_the_same_again_writes_nothing(talk: str, program: Client) -> None:
    _, answer = ids(talk)
    first, again = (put(program, talk, answer, thumb="up", comment="Just so")[1] for _ in range(2))
    assert first == again
    assert Event.objects.filter(session_id=talk, type="message.rated").count() == 1


def test_the_ledger_says_which_thumb_and_none_of_the_words(talk: str, ada: User) -> None:
    _, answer = ids(talk)
    rating = rate_answer(talk, answer, owner_id=ada.pk, thumb=Thumb.DOWN, comment="It is low at noon.")
    body = json.loads(Event.objects.get(session_id=talk, type="message.rated").body)
    assert (body["rating_id"], body["message_id"], body["thumb"]) == (rating.id, answer, "down")
    assert "noon" not in str(body)


def test_another_persons_answer_is_not_found(talk: str) -> None:
    eve = make_user("eve")
    other = Client(headers={"Authorization": f"Bearer {create_key(owner_id=eve.pk)}"})
    _, answer = ids(talk)
    status, body = put(other, talk, answer, thumb="up")
    assert (status, body["error"]["code"]) == (404, "SESSION_NOT_FOUND")
    assert other.get(f"/api/sessions/{talk}/ratings").status_code == 404
    mine = new_session(eve)
    status, body = put(other, mine, answer, thumb="up")
    assert (status, body["error"]["code"]) == (404, "MESSAGE_NOT_FOUND")
    assert not Rating.objects.exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"thumb": "sideways"}, 422),
        ({"thumb": 1}, 422),
        ({"thumb": "up", "comment": "x" * (LONGEST_COMMENT + 1)}, 422),
        ({"thumb": "up", "comment": None}, 422),
        ({"thumb": "", "comment": "why"}, 422),
        ({"thumb": ""}, 422),
    ],
)
def test_what_is_no_rating_is_refused(body: dict[str, Any], status: int, talk: str, program: Client) -> None:
    _, answer = ids(talk)
    answered, told = put(program, talk, answer, **body)
    assert (answered, told["error"]["code"]) == (status, "INVALID_REQUEST")
    assert not Rating.objects.exists()


def test_a_question_and_a_message_that_is_not_there_are_refused(talk: str, program: Client) -> None:
    question, _ = ids(talk)
    assert put(program, talk, question, thumb="up")[1]["error"]["code"] == "INVALID_REQUEST"
    for missing in ("msg_00000000000000000000000000", "%00", "\u202e", "x" * 5_000):
        assert put(program, talk, missing, thumb="up")[0] == 404


def test_any_words_come_back_as_they_were(talk: str, ada: User) -> None:
    _, answer = ids(talk)
    assert rate_answer(talk, answer, owner_id=ada.pk, thumb=Thumb.UP, comment=HOSTILE).comment == HOSTILE
    [current] = list_ratings(talk, owner_id=ada.pk, limit=9)
    assert current.comment == HOSTILE


def test_pages_of_ratings(talk: str, ada: User, program: Client) -> None:
    for n in range(4):
        exchange(talk, f"And on day {n}?", "At one.")
    answers = list(
        Message.objects.filter(session_id=talk, role="assistant").order_by("seq").values_list("id", flat=True)
    )
    for answer in answers:
        rate_answer(talk, answer, owner_id=ada.pk, thumb=Thumb.UP)
    seen, cursor = [], 0
    while cursor is not None:
        page = program.get(f"/api/sessions/{talk}/ratings?limit=2&cursor={cursor}").json()
        seen += [item["message_id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert seen == answers[::-1]


def test_a_fork_has_no_ratings(talk: str, ada: User) -> None:
    _, answer = ids(talk)
    rate_answer(talk, answer, owner_id=ada.pk, thumb=Thumb.UP)
    fork = histories.begin_fork(load_session(talk), owner=ada, last=load_message(answer, session_id=talk), title="")
    assert histories.copy_messages(fork)
    assert list_ratings(fork, owner_id=ada.pk, limit=9) == []


@pytest.mark.owner
def test_a_rating_never_changes(talk: str, ada: User) -> None:
    rate_answer(talk, ids(talk)[1], owner_id=ada.pk, thumb=Thumb.UP, comment="Just so")
    assert decode_text(Rating.objects.get().comment) == "Just so"
    for change in ("thumb = 'down'", "comment = 'No'"):
        with pytest.raises(IntegrityError, match="ratings"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"UPDATE ratings SET {change}")


def test_the_page_shows_the_thumb_of_an_answer(talk: str, ada: User) -> None:
    page = Client()
    page.force_login(ada)
    _, answer = ids(talk)
    assert "You rated this answer" not in page.get(f"/sessions/{talk}/").content.decode()
    rate_answer(talk, answer, owner_id=ada.pk, thumb=Thumb.DOWN)
    assert "You rated this answer bad" in page.get(f"/sessions/{talk}/").content.decode()
