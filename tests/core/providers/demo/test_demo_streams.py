"""The demo model, asked as any other is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mnesis_core.llm.interface import Model, ModelSpec, Outcome, ReasoningDelta, Reply, Request, Source, complete
from mnesis_core.providers import make_model
from tests.support.sites.site import ROOT

REQUEST = Request(payload={"messages": [{"role": "user", "content": "What is the answer?"}]}, max_output_tokens=50)


async def test_the_demo_model_is_reached_through_the_same_interface() -> None:
    model: Model = make_model(demo_spec())
    reply = await complete(model, REQUEST)
    assert (reply.outcome, reply.usage.source) == (Outcome.COMPLETE, Source.PROVIDER)
    assert "demo model" in reply.text


def demo_spec() -> ModelSpec:
    return ModelSpec(alias="demo", litellm_model="demo/chat", context_window=32_000, max_output_tokens=4_000)


@pytest.mark.parametrize(
    ("command", "outcome", "code"),
    [
        ("!fail 401", Outcome.FAILED, "MODEL_AUTHENTICATION_FAILED"),
        ("!fail 429", Outcome.FAILED, "MODEL_RATE_LIMITED"),
        ("!fail 500", Outcome.FAILED, "MODEL_UNAVAILABLE"),
        ("word " * 20_000 + "!fail long", Outcome.FAILED, "CONTEXT_WINDOW_EXCEEDED"),
        ("Hello !fail long", Outcome.COMPLETE, None),
        ("!fail cut", Outcome.INCOMPLETE, "MODEL_REPLY_INCOMPLETE"),
        ("!fail empty", Outcome.INCOMPLETE, "MODEL_REPLY_INCOMPLETE"),
    ],
)
async def test_the_demo_model_fails_as_it_is_told(command: str, outcome: Outcome, code: str | None) -> None:
    reply = await complete(make_model(demo_spec()), say(command))
    assert (reply.outcome, reply.error and reply.error.code) == (outcome, code)


def say(text: str, *, max_output_tokens: int = 500) -> Request:
    return Request(payload={"messages": [{"role": "user", "content": text}]}, max_output_tokens=max_output_tokens)


async def test_the_demo_model_streams_words_thinks_and_calls_tools() -> None:
    function = {"name": "calculator", "description": "Sums.", "parameters": {"required": ["expression"]}}
    payload = {**say("!think what is 3 * 4?").payload, "tools": [{"type": "function", "function": function}]}
    items = [item async for item in make_model(demo_spec()).stream(Request(payload=payload, max_output_tokens=100))]
    reply = items[-1]
    assert isinstance(reply, Reply)
    assert sum(isinstance(item, ReasoningDelta) for item in items) > 10
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("calculator", '{"expression": "3 * 4"}')]


async def test_the_demo_model_keeps_to_the_largest_answer() -> None:
    reply = await complete(make_model(demo_spec()), say("!long 2000", max_output_tokens=60))
    assert (reply.outcome, reply.finish_reason) == (Outcome.COMPLETE, "length")
    assert reply.usage.output_tokens <= 60


async def test_a_slow_answer_ends_when_its_time_is_up() -> None:
    request = Request(payload=say("!slow 5000 !long 9").payload, max_output_tokens=500, seconds=0.05)
    reply = await complete(make_model(demo_spec()), request)
    assert (reply.outcome, reply.error and reply.error.code) == (Outcome.BROKEN, "MODEL_TIMEOUT")
    assert reply.text


async def test_what_no_encoding_can_write_is_answered_too() -> None:
    reply = await complete(make_model(demo_spec()), say("Remember: the code is \ud800-4471."))
    assert reply.outcome is Outcome.COMPLETE
    reply.text.encode()


def test_the_demo_model_needs_no_litellm() -> None:
    script = (
        "import asyncio, sys\n"
        "from mnesis_core.llm.interface import ModelSpec, Request, complete\n"
        "from mnesis_core.providers import make_model\n"
        "spec = ModelSpec(alias='demo', litellm_model='demo/chat', context_window=32_000, max_output_tokens=4_000)\n"
        "for text in ('Hello', '!fail 500'):\n"
        "    request = Request(payload={'messages': [{'role': 'user', 'content': text}]}, max_output_tokens=500)\n"
        "    asyncio.run(complete(make_model(spec), request))\n"
        "assert 'litellm' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
