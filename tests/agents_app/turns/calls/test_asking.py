"""A model is asked: what is tried again, and how a call that ends badly looks."""

from __future__ import annotations

import pytest

from agents_app.turns import lifecycle
from mnesis_core.errors import ModelAuthenticationFailed, ModelRateLimited, ModelStreamBroken
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import Script, Step
from mnesis_core.records import TurnState
from sessions_app.database.threads import db
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import history, say, spoken


@pytest.mark.parametrize(
    ("step", "state", "code", "text"),
    [
        (Step(error=ModelAuthenticationFailed()), "failed", "MODEL_AUTHENTICATION_FAILED", ""),
        (Step(text="half ", error=ModelStreamBroken()), "interrupted", "MODEL_STREAM_BROKEN", "half "),
        (Step(text="half ", finish_reason=""), "incomplete", "MODEL_REPLY_INCOMPLETE", "half "),
    ],
)
async def test_a_bad_end_is_told_the_text_is_kept_and_the_session_goes_on(session, script, step, state, code, text):
    script(step, "fine again")
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (state, code)
    assert turn.error_message
    assert spoken((await history(session))[1]) == text
    assert (await say(session, "again")).state == TurnState.COMPLETED


async def test_an_error_that_may_pass_is_tried_again_before_the_first_token(session, script):
    model = script(ModelRateLimited(), "at last")
    turn = await say(session, "Go")
    assert turn.state == TurnState.COMPLETED
    assert len(model.requests) == 2
    retried = [event for event in await db(load_events, session.id) if event.type == "call.retried"]
    assert [event.data["error_code"] for event in retried] == ["MODEL_RATE_LIMITED"]
    [call] = await db(list_calls, session.id)
    assert (call.state, call.attempts) == ("completed", 2)


async def test_an_error_after_the_first_token_is_never_tried_again_and_never_becomes_text(session, script):
    model = script(Step(text="half ", error=ModelRateLimited("Too many requests.")))
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (TurnState.INTERRUPTED, "MODEL_RATE_LIMITED")
    assert len(model.requests) == 1
    assert [spoken(message) for message in await history(session)] == ["Go", "half "]


async def test_a_provider_that_wants_to_be_left_alone_for_long_is(session, script):
    model = script(ModelRateLimited(retry_after="3600"))
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "MODEL_RATE_LIMITED")
    assert len(model.requests) == 1


async def test_a_call_with_its_retries_has_one_deadline_and_an_answer_its_size(alice, script):
    config = {"stream": {"max_answer_characters": 9}}
    session = await db(lifecycle.create_session, owner=alice, config=config)
    model = script(ModelRateLimited(), "twelve words")
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (TurnState.INCOMPLETE, "MODEL_REPLY_INCOMPLETE")
    assert spoken((await history(session))[1]) == "twelve wo"
    first, second = [request.seconds for request in model.requests]
    assert 0 < second < first <= model.spec.total_timeout_seconds


async def test_a_model_that_has_a_mistake_ends_the_turn_not_the_session(session, script):
    def explode(request: Request) -> Script:
        raise RuntimeError("a bug")

    script(explode)
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "INTERNAL_ERROR")
    assert (await db(load_session, session.id)).running_turn_id is None
