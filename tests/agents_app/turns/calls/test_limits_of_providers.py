"""Each provider's own limits: a prompt that it calls too long is made shorter, and no request has more pictures than it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents_app.turns import lifecycle
from compaction_app.context.state import load_meter
from mnesis_core.files.pictures import read_data_url
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from sessions_app.record.turn_queries import list_calls
from tests.support.material.drawings import data_url, noise
from tests.support.people.story import say
from tests.support.providers.answers import Event, Events, responses
from tests.support.providers.caching_provider import CachingProvider
from tests.support.providers.event_provider import EventProvider
from tests.support.providers.strict import TOO_LONG

CLAUDE, GEMINI = "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro"
RESPONSES, CHAT = "openai/responses/gpt-4.1", "openai/gpt-4.1"
ALL = [CLAUDE, GEMINI, RESPONSES, CHAT]
WORDS = "The tide gauge at Portwell reads forty one. "  # about ten tokens
OPENAI_SAYS = "Your input exceeds the context window of this model. Please adjust your input and try again."


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "key")


async def session_of(alice: Any, provider: CachingProvider, name: str, *, window: int = 40_000) -> SessionRecord:
    spec = settle_model(
        alias="mine", litellm_model=name, api_base=provider.url, context_window=window, max_output_tokens=1_000,
        prices=EnteredPrices(input=3, output=15, cache_read=0.3), timeout_seconds=60, total_timeout_seconds=600,
        fallbacks=(), takes_pictures=True,
    )  # fmt: skip
    await db(put_model, spec)
    config = {"turn": {"tools": []}, "compaction": {"model": "demo"}}
    return await db(lifecycle.create_session, owner=alice, model="mine", config=config)


async def ends_of(session: SessionRecord) -> list[str | None]:
    return [call.error_code for call in reversed(await db(list_calls, session.id)) if call.purpose == "turn"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
async def test_a_prompt_that_a_provider_calls_too_long_is_sent_shorter(alice: Any, name: str) -> None:
    with CachingProvider(lambda _: "The gauge was noted.", window=12_000) as provider:
        session = await session_of(alice, provider, name)
        turns = [await say(session, question) for question in (WORDS * 2_000, "And now?", "Thanks.")]
    assert [turn.state for turn in turns] == [TurnState.COMPLETED] * 3, provider.refusals
    first, *others = await ends_of(session)
    assert first == "CONTEXT_WINDOW_EXCEEDED"
    # OpenAI's Responses do not say how much they take, so another guess may be too long too.
    assert others.count("CONTEXT_WINDOW_EXCEEDED") <= (name == RESPONSES)
    assert len(provider.refusals) == 1 + others.count("CONTEXT_WINDOW_EXCEEDED")
    meter = await db(load_meter, session.id)
    assert meter.ratio > 1 if name == RESPONSES else meter.window == 12_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
async def test_a_history_that_is_too_long_is_compacted_within_the_turn(alice: Any, name: str) -> None:
    with CachingProvider(lambda _: "The gauge was noted.") as provider:
        session = await session_of(alice, provider, name)
        for _ in range(5):
            await say(session, WORDS * 400)
        provider.window = 14_000
        turn = await say(session, WORDS * 200)
    assert turn.state == TurnState.COMPLETED, (turn.error_message, provider.refusals)
    assert "CONTEXT_WINDOW_EXCEEDED" in await ends_of(session)
    assert any(call.purpose == "summary" for call in await db(list_calls, session.id))


def failed() -> list[tuple[str, Event]]:
    error = {"code": TOO_LONG, "message": OPENAI_SAYS}
    head = {"id": "resp_1", "object": "response", "model": "gpt-4.1", "created_at": 1, "output": [], "usage": None}
    about = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    begun = {"type": "response.created", "response": head | about | {"status": "in_progress"}, "sequence_number": 0}
    whole = {"type": "response.failed", "response": head | about | {"status": "failed", "error": error}}
    return [("response.created", begun), ("response.failed", whole | {"sequence_number": 1})]


def error_event() -> list[tuple[str, Event]]:
    error = {"type": "invalid_request_error", "code": TOO_LONG, "message": OPENAI_SAYS, "param": "input"}
    return [("error", {"type": "error", "sequence_number": 0, "error": error})]


@pytest.mark.parametrize("refusal", [failed, error_event])
async def test_responses_may_say_so_in_their_stream(alice: Any, refusal: Any) -> None:
    said = {"type": "output_text", "text": "Noted.", "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    told = {"type": "response.output_text.delta", "item_id": "msg_1", "content_index": 0, "delta": "Noted."}

    def answers(number: int) -> Events:
        return iter(refusal()) if number == 0 else responses(item, between={0: [told]})

    with EventProvider(answers) as provider:
        session = await session_of(alice, provider, RESPONSES)
        turn = await say(session, WORDS * 2_000)
    assert turn.state == TurnState.COMPLETED, turn.error_message
    assert await ends_of(session) == ["CONTEXT_WINDOW_EXCEEDED", None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("name", ALL)
async def test_no_request_has_more_of_pictures_than_a_provider_takes(alice: Any, name: str) -> None:
    # 14.8 MB, which become 19.7 beside half a megabyte of text.
    sent = [read_data_url(data_url(noise(1_115, 1_115)), place="x") for _ in range(5)]
    with CachingProvider(lambda _: "Noise.", window=1_000_000) as provider:
        session = await session_of(alice, provider, name, window=1_000_000)
        message = WORDS * 12_000
        started = await lifecycle.start_turn(session.id, owner_id=alice.pk, message=message, pictures=sent)
        turn = await lifecycle.wait_turn(session.id, started.turn.id, owner_id=alice.pk)
    assert (turn.state, provider.refusals) == (TurnState.COMPLETED, []), turn.error_message
    size = len(json.dumps(provider.requests[0]))
    assert size > 9_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", [GEMINI, RESPONSES, CHAT])
async def test_what_a_cache_read_is_counted_and_a_pause_empties_it(alice: Any, name: str) -> None:
    with CachingProvider(lambda _: "The gauge was noted.") as provider:
        session = await session_of(alice, provider, name)
        for clock in (0.0, 10.0, 309.0, 610.0):
            provider.clock = clock
            await say(session, WORDS * 300)
    assert [bill.read > 0 for bill in provider.bills] == [False, True, True, False]
    calls = [call for call in reversed(await db(list_calls, session.id)) if call.purpose == "turn"]
    assert [call.usage.tokens_cache_read for call in calls] == [bill.read for bill in provider.bills]
    assert [call.usage.tokens_input for call in calls] == [bill.total for bill in provider.bills]
