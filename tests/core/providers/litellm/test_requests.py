"""What is sent, once and to whom; and what is never sent."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from mnesis_core.llm.interface import ModelSpec, Outcome, Request, complete
from mnesis_core.maps.schema import compile_schema
from mnesis_core.providers.litellm_ import LiteLLMModel, supports_schemas
from tests.core.providers.litellm.questions import KEY, REQUEST, ask, spec_for
from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.providers.provider_server import ProviderServer


async def test_the_request_is_sent_as_it_is_and_left_unchanged(server: OpenAIServer) -> None:
    function = {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}
    payload = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "tool_calls": [_call("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
        ],
        "tools": [{"type": "function", "function": function}],
        "temperature": 0.25,
    }
    before = json.dumps(payload)
    request = Request(payload=payload, max_output_tokens=77)
    await complete(LiteLLMModel(spec_for("ok", server)), request)
    body = server.requests[-1].body
    assert (body["messages"], body["tools"]) == (payload["messages"], payload["tools"])
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (77, 0.25, True)
    assert json.dumps(payload) == before


async def test_a_schema_reaches_the_provider_letter_by_letter(server: OpenAIServer) -> None:
    schema = compile_schema({"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "number"}}})
    payload = {"messages": [{"role": "user", "content": "Hi"}], "response_format": schema.response_format}
    reply = await complete(LiteLLMModel(spec_for("ok", server)), Request(payload=payload, max_output_tokens=5))
    assert reply.outcome is Outcome.COMPLETE
    assert json.dumps(server.requests[-1].body["response_format"]) == json.dumps(schema.response_format)


@pytest.mark.parametrize(
    ("litellm_model", "place"),
    [
        ("anthropic/claude-sonnet-4-5", ("output_format", "schema")),
        ("gemini/gemini-2.0-flash", ("generationConfig", "response_json_schema")),
        ("mistral/mistral-large-latest", ("response_format", "json_schema", "schema")),
    ],
)
async def test_each_provider_gets_the_schema_in_a_shape_of_its_own(litellm_model: str, place: tuple[str, ...]) -> None:
    schema = {
        "type": "object",
        "properties": {"z": {"type": "string"}},
        "required": ["z"],
        "additionalProperties": False,
    }
    response_format = compile_schema(schema).response_format
    payload = {"messages": [{"role": "user", "content": "Hi"}], "response_format": response_format}
    assert supports_schemas(litellm_model)
    with ProviderServer() as provider:
        spec = ModelSpec(
            alias="mine",
            litellm_model=litellm_model,
            api_base=provider.url,
            api_key=KEY,
            context_window=8_000,
            max_output_tokens=50,
        )
        await complete(LiteLLMModel(spec), Request(payload=payload, max_output_tokens=5))
    [body] = provider.requests
    assert reduce(lambda value, key: value[key], place, body) == schema


DEEP = "[" * 1_500 + "]" * 1_500


@pytest.mark.parametrize(
    ("result", "read"),
    [
        ('{"tide": "high"}', {"tide": "high"}),
        (DEEP, {"content": DEEP}),
        (f'{{"nested": {DEEP}}}', {"content": f'{{"nested": {DEEP}}}'}),
        ([{"type": "text", "text": DEEP}], {"content": DEEP}),
        ("{ of no use", {"content": "{ of no use"}),
    ],
    ids=["an object", "a deep list", "a deep object", "a deep part", "no JSON"],
)
async def test_a_result_however_deep_reaches_gemini(result: object, read: dict[str, str]) -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [_call("call_1")]},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]
    with ProviderServer() as provider:
        spec = ModelSpec(
            alias="mine",
            litellm_model="gemini/gemini-2.5-flash",
            api_base=provider.url,
            api_key=KEY,
            context_window=8_000,
            max_output_tokens=50,
        )
        await complete(LiteLLMModel(spec), Request(payload={"messages": messages}, max_output_tokens=5))
    [body] = provider.requests
    [response] = body["contents"][-1]["parts"]
    assert response["function_response"]["response"] == read


@pytest.mark.parametrize(
    ("litellm_model", "supports"),
    [
        ("openai/gpt-4o", True),
        ("anthropic/claude-sonnet-4-5", True),
        ("openai/gpt-3.5-turbo", False),
        ("openai/my-own", False),
        ("demo/chat", False),
        ("nobody/knows", False),
        ("", False),
    ],
)
def test_who_supports_schemas_is_known_without_a_network(litellm_model: str, supports: bool) -> None:
    assert supports_schemas(litellm_model) is supports


def _call(id: str) -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": "now", "arguments": "{}"}}


async def test_text_that_utf_8_cannot_write_is_sent_as_a_replacement(server: OpenAIServer) -> None:
    request = Request(payload={"messages": [{"role": "user", "content": "a\ud800b"}]}, max_output_tokens=5)
    reply = await complete(LiteLLMModel(spec_for("ok", server)), request)
    assert reply.outcome is Outcome.COMPLETE
    assert server.requests[-1].body["messages"][0]["content"] == "a\ufffdb"


@pytest.mark.parametrize("name", ["rate_limited", "server_error", "redirect"])
async def test_nothing_is_tried_again_or_followed_behind_our_back(name: str, server: OpenAIServer) -> None:
    before = len(server.requests)
    await ask(name, server)
    assert [request.path for request in server.requests[before:]] == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    ("litellm_model", "api_base"),
    [
        ("openai/gpt-4o", ""),
        ("anthropic/claude-sonnet-4-5", ""),
        ("openai/gpt-4o", "https://models.example.com/v1"),
        ("openai/gpt-4o", "ftp://127.0.0.1/"),
        ("openai/gpt-4o", "http://[broken/"),
        ("openai/gpt-4o", "gibberish"),
    ],
)
async def test_without_key_or_address_nothing_is_called(
    litellm_model: str, api_base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "must-not-be-used")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    spec = ModelSpec(
        alias="mine", litellm_model=litellm_model, api_base=api_base, context_window=1_000, max_output_tokens=10
    )
    reply = await complete(LiteLLMModel(spec), REQUEST)
    assert (reply.outcome, reply.error and reply.error.code) == (Outcome.FAILED, "MODEL_NOT_CONFIGURED")


async def test_a_local_server_without_a_key_gets_a_placeholder_and_never_a_key_of_the_environment(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "must-not-be-used")
    reply = await ask("ok", server, api_key="")
    assert reply.outcome is Outcome.COMPLETE
    assert server.requests[-1].headers["authorization"] == "Bearer none"


async def test_an_unknown_provider_is_said_in_plain_words(server: OpenAIServer) -> None:
    reply = await ask("ok", server, litellm_model="nonsense/x")
    assert reply.error is not None
    assert reply.error.code == "MODEL_NOT_CONFIGURED"
    assert "nonsense/x" in reply.error.message


async def test_a_request_that_is_too_deep_to_be_written_fails_and_does_not_crash(server: OpenAIServer) -> None:
    deep: dict[str, object] = {}
    for _ in range(3_000):
        deep = {"a": deep}
    request = Request(payload={"messages": [{"role": "user", "content": "x"}], "tools": [deep]}, max_output_tokens=5)
    reply = await complete(LiteLLMModel(spec_for("ok", server)), request)
    assert (reply.outcome, reply.error and reply.error.code) == (Outcome.FAILED, "MODEL_ERROR")
