"""An agent session of 200 calls against doubles of Claude, OpenAI and Gemini: what their caches read of the prompts.

Turns of 20 calls, each of which reads a shelf of about 640 tokens; the demo model summarises. The doubles bill by the
providers' documented rules of caching (``tests.support.providers.caching_provider``). The cost is that of the same prompts
without a cache, in the same run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from django.contrib.auth.models import User

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from compaction_app.compact import compact
from compaction_app.queries import list_runs, live_run
from mnesis_core.records import RunRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from sessions_app.record.turn_queries import load_turn
from tests.support.providers.caching_provider import Answer, CachingProvider, prompt_of

WINDOWS = (60_000, 100_000, 120_000, 200_000)
CALLS, CALLS_A_TURN = 200, 20
MODELS = {
    "Claude": "anthropic/claude-sonnet-4-5",
    "OpenAI": "openai/gpt-4.1",
    "Gemini": "gemini/gemini-2.5-pro",
}
PRICES = EnteredPrices(input=3, output=15, cache_read=0.3, cache_write=3.75, cache_write_1h=6)
READ = {"Claude": 0.1, "OpenAI": 0.25, "Gemini": 0.25}
WRITTEN = 1.25
"""The prices of a token that is read from a cache and of one that Claude writes into it, as shares of a new one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    provider: CachingProvider
    runs: list[RunRecord]

    @property
    def breaks(self) -> list[int]:
        """Return the numbers of the calls whose prompt does not begin with the one before."""
        sent = [prompt_of(body) for body in self.provider.requests]
        return [
            number for number, (before, after) in enumerate(pairwise(sent), start=1) if not after.startswith(before)
        ]

    def cost(self, name: str) -> float:
        """Return the price of all prompts as a share of what it would be without a cache."""
        bills = self.provider.bills
        paid = sum(bill.fresh + READ[name] * bill.read + WRITTEN * sum(bill.written.values()) for bill in bills)
        return paid / sum(bill.total for bill in bills)

    @property
    def mean(self) -> float:
        """Return the tokens of a prompt."""
        return sum(bill.total for bill in self.provider.bills) / len(self.provider.bills)


@tool()
def read_cached_shelf(context: ToolContext, number: int) -> str:
    """Read a shelf of the archive, while a worker does what is queued."""
    if run_id := live_run(context.session_id):
        compact(run_id=run_id)
    return f"Shelf {number}: " + f"ledger {number} of the harbour lies on shelf {number * 7 % 97}; " * 40


def _answer(number: int) -> Answer:
    turn, step = divmod(number, CALLS_A_TURN)
    if step == CALLS_A_TURN - 1:
        return f"All ledgers of round {turn} were read."
    return "read_cached_shelf", {"number": number}


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner = User.objects.create_user("benchmark")
    return asyncio.run(_measure(owner))


async def _measure(owner: User) -> list[tuple[str, ...]]:
    rows = []
    for name in MODELS:
        for window in WINDOWS:
            lived = await live(owner, name, window)
            rows.append(_row(name, window, lived))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    await runner.shutdown()
    return rows


async def live(owner: User, name: str, window: int, *, answer: Callable[[int], Answer] = _answer) -> Lived:
    """Live the session with a model of this window, and return what the provider was asked."""
    for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        os.environ[key] = "key"
    with CachingProvider(answer) as provider:
        session_id = await _begin(owner, MODELS[name], provider, window)
        for turn in range(CALLS // CALLS_A_TURN):
            message = f"Read more shelves. Which ledger lies on shelf {turn}?"
            started = await lifecycle.start_turn(session_id, owner_id=owner.pk, message=message)
            await runner.wait(started.turn.id)
            ended = await db(load_turn, started.turn.id, session_id=session_id)
            assert (ended.state, provider.refusals) == (TurnState.COMPLETED, []), (ended, provider.refusals)
    runs = await db(list_runs, session_id)
    return Lived(provider=provider, runs=[run for run in runs if run.state == "completed"])


async def _begin(owner: User, model: str, provider: CachingProvider, window: int) -> str:
    url = f"{provider.url}/v1" if model.startswith("openai/") else provider.url
    alias = f"{model.partition('/')[0]}-{window}"
    spec = settle_model(
        alias=alias, litellm_model=model, api_base=url, context_window=window, max_output_tokens=4_096, prices=PRICES,
        timeout_seconds=60, total_timeout_seconds=600, fallbacks=(), takes_pictures=None, cache="5m",
    )  # fmt: skip
    await db(put_model, spec)
    config = {
        "turn": {"tools": ["read_cached_shelf"], "doom_loop_threshold": 10},
        "compaction": {"model": "demo"},
    }
    prompt = "You keep the archive of the harbour of Portwell. " * 20
    session = await db(lifecycle.create_session, owner=owner, model=alias, system_prompt=prompt, config=config)
    return session.id


def _row(name: str, window: int, lived: Lived) -> tuple[str, ...]:
    provider = lived.provider
    return (
        name,
        f"{window:,}",
        str(len(provider.bills)),
        str(len(lived.runs)),
        str(len(lived.breaks)),
        f"{lived.mean:,.0f}",
        f"{provider.share_read:.1%}",
        f"{lived.cost(name):.3f}",
    )
