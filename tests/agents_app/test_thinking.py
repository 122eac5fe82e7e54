"""What a model signs of its thinking is kept, and goes back to it as it came."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from mnesis_core.messages import ProviderPart, ReasoningPart
from mnesis_core.records import TurnState
from sessions_app.database.threads import db
from sessions_app.record.message_queries import load_messages
from tests.support.story import say
from tests.support.thinking_provider import OPAQUE, Block, ThinkingProvider
from tests.support.thinking_sessions import ADAPTIVE, GEMINI, MANUAL, MODELS, Imagined, check_calls, thinking_session


def call(number: int) -> Block:
    return "call", ("shelf", {"number": number})


@pytest.fixture(autouse=True)
def _keys(monkeypatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")


def thinks(body: dict[str, Any]) -> Any:
    return body.get("thinking") or body.get("generationConfig", {}).get("thinkingConfig")


def sealed(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what of a request its model has signed."""
    said = [part for one in body.get("contents", ()) for part in one["parts"] if "thoughtSignature" in part]
    blocks = [block for one in body.get("messages", ()) for block in one["content"]]
    return said + [block for block in blocks if block["type"] in OPAQUE]


def brings_results(body: dict[str, Any]) -> bool:
    return any(block["type"] == "tool_result" for block in body["messages"][-1]["content"])


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
    await check_calls(session)


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


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, pytest.param(1_000, marks=pytest.mark.soak)])
async def test_no_session_is_refused_whatever_happens_between_its_calls(alice, count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(count):
        imagined = Imagined(seed)
        with ThinkingProvider(imagined.say, window=30_000) as provider:
            session = await thinking_session(alice, provider, list(MODELS)[seed % 3], window=30_000)
            await imagined.live(session, provider)
        seen += imagined.seen
        for body in provider.requests:
            seen["calls"] += 1
            seen["thinking"] += bool(thinks(body))
            seen["sealed"] += bool(sealed(body))
            seen["thinking with results"] += bool(body.get("thinking")) and brings_results(body)
    print(seen)
    assert min(seen[what] for what in ("compactions", "waits", "thinking", "sealed", "thinking with results")) > 0
