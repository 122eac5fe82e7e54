"""Another model is asked the question of an answer, and both answers stay."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

from agents_app.turns.pages import ask_again, load_answered
from mnesis_core.errors import (
    InvalidRequest,
    MessageNotFoundError,
    ModelNotFoundError,
    SessionArchived,
    SessionBusy,
    SessionNotFoundError,
)
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.records import TurnState
from sessions_app.database.threads import db
from sessions_app.llm.model_store import Audience, allow_model, put_model
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_calls, list_turns
from tests.support.people.cast import make_user
from tests.support.people.pages import browser, reader
from tests.support.people.story import ended, history, say, spoken
from tests.support.record.talks import exchange, new_session

__all__ = ["browser", "reader"]


def add_other(alias="other"):
    put_model(ModelSpec(alias=alias, litellm_model="scripted/x", context_window=8_000, max_output_tokens=1_000))


async def test_another_model_answers_the_same_question_beside_the_first_answer(session, script):
    script("At full moon.", "You are welcome.")
    script("At new moon.", alias="other")
    await db(add_other)
    await say(session, "When is spring tide?")
    await say(session, "Thanks")
    question, answer, *_ = await history(session)
    places = await ask_again(session.id, answer.id, model="other", owner_id=session.owner_id)
    assert places == (question.seq, 0, 1)
    [turn, *_] = await db(list_turns, session.id)
    assert (await ended(turn)).state == "completed"
    assert [spoken(message) for message in await history(session)][-1] == "At new moon."
    [call, *_] = await db(list_calls, session.id)
    assert (call.model, turn.model, (await db(load_session, session.id)).model) == ("other", "other", "demo")


async def test_what_cannot_be_compared_is_said_with_its_code(session, script, bob):
    script("At full moon.")
    await say(session, "When is spring tide?")
    question, answer = await history(session)

    async def asked(message_id, model="demo", owner_id=session.owner_id):
        await ask_again(session.id, message_id, model=model, owner_id=owner_id)

    for error, arguments in (
        (InvalidRequest, (question.id,)),
        (InvalidRequest, (answer.id, "")),
        (MessageNotFoundError, ("msg_nobody",)),
        (ModelNotFoundError, (answer.id, "gone")),
        (SessionNotFoundError, (answer.id, "demo", bob.pk)),
    ):
        with pytest.raises(error):
            await asked(*arguments)
    with pytest.raises(SessionNotFoundError):
        await db(load_answered, session.id, answer.id, owner_id=bob.pk)
    other = await db(new_session, bob)
    _, foreign = await db(exchange, other, "q", "a")
    with pytest.raises(MessageNotFoundError):
        await asked(foreign)

    def start():
        with change(session.id) as record:
            return turn_store.start_turn(record, model="demo")

    turn_id = await db(start)
    with pytest.raises(SessionBusy):
        await asked(answer.id)

    def end_and_archive():
        with change(session.id) as record:
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
            session_store.archive_session(record)

    await db(end_and_archive)
    with pytest.raises(SessionArchived):
        await asked(answer.id)
    assert (await db(load_session, session.id)).branch_seq == 0


async def test_a_program_asks_again_with_another_model_for_one_turn(session, script, client_of):
    script("At full moon.")
    script("At new moon.", alias="other")
    await db(add_other)
    await say(session, "When is spring tide?")
    question, _ = await history(session)
    sent = {"parent_id": question.id, "model": "other"}
    answer = await client_of.post(f"/api/sessions/{session.id}/turns", sent, content_type="application/json")
    assert (answer.status_code, answer.json()["model"]) == (202, "other")
    [turn, *_] = await db(list_turns, session.id)
    await ended(turn)
    assert [spoken(message) for message in await history(session)] == [
        *("When is spring tide?", "At full moon.", "At new moon."),
    ]
    refused = await client_of.post(
        f"/api/sessions/{session.id}/turns", sent | {"model": "gone"}, content_type="application/json"
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "MODEL_NOT_FOUND")


def test_the_dialog_offers_the_other_models(browser, answer):
    add_other()
    page = browser.get(answer).content.decode()
    assert ('value="other"' in page, 'value="demo"' in page) == (True, False)


def test_a_person_without_another_model_is_told_and_staff_led_to_where_one_is_added(browser, reader, answer):
    page = browser.get(answer).content.decode()
    assert ("There is no other model" in page, "/models/add/" in page) == (True, False)
    reader.is_staff = reader.is_superuser = True
    reader.save()
    assert "/models/add/" in browser.get(answer).content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_dialog_does_not_offer_what_the_person_may_not_use(browser, answer):
    add_other()
    allow_model("other", Audience(groups=[], users=[make_user("eve")]))
    assert "There is no other model" in browser.get(answer).content.decode()
    asked = browser.post(answer, {"model": "other"}, headers={"accept": "application/json"})
    assert (asked.status_code, asked.json()["error"]["code"]) == (404, "MODEL_NOT_FOUND")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", ["gone", "\x00", "x" * 10_000, "a\u202eb"])
def test_a_hostile_model_is_an_error_with_a_code(browser, answer, model):
    asked = browser.post(answer, {"model": model}, headers={"accept": "application/json"})
    assert (asked.status_code, asked.json()["error"]["code"]) == (404, "MODEL_NOT_FOUND")


@pytest.mark.parametrize("name", ["msg_nobody", "%00", "x" * 3_000])
def test_an_answer_that_is_not_there_is_not_found(browser, answer, name):
    session_id = answer.split("/")[2]
    asked = browser.get(f"/sessions/{session_id}/messages/{name}/compare/", headers={"accept": "application/json"})
    assert asked.status_code == 404


def test_answers_of_another_person_are_not_found(answer):
    other = Client()
    other.force_login(make_user("eve"))
    for asked in (other.get(answer), other.post(answer, {"model": "demo"})):
        assert asked.status_code == 404
    assert Client().post(answer, {"model": "demo"}).status_code == 302


def test_while_a_turn_runs_the_dialog_says_so(browser, answer):
    add_other()
    with change(answer.split("/")[2]) as record:
        turn_store.start_turn(record, model="demo")
    assert "A turn is running in this session" in browser.get(answer).content.decode()


@pytest.fixture
def answer(reader):
    """The address of an answer's dialog."""
    session_id = new_session(reader)
    _, answer = exchange(session_id, "q", "a")
    return f"/sessions/{session_id}/messages/{answer}/compare/"


@pytest.fixture
def client_of(session):
    client = AsyncClient()
    client.force_login(User.objects.get(pk=session.owner_id))
    return client
