"""What a provider wants back as it gave it: taken out of litellm's stream, and into litellm's messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mnesis_core.context.assembly import assemble
from mnesis_core.llm.interface import ModelSpec, OpaqueBlock, Request, complete
from mnesis_core.llm.interface import ToolSpec as Tool
from mnesis_core.messages import ProviderPart, TextPart, ToolPart, ToolState
from mnesis_core.providers.answer import PartialAnswer
from mnesis_core.providers.litellm_ import LiteLLMModel, called_name
from mnesis_core.providers.litellm_parameters import asks_back, takes_back
from mnesis_core.providers.opaque import lacks_thinking
from mnesis_core.providers.rendering import answers_after_other_prompts, prompt_digest, render_chat
from tests.core.context import contexts as make
from tests.support.providers.responses_server import ITEM, ResponsesServer

TOOLS = [Tool(name="shelf", description="", parameters={"type": "object", "properties": {}})]


def assembled(messages: list[Any], *, provider: str, tools: Any = ()) -> Any:
    entries = make.entries_of(messages)
    return assemble(entries, system_prompt="", tools=tools, budget=make.budget(10_000), provider=provider)


def spec(name: str, **about: Any) -> ModelSpec:
    return ModelSpec(alias="a", litellm_model=name, context_window=200_000, max_output_tokens=6_000, **about)


async def test_openai_s_encrypted_reasoning_goes_back_before_the_calls_that_it_led_to() -> None:
    with ResponsesServer() as server:
        model = spec("openai/responses/gpt-5", api_base=f"{server.url}/v1", api_key="key", listed_addresses=None)
        first = {"messages": [{"role": "user", "content": "What is there?"}], **asks_back(model)}
        reply = await complete(LiteLLMModel(model), Request(payload=first, max_output_tokens=500))
        [call] = reply.tool_calls
        [block] = call.opaque
        assert (block.kind, json.loads(block.data)) == ("reasoning", ITEM)
        part = ProviderPart(provider="openai", kind=block.kind, data=block.data, model="responses/gpt-5")
        done = ToolPart(tool_name="shelf", tool_call_id=call.id, input="{}", output="empty", state=ToolState.COMPLETED)
        said = [make.message(1, "user", "What is there?"), make.message(2, "assistant", "I look.", part, done)]
        sent = render_chat(assembled(said, provider="openai/responses/gpt-5"))
        await complete(LiteLLMModel(model), Request(payload=sent, max_output_tokens=500))
    asked, brought = server.requests
    assert (asked["include"], asked["store"]) == (["reasoning.encrypted_content"], False)
    kinds = [item["type"] for item in brought["input"]]
    assert kinds == ["message", "message", "reasoning", "function_call", "function_call_output"]
    assert brought["input"][2] == ITEM


def test_reasoning_is_asked_for_where_responses_are() -> None:
    assert asks_back(spec("openai/gpt-5")) == asks_back(spec("anthropic/claude-opus-4-6")) == {}
    assert asks_back(spec("openai/responses/gpt-5")) != {}


@pytest.mark.parametrize(
    ("name", "api_base", "called"),
    [
        ("openai/gpt-5.4", "", "openai/responses/gpt-5.4"),
        ("azure/gpt-5.5-mini", "https://a.openai.azure.com", "azure/responses/gpt-5.5-mini"),
        ("openai/gpt-5.4", "http://127.0.0.1:1/v1", "openai/gpt-5.4"),  # another server may have no Responses
        ("openai/gpt-5", "", "openai/gpt-5"),
        ("openai/responses/gpt-5", "", "openai/responses/gpt-5"),
        ("anthropic/claude-opus-4-6", "", "anthropic/claude-opus-4-6"),
    ],
)
def test_models_that_reason_with_tools_over_responses_only_are_always_asked_there(
    name: str, api_base: str, called: str
) -> None:
    model = spec(name, api_base=api_base)
    assert called_name(model) == called
    assert bool(asks_back(model)) == ("responses" in called)


@pytest.mark.parametrize(
    ("name", "effort", "expected"),
    [
        ("anthropic/claude-sonnet-4-5", "high", ("anthropic/claude-sonnet-4-5", True, False)),
        ("anthropic/claude-opus-4-6", "low", ("anthropic/claude-opus-4-6", True, True)),
        ("anthropic/claude-opus-4-6", None, ("anthropic#tools", False, False)),
        ("anthropic/claude-sonnet-4-5", "none", ("anthropic#tools", False, False)),
        ("anthropic/claude-3-5-haiku-20241022", "high", ("anthropic#tools", False, False)),
        ("gemini/gemini-3-pro-preview", None, ("gemini/gemini-3-pro-preview", False, False)),
    ],
)
def test_what_each_model_takes_back(name: str, effort: str | None, expected: tuple[str, bool, bool]) -> None:
    found = takes_back(spec(name), effort)
    assert (found.provider, found.only_thinking, found.is_bound) == expected


def test_what_does_not_fit_whole_is_left_out_and_cuts_the_answer() -> None:
    answer = PartialAnswer(limit=10)
    assert answer.add_opaque(OpaqueBlock(kind="thinking", data='"12345678"')) != []
    assert answer.add_opaque(OpaqueBlock(kind="thinking", data='""')) == []
    assert answer.is_cut


USER, TOOL = {"role": "user", "content": "?"}, {"role": "tool", "tool_call_id": "c", "content": "r"}
THOUGHT, PLAIN = {"role": "assistant", "thinking_blocks": [{}]}, {"role": "assistant", "content": None}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER], False),
        ([USER, PLAIN], True),  # It was paused.
        ([USER, THOUGHT, TOOL, PLAIN], False),
        ([USER, PLAIN, USER], False),
        ([USER, PLAIN, TOOL], True),
        ([USER, THOUGHT, TOOL, PLAIN, TOOL], False),
        ([USER, PLAIN, TOOL, THOUGHT, TOOL], True),
        ([USER, PLAIN, USER, THOUGHT, TOOL], False),
        ([USER, THOUGHT, USER, PLAIN, TOOL], True),
        ([USER, PLAIN, TOOL, USER], True),  # To Claude this is one message, and no new turn.
    ],
)
def test_a_turn_that_began_without_thinking(messages: list[dict[str, Any]], expected: bool) -> None:
    assert lacks_thinking(messages) is expected


def bound(after: str) -> ProviderPart:
    data = json.dumps({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"})
    return ProviderPart(provider="anthropic", kind="thinking", data=data, model="claude-opus-4-6", prompt=after)


def test_thinking_is_bound_to_everything_before_it() -> None:
    model = "anthropic/claude-opus-4-6"
    asked, other = make.message(1, "user", "What is there?"), make.message(1, "user", "What is here?")
    first = prompt_digest(render_chat(assembled([asked], provider=model)))
    answer = make.message(2, "assistant", bound(first), TextPart(text="Ledgers."))
    again = make.message(3, "user", "Again?")
    second = prompt_digest(render_chat(assembled([asked, answer, again], provider=model)))
    later = make.message(4, "assistant", bound(second), TextPart(text="As I said."))

    def moved(*said: Any, tools: Any = ()) -> set[str]:
        return set(answers_after_other_prompts(assembled(list(said), provider=model, tools=tools)))

    assert moved(asked, answer, again, later) == set()
    assert moved(other, answer, again, later) == {answer.id, later.id}
    assert moved(asked, again, later) == {later.id}
    assert moved(asked, answer, later) == {later.id}
    assert moved(asked, answer, again, later, tools=TOOLS) == {answer.id, later.id}
