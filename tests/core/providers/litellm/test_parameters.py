"""What each provider is sent of the parameters, and what is said not to be: over real HTTP, to a provider on loopback."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from mnesis_core.llm.interface import ModelSpec, Request, complete
from mnesis_core.llm.parameters import EFFORTS, read_parameters
from mnesis_core.providers.litellm_ import LiteLLMModel
from mnesis_core.providers.litellm_parameters import (
    FORCED,
    NOT_TAKEN,
    TOO_SHORT,
    UNTHOUGHT,
    WITH_THINKING,
    settle_parameters,
    takes_format,
)
from tests.core.providers.litellm.questions import KEY
from tests.support.providers.provider_server import ProviderServer

STRICT = {
    "type": "json_schema",
    "json_schema": {
        "name": "r",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}
FUNCTION = {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
NAMED = {"type": "function", "function": {"name": "weather"}}


def spec(model: str, *, most: int = 20_000, api_base: str = "") -> ModelSpec:
    return ModelSpec(
        alias="mine",
        litellm_model=model,
        api_base=api_base,
        api_key=KEY,
        context_window=200_000,
        max_output_tokens=most,
    )


async def asked(model: str, *, most: int = 20_000, tools: bool = True, **values: Any) -> tuple[dict[str, Any], Any]:
    """Ask with parameters; return what the provider got, and what was said not to be taken."""
    settled = settle_parameters(spec(model, most=most), read_parameters(values), has_tools=tools)
    payload = {"messages": [{"role": "user", "content": "Hi"}], **({"tools": TOOLS} if tools else {}), **settled.sent}
    with ProviderServer() as provider:
        request = Request(payload=payload, max_output_tokens=settled.sent.get("max_tokens", most))
        await complete(LiteLLMModel(spec(model, most=most, api_base=provider.url)), request)
    [body] = provider.requests
    return body, settled.not_taken


async def test_openai_gets_them_by_its_own_names() -> None:
    body, not_taken = await asked(
        "openai/gpt-4o",
        temperature=0.5,
        top_p=0.25,
        seed=7,
        stop=["END"],
        tool_choice=NAMED,
        parallel_tool_calls=False,
        response_format=STRICT,
        max_output_tokens=33,
        verbosity="low",
    )
    assert [body[name] for name in ("temperature", "top_p", "seed", "stop")] == [0.5, 0.25, 7, ["END"]]
    assert (body["tool_choice"], body["parallel_tool_calls"], body["response_format"]) == (NAMED, False, STRICT)
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 33
    assert "verbosity" not in body
    assert not_taken == {"verbosity": NOT_TAKEN}


async def test_a_model_that_thinks_takes_other_ones() -> None:
    body, not_taken = await asked("openai/gpt-5", effort="max", verbosity="low", temperature=0.5, stop="END")
    assert (body["reasoning_effort"], body["verbosity"]) == ("high", "low")
    assert "temperature" not in body
    assert "stop" not in body
    assert not_taken.keys() == {"effort", "temperature", "stop"}
    assert "high" in not_taken["effort"]


@pytest.mark.slow
async def test_anthropic_thinks_by_effort_and_without_a_temperature() -> None:
    body, not_taken = await asked(
        "anthropic/claude-sonnet-4-5", effort="high", temperature=0.5, top_p=0.99, stop=["END"], seed=1
    )
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4096}
    assert (body["top_p"], body["stop_sequences"]) == (0.99, ["END"])
    assert "temperature" not in body
    assert not_taken == {"temperature": WITH_THINKING, "seed": NOT_TAKEN}
    body, not_taken = await asked("anthropic/claude-sonnet-4-5", tool_choice="required", parallel_tool_calls=False)
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert not_taken == {}


async def test_gemini_gets_them_in_its_configuration() -> None:
    body, not_taken = await asked(
        "gemini/gemini-2.5-flash", effort="low", temperature=0.5, stop=["END"], parallel_tool_calls=False
    )
    config = body["generationConfig"]
    assert (config["temperature"], config["stop_sequences"]) == (0.5, ["END"])
    assert config["thinkingConfig"]["thinkingBudget"] == 1024
    assert not_taken == {"parallel_tool_calls": NOT_TAKEN}


async def test_gemini_gets_documents_and_audio_as_bytes() -> None:
    data = base64.b64encode(b"bytes").decode()
    content = [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    ]
    with ProviderServer() as provider:
        model = LiteLLMModel(spec("gemini/gemini-2.5-flash", api_base=provider.url))
        await complete(
            model, Request(payload={"messages": [{"role": "user", "content": content}]}, max_output_tokens=9)
        )
    parts = [part["inline_data"] for part in provider.requests[0]["contents"][0]["parts"] if "inline_data" in part]
    assert [(part["mime_type"], part["data"]) for part in parts] == [("application/pdf", data), ("audio/wav", data)]


async def test_openais_responses_get_documents_as_files() -> None:
    url = "data:application/pdf;base64,Ynl0ZXM="
    payload = {
        "messages": [{"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": url}}]}]
    }
    with ProviderServer() as provider:
        model = LiteLLMModel(spec("openai/responses/gpt-5", api_base=provider.url))
        await complete(model, Request(payload=payload, max_output_tokens=99))
    [said] = provider.requests[0]["input"]
    assert [(part["type"], part["file_data"]) for part in said["content"]] == [("input_file", url)]


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        *(("openai/gpt-4o", effort, None) for effort in EFFORTS),
        *(("openai/o3", effort, sent) for effort, sent in (("none", None), ("minimal", "low"), ("xhigh", "high"))),
        *(("openai/gpt-5", effort, sent) for effort, sent in (("none", None), ("minimal", "minimal"))),
        ("openai/gpt-5.1", "none", "none"),
        ("anthropic/claude-sonnet-4-5", "none", None),
        ("anthropic/claude-opus-4-6", "max", "max"),
        ("anthropic/claude-opus-4-6", "xhigh", "high"),
        ("gemini/gemini-2.5-flash", "max", "high"),
        ("gemini/gemini-2.5-flash", "none", "none"),
        ("ollama_chat/llama3", "max", "high"),
        ("openai/of-our-own", "max", "max"),
    ],
)
def test_an_effort_that_a_model_has_not_becomes_the_nearest(model: str, effort: str, sent: str | None) -> None:
    settled = settle_parameters(spec(model), read_parameters({"effort": effort}), has_tools=True)
    assert settled.sent.get("reasoning_effort") == sent
    # A model that does not think unless it is asked to has met "none" by not being asked.
    is_met = sent == effort or (effort == "none" and ("gpt-4o" in model or "claude" in model))
    assert ("effort" in settled.not_taken) is not is_met


def test_thinking_is_left_out_where_the_provider_would_refuse_the_request() -> None:
    model, high = spec("anthropic/claude-sonnet-4-5"), {"effort": "high"}
    for values, options, why in (
        (high, {"is_unthought": True}, UNTHOUGHT),
        (high, {"was_forced": True}, FORCED),
        (high | {"tool_choice": "required"}, {}, FORCED),
        (high | {"tool_choice": NAMED}, {}, FORCED),
        (high | {"max_output_tokens": 4_096}, {}, TOO_SHORT),
    ):
        settled = settle_parameters(model, read_parameters(values), has_tools=True, **options)
        assert "reasoning_effort" not in settled.sent
        assert settled.not_taken == {"effort": why}
    others = settle_parameters(spec("openai/gpt-5"), read_parameters(high), has_tools=True, is_unthought=True)
    assert others.sent == {"reasoning_effort": "high"}


def test_choices_among_tools_are_not_sent_without_tools() -> None:
    values = read_parameters({"tool_choice": "auto", "parallel_tool_calls": True})
    assert settle_parameters(spec("openai/gpt-4o"), values, has_tools=False).sent == {}
    none = read_parameters({"tool_choice": "none"})
    assert settle_parameters(spec("openai/gpt-4o"), none, has_tools=True).sent == {}


@pytest.mark.parametrize(
    ("model", "of_schema", "of_json"),
    [
        ("openai/gpt-4o", True, True),
        ("openai/of-our-own", False, False),
        ("anthropic/claude-sonnet-4-5", True, False),  # litellm would make a tool of a JSON mode
        ("anthropic/claude-3-5-haiku-20241022", False, False),
        ("gemini/gemini-2.5-flash", True, True),
        ("groq/llama-3.3-70b-versatile", False, False),
        ("demo/chat", False, False),
        ("nobody/knows", False, False),
    ],
)
def test_who_holds_answers_to_a_format(model: str, of_schema: bool, of_json: bool) -> None:
    assert takes_format(spec(model), STRICT) is of_schema
    assert takes_format(spec(model), {"type": "json_object"}) is of_json
