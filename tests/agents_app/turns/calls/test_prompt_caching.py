"""A provider that keeps prompts reads nearly all of each call of an agent from what it kept of the call before."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from compaction_app.compact import compact
from compaction_app.context.state import rebuild_payload
from compaction_app.queries import list_runs, live_run
from mnesis_core.records import CallRecord, SessionRecord, TurnState
from sessions_app.conf import get_spec
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from sessions_app.record.turn_queries import list_calls, load_call
from tests.support.people.story import say
from tests.support.providers.caching_provider import Answer, CachingProvider, without_marks

pytestmark = pytest.mark.slow
WINDOW = 60_000
CLAUDE = "anthropic/claude-sonnet-4-5"
PRICES = EnteredPrices(input=3, output=15, cache_read=0.3, cache_write=3.75, cache_write_1h=6)


@tool()
def read_shelf(context: ToolContext, number: int) -> str:
    """Read a shelf of the archive, while a worker does what is queued."""
    if run_id := live_run(context.session_id):
        compact(run_id=run_id)
    return f"Shelf {number}: " + f"ledger {number} of the harbour lies on shelf {number * 7 % 97}; " * 40


def reading(each: int):
    """Answers of a model that reads so many shelves in each turn."""

    def answer(number: int) -> Answer:
        turn, step = divmod(number, each)
        return f"All ledgers of round {turn} were read." if step == each - 1 else ("read_shelf", {"number": number})

    return answer


async def agent_session(alice, provider: CachingProvider, name: str, *, cache: str = "5m", **config) -> SessionRecord:
    url = f"{provider.url}/v1" if name.startswith("openai/") else provider.url
    spec = settle_model(
        alias="kept", litellm_model=name, api_base=url, context_window=WINDOW, max_output_tokens=4_096, prices=PRICES,
        timeout_seconds=60, total_timeout_seconds=600, fallbacks=(), takes_pictures=None, cache=cache,
    )  # fmt: skip
    await db(put_model, spec)
    config = {"turn": {"tools": ["read_shelf"], "doom_loop_threshold": 10}, "compaction": {"model": "demo"}} | config
    prompt = "You keep the archive of the harbour of Portwell. " * 20
    return await db(lifecycle.create_session, owner=alice, model="kept", system_prompt=prompt, config=config)


def breaks(provider: CachingProvider) -> list[int]:
    """Return the numbers of the requests that do not begin with what the one before sent."""
    sent = [without_marks(body) for body in provider.requests]
    return [number for number, (before, after) in enumerate(pairwise(sent), start=1) if not after.startswith(before)]


async def live(session: SessionRecord, *, turns: int) -> None:
    for turn in range(turns):
        ended = await say(session, f"Read more shelves. Which ledger lies on shelf {turn}?")
        assert (ended.state, ended.error_message) == (TurnState.COMPLETED, None)


async def turn_calls(session: SessionRecord) -> list[CallRecord]:
    calls = await db(list_calls, session.id, limit=500)
    return [call for call in reversed(calls) if call.purpose == "turn"]


async def test_an_agent_of_200_calls_reads_nearly_all_of_its_prompts_from_claude_s_cache(alice, monkeypatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    with CachingProvider(reading(20)) as provider:
        session = await agent_session(alice, provider, CLAUDE)
        await live(session, turns=10)
    assert (len(provider.bills), provider.refusals) == (200, [])
    completed = [run for run in await db(list_runs, session.id) if run.state == "completed"]
    assert len(completed) >= 2
    assert len(breaks(provider)) == len(completed), "between two compactions each prompt begins with the one before"
    assert provider.share_read >= 0.95
    calls = await turn_calls(session)
    counted = [(call.usage.tokens_input, call.usage.tokens_cache_read, call.usage.tokens_cache_write) for call in calls]
    assert counted == [(bill.total, bill.read, sum(bill.written.values())) for bill in provider.bills]
    prices = (await db(get_spec, "kept", user_id=None)).prices
    uncached = sum(call.usage.tokens_input * prices.input + call.usage.tokens_output * prices.output for call in calls)
    assert sum(call.usage.cost_micros for call in calls) <= 0.2 * uncached / 1_000_000
    assert {call.tokens_cache_write_1h for call in calls} == {0}
    for call in calls:
        assert (await db(rebuild_payload, call)).digest_matches


async def test_a_session_that_asks_for_an_hour_is_billed_for_an_hour(alice, monkeypatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    with CachingProvider(reading(6)) as provider:
        session = await agent_session(alice, provider, CLAUDE, cache="1h")
        await live(session, turns=1)
        provider.clock = 3_599.0
        await live(session, turns=1)
        provider.clock = 3_599.0 + 3_601.0
        await live(session, turns=1)
    assert [bill.read > 0 for bill in provider.bills[5:8]] == [True] * 3
    assert provider.bills[12].read == 0
    assert not any("5m" in bill.written for bill in provider.bills)
    [*_, last] = await turn_calls(session)
    written = provider.bills[-1].written["1h"]
    expected = last.usage.tokens_cache_read * 300_000 + written * 6_000_000 + provider.bills[-1].fresh * 3_000_000
    assert last.usage.cost_micros == -(-(expected + last.usage.tokens_output * 15_000_000) // 1_000_000)
    assert last.tokens_cache_write_1h == last.usage.tokens_cache_write == written
    page = (await db(load_call, last.id, owner_id=alice.id)).parameters
    assert page["cache"]["lifetime"] == "1h"


async def test_a_cache_that_is_off_is_not_asked_for(alice, monkeypatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    with CachingProvider(reading(4)) as provider:
        session = await agent_session(alice, provider, CLAUDE, cache="off")
        await live(session, turns=1)
    assert "cache_control" not in str(provider.requests)
    assert {(bill.read, *bill.written.values()) for bill in provider.bills} == {(0,)}
    assert not any("cache" in call.parameters for call in await turn_calls(session))


@pytest.mark.parametrize(
    ("name", "key"), [("openai/gpt-4.1", "OPENAI_API_KEY"), ("gemini/gemini-2.5-pro", "GEMINI_API_KEY")]
)
async def test_providers_that_find_the_beginning_by_themselves_read_it_too(alice, monkeypatch, name, key) -> None:
    monkeypatch.setenv(key, "key")
    with CachingProvider(reading(20)) as provider:
        session = await agent_session(alice, provider, name)
        await live(session, turns=5)
    assert len(provider.bills) == 100
    assert "cache_control" not in str(provider.requests)
    assert provider.share_read >= 0.95
    calls = await turn_calls(session)
    assert [call.usage.tokens_cache_read for call in calls] == [bill.read for bill in provider.bills]


async def test_the_page_of_a_call_says_what_the_cache_did(alice, monkeypatch, client) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    with CachingProvider(reading(6)) as provider:
        session = await agent_session(alice, provider, CLAUDE)
        await live(session, turns=1)
    first, *_, last = [call for call in await turn_calls(session) if call.usage.tokens_cache_write]
    await db(client.force_login, alice)
    said = [
        (await db(client.get, f"/sessions/{session.id}/inspect/calls/{call.id}/")).content.decode()
        for call in (first, last)
    ]
    assert "of it to fill the cache" in said[0]
    assert f"cache {last.usage.tokens_cache_read:,} read, {last.usage.tokens_cache_write:,} written" in said[1]
    assert "saved by the cache" in said[1]
    assert "for 5 minutes after it was last read" in said[1]
