"""What litellm does not hand on of a provider's events is read from them: why an answer ended, and what was refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from mnesis_core.llm.interface import ModelSpec, Outcome, RefusalDelta, Reply, Request
from mnesis_core.providers.litellm_ import LiteLLMModel
from tests.support.event_provider import EventProvider, chat, claude, gemini, responses, said

ASKED = Request(payload={"messages": [{"role": "user", "content": "How?"}]}, max_output_tokens=500)
CLAUDE, GPT, RESPONSES = "anthropic/claude-sonnet-4-5", "openai/gpt-4o", "openai/responses/gpt-5"
GEMINI, ROUTED = "gemini/gemini-2.5-flash", "openrouter/some/model"
NO = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
NO |= {"content": [{"type": "refusal", "refusal": "I will not."}]}
PLACE = {"item_id": "msg_1", "content_index": 0}
SAYS_NO = {
    0: [
        {"type": "response.refusal.delta", **PLACE, "delta": "I will "},
        {"type": "response.refusal.delta", **PLACE, "delta": "not."},
        {"type": "response.refusal.done", **PLACE, "refusal": "I will not."},
    ]
}
REFUSAL = [{"role": "assistant", "content": None, "refusal": ""}, {"refusal": "I will "}, {"refusal": "not."}]


async def answer(name: str, events: Iterable[tuple[str, dict[str, Any]]]) -> list[Any]:
    with EventProvider(lambda _: events) as provider:
        spec = ModelSpec(
            alias="a",
            litellm_model=name,
            api_base=provider.url,
            api_key="key",
            context_window=9_000,
            max_output_tokens=500,
            listed_addresses=None,
        )
        return [item async for item in LiteLLMModel(spec).stream(ASKED)]


@pytest.mark.parametrize(
    ("name", "events", "text", "finish"),
    [
        pytest.param(GPT, chat(*REFUSAL), "I will not.", "stop", id="chat"),
        pytest.param(ROUTED, chat(*REFUSAL), "I will not.", "stop", id="a chat whose events litellm reads"),
        pytest.param(RESPONSES, responses(NO, between=SAYS_NO), "I will not.", "stop", id="responses"),
        pytest.param(RESPONSES, responses(cut="content_filter"), "", "content_filter", id="a filter of responses"),
        pytest.param(CLAUDE, claude(said("Half"), stop="refusal"), "", "refusal", id="claude"),
        pytest.param(GEMINI, gemini({"text": "Half"}, finish="SAFETY"), "", "content_filter", id="gemini"),
        pytest.param(
            GEMINI, [("", {"promptFeedback": {"blockReason": "SAFETY"}})], "", "content_filter", id="a prompt of gemini"
        ),
    ],
)
async def test_a_refusal_is_an_end_of_its_own(name: str, events: Any, text: str, finish: str) -> None:
    *deltas, reply = await answer(name, events)
    assert isinstance(reply, Reply)
    assert (reply.refusal, reply.finish_reason) == (text, finish)
    assert "".join(delta.text for delta in deltas if isinstance(delta, RefusalDelta)) == text
    assert (reply.outcome, reply.error and reply.error.code) == (Outcome.INCOMPLETE, "ANSWER_REFUSED")


async def test_an_answer_that_filled_the_window_says_so() -> None:
    *_, reply = await answer(CLAUDE, claude(said("Half"), stop="model_context_window_exceeded"))
    assert (reply.text, reply.outcome) == ("Half", Outcome.INCOMPLETE)
    assert reply.error.code == "CONTEXT_WINDOW_EXCEEDED"
    assert "Compact the session" in reply.error.message


async def test_a_refused_answer_calls_no_tools() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "shelf", "input": {}}
    *_, reply = await answer(CLAUDE, claude((call, []), stop="refusal"))
    assert reply.tool_calls == ()
