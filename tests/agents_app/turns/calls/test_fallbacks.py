"""When a model gives nothing, the next one is asked: in a call of its own, with a context of its own, never twice over."""

from __future__ import annotations

import asyncio

import pytest
from django.core.management import call_command

from agents_app.turns import lifecycle
from mnesis_core.errors import (
    ModelAuthenticationFailed,
    ModelNotFoundError,
    ModelRateLimited,
    ModelStreamBroken,
    ModelUnavailable,
)
from mnesis_core.llm.interface import Source, Usage
from mnesis_core.providers.answer import no_answer
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState
from sessions_app.conf import get_spec
from sessions_app.database.threads import db
from sessions_app.llm import model_store
from sessions_app.models import LanguageModel
from sessions_app.pages.transcript import load_chunk
from sessions_app.record.message_queries import load_message_rows
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import begin, ended, history, say, spoken, tool_call

COUNTED = Usage(input_tokens=11, output_tokens=7, source=Source.PROVIDER)


def add_model(alias: str, **values: object) -> None:
    LanguageModel.objects.create(
        alias=alias, litellm_model=f"scripted/{alias}", context_window=8_000, max_output_tokens=1_000, **values
    )


@pytest.fixture
def chained(alice):
    """A session whose model has two others behind it."""
    for alias in ("spare", "last"):
        add_model(alias)
    return lifecycle.create_session(owner=alice, config={"fallbacks": ["spare", "last"], "turn": {"max_retries": 1}})


async def calls_of(session):
    return list(reversed(await db(list_calls, session.id)))


async def test_each_model_is_asked_in_its_turn_and_each_call_says_whom_it_asked(chained, script):
    script(ModelUnavailable(), ModelUnavailable())
    script(ModelAuthenticationFailed(), alias="spare")
    script(Step(text="Here.", usage=COUNTED), alias="last")
    turn = await say(chained, "Anybody?")
    assert (turn.state, turn.error_code) == (TurnState.COMPLETED, None)
    assert (turn.usage.tokens_input, turn.usage.usage_source) == (11, "provider")
    calls = await calls_of(chained)
    assert [(call.model, call.provider_model, call.attempts, call.error_code) for call in calls] == [
        ("demo", "scripted/demo", 2, "MODEL_UNAVAILABLE"),
        ("spare", "scripted/spare", 1, "MODEL_AUTHENTICATION_FAILED"),
        ("last", "scripted/last", 1, None),
    ]
    assert [call.parameters.get("in_place_of") for call in calls] == [None, "demo", "demo"]
    said = await history(chained)
    assert [spoken(message) for message in said] == ["Anybody?", "", "", "Here."]
    shown = await db(load_chunk, chained.id)
    assert [message.ending for message in shown] == ["", "passed_on", "passed_on", ""]
    rows = await db(load_message_rows, chained.id, [message.id for message in said])
    assert [rows[message.id].model for message in said[1:]] == ["demo", "spare", "last"]


async def test_a_server_that_answers_with_nothing_gives_nothing(chained, script):
    script(Step(text="", error=no_answer(), finish_reason=""))
    script("Here.", alias="spare")
    assert (await say(chained, "Anybody?")).state == TurnState.COMPLETED


async def test_after_a_token_was_shown_nobody_else_is_asked(chained, script):
    script(Step(text="half ", error=ModelStreamBroken()))
    spare = script("never", alias="spare")
    turn = await say(chained, "Anybody?")
    assert (turn.state, turn.error_code) == (TurnState.INTERRUPTED, "MODEL_STREAM_BROKEN")
    assert spare.requests == []


async def test_reasoning_that_was_shown_counts_as_a_token(chained, script):
    model = script(Step(reasoning="Let me see.", error=ModelRateLimited()))
    spare = script("never", alias="spare")
    assert (await say(chained, "Anybody?")).state == TurnState.INTERRUPTED
    assert (len(model.requests), spare.requests) == (1, [])


async def test_when_nobody_answers_the_turn_fails_with_the_last_reason(chained, script):
    script(ModelAuthenticationFailed())
    script(ModelAuthenticationFailed(), alias="spare")
    script(ModelRateLimited(), ModelRateLimited(), alias="last")
    turn = await say(chained, "Anybody?")
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "MODEL_RATE_LIMITED")


async def test_a_stand_in_stays_to_the_end_of_the_turn_and_the_next_begins_with_the_sessions_own(chained, script):
    own = script(ModelAuthenticationFailed(), "back again")
    call = tool_call("calculator", expression="6 * 7")
    spare = script(Step(tool_calls=(call,)), "It is 42.", alias="spare")
    assert (await say(chained, "Six times seven?")).state == TurnState.COMPLETED
    assert (len(own.requests), len(spare.requests)) == (1, 2)
    await say(chained, "And now?")
    assert (len(own.requests), len(spare.requests)) == (2, 2)


async def test_a_smaller_window_gets_a_context_that_fits_it_and_nothing_is_compacted_for_it(alice, script):
    await db(add_model, "small")
    session = await db(
        lifecycle.create_session, owner=alice, config={"fallbacks": ["small"], "turn": {"max_retries": 0}}
    )
    own = script("Noted.", "Noted.", ModelUnavailable(), window=8_000)
    small = script("Here.", alias="small")
    await db(LanguageModel.objects.filter(alias="small").update, context_window=1_500, max_output_tokens=200)
    for _ in range(2):
        await say(session, "The ledgers lie in the harbour office. " * 120)
    assert (await say(session, "Where?")).state == TurnState.COMPLETED
    sizes = [len(str(model.requests[-1].payload)) for model in (own, small)]
    assert sizes[1] < 6_000 < sizes[0]
    first, second = (await calls_of(session))[-2:]
    assert second.estimated_tokens < 1_500 < first.estimated_tokens
    assert second.digest != first.digest


async def test_a_fallback_that_was_removed_is_passed_over(chained, script):
    script(ModelAuthenticationFailed())
    script("Here.", alias="last")
    await db(LanguageModel.objects.filter(alias="spare").delete)
    assert (await say(chained, "Anybody?")).state == TurnState.COMPLETED


async def test_an_interrupt_while_the_stand_in_speaks_keeps_what_it_said(chained, script):
    script(ModelAuthenticationFailed())
    spare = script(Step(text=("kept ", "lost"), gate=asyncio.Event(), gate_after=1), alias="spare")
    turn = await begin(chained, "Go", until=spare)
    await db(lifecycle.interrupt, chained.id, owner_id=chained.owner_id)
    turn = await ended(turn)
    assert turn.state == TurnState.CANCELLED
    assert [spoken(message) for message in await history(chained)] == ["Go", "", "kept "]


async def test_an_entry_names_its_own_fallbacks_and_a_session_may_have_none(alice, script):
    await db(add_model, "first", fallbacks=["spare"])
    await db(add_model, "spare")
    script(ModelAuthenticationFailed(), ModelAuthenticationFailed(), alias="first")
    spare = script("Here.", alias="spare")
    by_entry = await db(lifecycle.create_session, owner=alice, model="first")
    assert (await say(by_entry, "Anybody?")).state == TurnState.COMPLETED
    alone = await db(lifecycle.create_session, owner=alice, model="first", config={"fallbacks": ["first"]})
    assert (await say(alone, "Anybody?")).state == TurnState.FAILED
    assert len(spare.requests) == 1


def test_a_session_cannot_name_a_fallback_that_there_is_not(alice):
    with pytest.raises(ModelNotFoundError):
        lifecycle.create_session(owner=alice, config={"fallbacks": ["nosuch"]})
    session = lifecycle.create_session(owner=alice)
    with pytest.raises(ModelNotFoundError):
        lifecycle.update_session(session.id, owner_id=alice.pk, config={"fallbacks": ["nosuch"]})


@pytest.mark.slow
@pytest.mark.django_db
def test_the_command_adds_a_chain_and_says_what_is_missing(capsys):
    words = ["--alias=mine", "--litellm=openai/x", "--api-base=http://127.0.0.1:9/v1", "--context=9000"]
    call_command("model", "add", *words, "--fallback=demo", "--fallback=later", "--total-timeout=60")
    said = capsys.readouterr().out
    assert "else demo, later" in said
    assert "no model is called 'later' yet" in said
    spec = get_spec("mine", user_id=None)
    assert (spec.fallbacks, spec.total_timeout_seconds) == (("demo", "later"), 60.0)
    model_store.put_model(spec)
    assert get_spec("mine", user_id=None) == spec
