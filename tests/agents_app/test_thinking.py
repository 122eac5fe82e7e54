"""What a model signs of its thinking is kept, and goes back to it as it came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from compaction_app.context.state import rebuild_payload
from mnesis_core.messages import ProviderPart, ReasoningPart
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.support.story import say
from tests.support.thinking_provider import OPAQUE, Block, ThinkingProvider

MANUAL = "anthropic/claude-sonnet-4-5"
ADAPTIVE = "anthropic/claude-opus-4-6"
GEMINI = "gemini/gemini-3-pro-preview"
MODELS = {MANUAL: "manual", ADAPTIVE: "adaptive", GEMINI: "gemini"}


@tool()
def shelf(context: ToolContext, number: int) -> str:
    """Read a shelf."""
    return f"Shelf {number}: " + "ledgers of the harbour; " * 20


def call(number: int) -> Block:
    return "call", ("shelf", {"number": number})


@pytest.fixture(autouse=True)
def _keys(monkeypatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")


def enter(alias: str, name: str, provider: ThinkingProvider, *, window: int = 120_000) -> None:
    put_model(settle_model(
        alias=alias, litellm_model=name, api_base=provider.url, context_window=window, max_output_tokens=16_000,
        prices=EnteredPrices(), timeout_seconds=60, total_timeout_seconds=600, fallbacks=(), takes_pictures=None,
    ))  # fmt: skip


async def thinking_session(
    alice, provider: ThinkingProvider, name: str, *, effort: str = "high", **config
) -> SessionRecord:
    for alias, model in {MODELS[model]: model for model in {*MODELS, name}}.items():
        await db(enter, alias, model, provider)
    config = {"turn": {"tools": ["shelf"], "doom_loop_threshold": 10}, "parameters": {"effort": effort}} | config
    return await db(
        lifecycle.create_session, owner=alice, model=MODELS[name], system_prompt="Be careful.", config=config
    )


async def check_record(session: SessionRecord) -> None:
    for one in await db(list_calls, session.id, limit=500):
        rebuilt = await db(rebuild_payload, one)
        assert rebuilt.digest_matches, rebuilt.problems


def thinks(body: dict[str, Any]) -> Any:
    return body.get("thinking") or body.get("generationConfig", {}).get("thinkingConfig")


def sealed(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what of a request its model has signed."""
    said = [part for one in body.get("contents", ()) for part in one["parts"] if "thoughtSignature" in part]
    blocks = [block for one in body.get("messages", ()) for block in one["content"]]
    return said + [block for block in blocks if block["type"] in OPAQUE]


SCRIPT: list[list[Block]] = [
    [("think", "Which shelf? "), ("redact", "b64"), ("text", "I look."), call(1), ("think", "And the other."), call(2)],
    [("think", ""), call(3)],
    [("think", "Enough."), ("text", "Ledgers.")],
    [("text", "As I said.")],
]
SENT = {MANUAL: [0, 3, 3, 3], ADAPTIVE: [0, 3, 4, 5], GEMINI: [0, 1, 2, 3]}  # how much of it each call sends back


@pytest.mark.parametrize("name", MODELS)
async def test_thinking_comes_back_unchanged_with_the_results_of_its_calls(alice, name: str) -> None:
    with ThinkingProvider(SCRIPT.__getitem__) as provider:
        session = await thinking_session(alice, provider, name)
        for question in ("What is there?", "Again?"):
            ended = await say(session, question)
            assert (provider.refusals, ended.state) == ([], TurnState.COMPLETED), ended.error_message
    assert [bool(thinks(body)) for body in provider.requests] == [True] * 4
    assert [len(sealed(body)) for body in provider.requests] == SENT[name]
    await check_record(session)


async def test_what_people_read_of_it_stands_before_what_only_the_model_reads(alice) -> None:
    with ThinkingProvider(SCRIPT.__getitem__) as provider:
        session = await thinking_session(alice, provider, ADAPTIVE)
        await say(session, "What is there?")
    [_, answer, *_] = await db(load_messages, session.id, limit=50)
    kinds = [getattr(stored.part, "kind", stored.part.type) for stored in answer.parts]
    assert kinds == [
        *("reasoning", "thinking", "redacted_thinking", "text", "reasoning", "tool", "thinking", "tool"),
    ]
    signed = answer.parts[1].part
    assert isinstance(signed, ProviderPart)
    assert (signed.provider, signed.model, len(signed.prompt)) == ("anthropic", "claude-opus-4-6", 32)
    assert json.loads(signed.data).keys() == {"type", "thinking", "signature"}
    assert answer.parts[0].part == ReasoningPart(text="Which shelf? ")
