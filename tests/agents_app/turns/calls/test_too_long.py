"""A provider refuses a prompt as too long: the turn goes on with a smaller one, and the model is not asked so much again."""

from __future__ import annotations

import pytest

from agents_app.turns import lifecycle
from compaction_app.context.state import load_frame, load_meter
from mnesis_core.llm.interface import ModelSpec, Request
from mnesis_core.providers.scripted import Counting
from mnesis_core.records import TurnState
from sessions_app.conf import get_spec
from sessions_app.database.threads import db
from sessions_app.llm.model_store import put_model
from sessions_app.models import LanguageModel
from sessions_app.pages.transcript import load_chunk
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import begin, ended, history, say, spoken

WORDS = "The tide gauge at Portwell reads forty one. "
NO_NUMBERS = "Your input exceeds the context window of this model."
WITH_THE_ANSWER = "This model's maximum context length is {window} tokens. However, you requested {total} tokens."


def text_of(tokens: int) -> str:
    """About so many tokens by our count."""
    return WORDS * (tokens // 10)


def noted(request: Request) -> str:
    """An answer that serves for a summary too."""
    return "The gauge was noted." if "MNESIS-SUMMARISE" not in str(request.payload) else "A gauge at Portwell was read."


@pytest.fixture
def row(transactional_db) -> ModelSpec:
    """The model of these sessions as an entry that keeps what is learnt of it."""
    spec = ModelSpec(alias="demo", litellm_model="scripted/demo", context_window=32_000, max_output_tokens=1_000)
    put_model(spec)
    return spec


def strict(script, *, window: int = 32_000, **counting):
    """The model, with a provider that counts in its own way."""
    model = script(noted)
    model.spec = ModelSpec(alias="demo", litellm_model="scripted/demo", context_window=32_000, max_output_tokens=1_000)
    model.counting = Counting(window=window, **counting)
    return model


async def calls_of(session):
    return [call for call in reversed(await db(list_calls, session.id)) if call.purpose == "turn"]


async def refused(session) -> int:
    return sum(call.error_code == "CONTEXT_WINDOW_EXCEEDED" for call in await calls_of(session))


async def test_a_first_message_that_its_provider_counts_as_too_long_is_answered_and_so_are_the_next(row, alice, script):
    strict(script, ratio=1.4)
    session = await db(lifecycle.create_session, owner=alice)
    turns = [await say(session, message) for message in (text_of(24_000), "And now?", "And then?", "Thanks.")]
    assert [turn.state for turn in turns] == [TurnState.COMPLETED] * 4
    first, second, *rest = await calls_of(session)
    assert (first.outcome, first.error_code, first.state) == ("failed", "CONTEXT_WINDOW_EXCEEDED", "failed")
    assert (first.usage.tokens_input, first.usage.tokens_output, first.usage.cost_micros) == (0, 0, 0)
    assert (second.outcome, second.error_code) == ("complete", None)
    assert second.estimated_tokens < first.estimated_tokens
    assert {call.error_code for call in rest} == {None}
    assert turns[0].usage.tokens_input == second.usage.tokens_input
    shown = await db(load_chunk, session.id)
    assert [message.ending for message in shown][:3] == ["", "passed_on", ""]


async def test_what_was_left_out_of_a_message_can_be_read_by_its_id(row, session, script):
    model = strict(script, ratio=1.4)
    await say(session, text_of(24_000))
    sent = model.requests[-1].payload["messages"][-1]["content"]
    question = (await history(session))[0]
    assert f"message {question.id}" in sent
    assert "lcm_read" in sent


async def test_the_ratio_stays_with_the_session_and_with_its_model(row, alice, session, script):
    model = strict(script, ratio=1.4)
    await say(session, text_of(24_000))
    assert (await db(load_meter, session.id)).ratio == pytest.approx(1.4, abs=0.05)
    assert (await db(get_spec, "demo", user_id=None)).shared_ratio == pytest.approx(1.4, abs=0.05)
    model.spec = await db(get_spec, "demo", user_id=None)
    other = await db(lifecycle.create_session, owner=alice)
    assert (await say(other, text_of(24_000))).state == TurnState.COMPLETED
    assert (await refused(session), await refused(other)) == (1, 0)


async def test_what_a_refusal_teaches_is_read_from_the_record(session, script):
    strict(script, refuses_all=True, words=NO_NUMBERS)
    await say(session, text_of(24_000))
    known = (await db(load_frame, session.id)).calibration
    again = (await db(load_frame, session.id)).calibration
    assert known == again
    assert known.ratio > 1


@pytest.mark.parametrize(
    "words",
    [Counting(window=1).words, *(pytest.param(one, marks=pytest.mark.slow) for one in (WITH_THE_ANSWER, NO_NUMBERS))],
)
@pytest.mark.parametrize("ratio", [1.4, *(pytest.param(one, marks=pytest.mark.slow) for one in (1.1, 2.0, 3.0))])
async def test_a_turn_recovers_at_any_ratio_whatever_the_provider_says(row, session, script, ratio, words):
    strict(script, ratio=ratio, words=words)
    assert (await say(session, text_of(26_000))).state == TurnState.COMPLETED
    assert await refused(session) <= 3
    for _ in range(3):
        assert (await say(session, text_of(3_000))).state == TurnState.COMPLETED


@pytest.mark.slow
async def test_a_model_that_takes_less_than_its_entry_says_teaches_its_window(row, session, script):
    strict(script, window=8_192)
    assert (await say(session, text_of(24_000))).state == TurnState.COMPLETED
    assert await refused(session) == 1
    meter = await db(load_meter, session.id)
    assert (meter.window, meter.window_source, meter.ratio) == (8_192, "provider", pytest.approx(1.0, abs=0.05))
    for _ in range(4):
        assert (await say(session, text_of(2_000))).state == TurnState.COMPLETED
    assert await refused(session) == 1


async def test_history_that_is_too_long_by_the_provider_s_count_is_compacted_within_the_turn(row, session, script):
    model = strict(script, ratio=1.0)
    for _ in range(5):
        await say(session, text_of(3_000))
    model.counting = Counting(window=32_000, ratio=2.2)
    turn = await say(session, text_of(2_000))
    assert turn.state == TurnState.COMPLETED
    assert await refused(session) == 1
    assert any(call.purpose == "summary" for call in await db(list_calls, session.id))


async def test_a_provider_that_refuses_everything_ends_in_one_clear_error(row, session, script):
    model = strict(script, refuses_all=True)
    turn = await say(session, text_of(24_000))
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "CONTEXT_WINDOW_EXCEEDED")
    assert 1 < len(model.requests) <= 4
    sizes = [call.estimated_tokens for call in await calls_of(session)]
    assert sizes == sorted(sizes, reverse=True)
    assert turn.usage.tokens_input == 0
    assert spoken((await history(session))[0]) == text_of(24_000)
    model.counting = None
    assert (await say(session, "Are you there?")).state == TurnState.COMPLETED


async def test_a_prompt_that_cannot_be_made_smaller_is_not_sent_again(row, session, script):
    model = strict(script, refuses_all=True, words=NO_NUMBERS)
    turn = await say(session, "Hello.")
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "CONTEXT_WINDOW_EXCEEDED")
    assert len(model.requests) == 1


async def test_a_fallback_with_a_smaller_window_gets_a_prompt_of_its_own(row, alice, script):
    await db(
        LanguageModel.objects.create,
        alias="small",
        litellm_model="scripted/small",
        context_window=8_000,
        max_output_tokens=500,
    )
    session = await db(lifecycle.create_session, owner=alice, config={"fallbacks": ["small"]})
    strict(script, refuses_all=True)
    small = script(noted, alias="small")
    small.counting = Counting(window=8_000, ratio=1.4)
    turn = await ended(await begin(session, text_of(24_000)))
    assert turn.state == TurnState.COMPLETED
    assert [call.error_code for call in await calls_of(session) if call.model == "small"] == [
        "CONTEXT_WINDOW_EXCEEDED",
        None,
    ]


async def test_the_demo_model_shows_how_a_prompt_is_made_shorter(session):
    turn = await say(session, text_of(6_000) + "!fail long")
    assert turn.state == TurnState.COMPLETED
    assert [call.error_code for call in await calls_of(session)] == ["CONTEXT_WINDOW_EXCEEDED", None]
    assert (await db(load_meter, session.id)).window == 4_000
