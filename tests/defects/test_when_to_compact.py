"""Defects 1, 2, 7 and 15 of the reference library: it compacts never, or always, or not when it must."""

from __future__ import annotations

import pytest

from agents_app.turns import lifecycle
from compaction_app.compact import compact_session
from compaction_app.context.state import load_meter
from compaction_app.queries import list_runs
from mnesis_core.llm.interface import ModelSpec, Request, Source, Usage
from mnesis_core.providers.answer import estimate_payload
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState
from sessions_app.database.threads import db
from sessions_app.llm.model_store import put_model
from sessions_app.record.turn_queries import list_calls
from tests.defects.talks import WORDS, add_turn, is_summary_request, model_of
from tests.support.people.story import say
from tests.support.providers.openai.openai_server import OpenAIServer


async def test_a_stream_with_its_usage_in_a_last_empty_chunk_is_counted_and_a_compaction_fires(alice):
    """Defect 1: with real providers the usage was lost, and no compaction ever came."""
    with OpenAIServer() as server:
        values = {"context_window": 8_000, "max_output_tokens": 1_000}
        spec = ModelSpec(alias="stub", litellm_model="openai/counted", api_base=server.base_url, **values)
        await db(put_model, spec)
        session = await db(lifecycle.create_session, owner=alice, model="stub")
        while (await db(load_meter, session.id)).used_tokens < 4_000:
            await db(add_turn, session, WORDS * 8)
        turn = await say(session, "And now?")
        await close_connections()
    assert server.requests[-1].body["stream_options"] == {"include_usage": True}
    assert turn.usage.usage_source == "provider"
    assert turn.usage.tokens_input > 4_000
    [run] = await db(list_runs, session.id)
    assert (run.state, run.trigger) == ("queued", "soft")


def counting(request: Request) -> Step:
    """An answer of some length whose provider counts as we do."""
    tokens = estimate_payload(request.payload)
    return Step(text=(WORDS * 25,), usage=Usage(input_tokens=tokens, output_tokens=600, source=Source.PROVIDER))


async def test_thirty_long_turns_in_a_large_window_are_not_compacted_however_much_they_cost(alice, script):
    """Defect 2: what was billed so far was taken for the size of the context (35 compactions in these 30 turns)."""
    script(counting)
    session = await db(lifecycle.create_session, owner=alice, config={"context_window": 128_000})
    for _ in range(30):
        await say(session, WORDS * 25)
    meter = await db(load_meter, session.id)
    billed = sum(call.usage.tokens_input for call in await db(list_calls, session.id))
    assert billed > 4 * meter.usable_tokens
    assert meter.used_tokens < meter.soft_tokens
    assert await db(list_runs, session.id) == []


@pytest.mark.parametrize("window", [4_000, 16_000])
async def test_a_small_window_sends_the_whole_talk_and_compacts_nothing(alice, script, window):
    """Defect 7: 16,000 less 4,096 less 20,000 tokens are none, so every prompt was empty and every turn compacted."""
    asked = script(model_of())
    session = await db(lifecycle.create_session, owner=alice, config={"context_window": window})
    for question in ("Where are the ledgers?", "Who checked them?"):
        turn = await say(session, question)
        assert turn.state == TurnState.COMPLETED
    spoken = [message["content"] for message in asked.requests[-1].payload["messages"]]
    assert spoken == ["Where are the ledgers?", "Noted.", "Who checked them?"]
    assert 0 < asked.requests[-1].max_output_tokens <= window // 4
    assert await db(list_runs, session.id) == []


async def test_a_compaction_that_has_ended_does_not_stand_in_the_way_of_the_next(session, script):
    """Defect 15: a finished task suppressed the compaction at the hard limit, and the prompt went out too large."""
    asked = script(model_of())
    while (meter := await db(load_meter, session.id)).used_tokens <= meter.soft_tokens:
        await db(add_turn, session, WORDS * 8)
    await say(session, "And now?")
    [run] = await db(list_runs, session.id)
    await db(compact_session, session.id, run_id=run.id)
    while (meter := await db(load_meter, session.id)).used_tokens <= meter.hard_tokens:
        await db(add_turn, session, WORDS * 8)
    await say(session, "And after that?")
    newest, first = await db(list_runs, session.id)
    assert (first.trigger, newest.trigger, newest.state) == ("soft", "hard", "completed")
    answered = [request for request in asked.requests if not is_summary_request(request)][-1]
    assert estimate_payload(answered.payload) < meter.usable_tokens
