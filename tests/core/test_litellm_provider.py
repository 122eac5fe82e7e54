"""The contract of the model door through litellm: how each scenario of the model server must end.

litellm's internals are read in places; this table is what a new version of it must pass.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from mnesis_core.llm import (
    ModelSpec,
    Outcome,
    ReasoningDelta,
    Reply,
    Request,
    Source,
    TextDelta,
    ToolCall,
    complete,
)
from mnesis_core.providers.litellm_ import LiteLLMModel, close_connections, warm_up
from tests.support.openai_scenarios import SCENARIOS
from tests.support.openai_server import TEXT, WORDS, OpenAIServer

KEY = "canary.0123456789"
"""Unlike any provider's, so that only the rule for this very key takes it out."""
REQUEST = Request(payload={"messages": [{"role": "user", "content": "What is the answer?"}]}, max_output_tokens=50)


@dataclass(frozen=True)
class Ending:
    outcome: Outcome
    code: str = ""
    text: str = TEXT
    finish_reason: str = ""
    source: Source = Source.ESTIMATED


def whole(text: str = TEXT, finish_reason: str = "stop", source: Source = Source.PROVIDER) -> Ending:
    return Ending(Outcome.COMPLETE, text=text, finish_reason=finish_reason, source=source)


def unproven(text: str = TEXT, finish_reason: str = "", source: Source = Source.ESTIMATED) -> Ending:
    return Ending(Outcome.INCOMPLETE, "MODEL_REPLY_INCOMPLETE", text, finish_reason, source)


def broken(code: str = "MODEL_STREAM_BROKEN", text: str = TEXT) -> Ending:
    return Ending(Outcome.BROKEN, code, text)


def failed(code: str) -> Ending:
    return Ending(Outcome.FAILED, code, "")


ENDINGS = {
    # Good answers
    "ok": whole(),
    "counted": whole(),
    "no_done": whole(),
    "no_usage": whole(source=Source.ESTIMATED),
    "length": whole(finish_reason="length"),
    "unknown_finish": whole(finish_reason=("because " * 40)[:64]),
    "silent": whole(text=""),
    "pings": whole(),
    "reasoning": whole(),
    "repeating": whole(text="| --- " * 300),
    "hostile_text": whole(text="nul \x00 lone \ud800 bidi \u202e"),
    "reset_after_finish": whole(source=Source.ESTIMATED),
    # Tool calls
    "tools": whole(text="Looking. ", finish_reason="tool_calls"),
    "tools_cut": unproven("Looking. ", "tool_calls", Source.PROVIDER),
    "tools_too_long": unproven("", "length", Source.PROVIDER),
    "tools_no_finish": unproven(""),
    # Ends that prove nothing
    "no_finish": unproven(),
    "done_without_finish": unproven(),
    "cut_json": unproven(),
    "empty": unproven(""),
    "html": unproven(""),
    "empty_choices": unproven(""),
    # Breaks in mid-answer
    "closed": broken(),
    "reset": broken(),
    "malformed": broken(),
    "invalid_utf8": broken(),
    "error_chunk": broken(),
    "stall": broken("MODEL_TIMEOUT"),
    # Usage that cannot be true
    "negative_usage": whole(source=Source.ESTIMATED),
    "enormous_usage": whole(source=Source.ESTIMATED),
    "wordy_usage": whole(source=Source.ESTIMATED),
    # Refusals
    "unauthorized": failed("MODEL_AUTHENTICATION_FAILED"),
    "forbidden": failed("MODEL_AUTHENTICATION_FAILED"),
    "no_such_model": failed("MODEL_REFUSED_REQUEST"),
    "rate_limited": failed("MODEL_RATE_LIMITED"),
    "context_length": failed("CONTEXT_WINDOW_EXCEEDED"),
    "bad_request": failed("MODEL_REFUSED_REQUEST"),
    "server_error": failed("MODEL_UNAVAILABLE"),
    "unavailable": failed("MODEL_UNAVAILABLE"),
    "error_first": failed("MODEL_UNAVAILABLE"),
    "redirect": failed("MODEL_REFUSED_REQUEST"),
    "hang": failed("MODEL_TIMEOUT"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture(autouse=True)
async def _close_connections() -> AsyncIterator[None]:
    await warm_up()
    yield
    await close_connections()


def spec_for(name: str, server: OpenAIServer, **changes: object) -> ModelSpec:
    spec = ModelSpec(
        alias="mine",
        litellm_model=f"openai/{name}",
        api_base=server.base_url,
        api_key=KEY,
        context_window=8_000,
        max_output_tokens=500,
        timeout_seconds=5,
        total_timeout_seconds=10,
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


async def ask(name: str, server: OpenAIServer, **changes: object) -> Reply:
    return await complete(LiteLLMModel(spec_for(name, server, **changes)), REQUEST)


# What the provider's usage cannot be is a warning of pydantic's inside litellm.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("name", ENDINGS)
async def test_every_scenario_ends_as_documented(name: str, server: OpenAIServer) -> None:
    expected = ENDINGS[name]
    reply = await ask(name, server, timeout_seconds=0.5 if name in ("stall", "hang") else 5)
    ending = Ending(
        reply.outcome,
        reply.error.code if reply.error else "",
        reply.text,
        reply.finish_reason,
        reply.usage.source,
    )
    assert ending == expected


def test_every_scenario_has_its_row_or_its_own_test() -> None:
    elsewhere = {"cached_usage", "drip", "echo", "held", "huge", "slow", "tools_same_index"}
    assert set(SCENARIOS) | {"no_such_model"} == set(ENDINGS) | elsewhere


@pytest.mark.parametrize("name", ["ok", "unauthorized", "bad_request", "error_chunk", "no_such_model"])
async def test_no_error_holds_the_key(name: str, server: OpenAIServer) -> None:
    reply = await ask(name, server)
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(reply)
    assert KEY not in json.dumps(reply.error.as_dict() if reply.error else {})


async def test_a_provider_s_usage_is_taken_whole(server: OpenAIServer) -> None:
    usage = (await ask("cached_usage", server)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (11, 7, 5)


async def test_a_usage_that_the_provider_does_not_send_is_estimated_from_request_and_answer(
    server: OpenAIServer,
) -> None:
    usage = (await ask("no_usage", server)).usage
    assert 5 < usage.input_tokens < 40
    assert 3 < usage.output_tokens < 12


async def test_a_call_that_reached_nothing_costs_nothing(server: OpenAIServer) -> None:
    assert (await ask("server_error", server)).usage.total_tokens == 0


async def test_deltas_join_to_the_reply_and_the_reply_is_last(server: OpenAIServer) -> None:
    items = [item async for item in LiteLLMModel(spec_for("reasoning", server)).stream(REQUEST)]
    reply = items[-1]
    assert isinstance(reply, Reply)
    assert [item.text for item in items if isinstance(item, TextDelta)] == list(WORDS)
    assert "".join(item.text for item in items if isinstance(item, ReasoningDelta)) == reply.reasoning == "Let me see."
    assert sum(isinstance(item, Reply) for item in items) == 1


async def test_tool_calls_are_put_together_from_their_fragments(server: OpenAIServer) -> None:
    assert (await ask("tools", server)).tool_calls == (
        ToolCall(id="call_a", name="search", arguments='{"pattern": "blue"}'),
        ToolCall(id="call_b", name="now", arguments="{}"),
    )


async def test_calls_that_share_an_index_stay_apart(server: OpenAIServer) -> None:
    reply = await ask("tools_same_index", server)
    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("call_a", '{"n": 1}'), ("call_b", '{"n": 2}')]


@pytest.mark.parametrize("name", ["tools_cut", "tools_too_long"])
async def test_a_cut_tool_call_is_not_handed_on_but_shown(name: str, server: OpenAIServer) -> None:
    reply = await ask(name, server)
    assert reply.tool_calls == ()
    assert reply.error is not None
    assert reply.error.details["arguments"] == '{"pattern": "bl'


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
    }
    before = json.dumps(payload)
    request = Request(payload=payload, max_output_tokens=77, temperature=0.25)
    await complete(LiteLLMModel(spec_for("ok", server)), request)
    body = server.requests[-1].body
    assert (body["messages"], body["tools"]) == (payload["messages"], payload["tools"])
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (77, 0.25, True)
    assert json.dumps(payload) == before


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


async def test_a_rate_limit_says_when_to_come_back(server: OpenAIServer) -> None:
    error = (await ask("rate_limited", server)).error
    assert error is not None
    assert error.details["retry_after"] == "7"


async def test_the_provider_s_own_words_are_quoted_when_they_help(server: OpenAIServer) -> None:
    error = (await ask("context_length", server)).error
    assert error is not None
    assert "maximum context length is 8192 tokens" in error.message


async def test_a_slow_drip_ends_at_the_total_deadline_and_keeps_its_text(server: OpenAIServer) -> None:
    started = time.monotonic()
    reply = await ask("drip", server, total_timeout_seconds=0.6)
    assert time.monotonic() - started < 3
    assert (reply.outcome, reply.error and reply.error.code) == (Outcome.BROKEN, "MODEL_TIMEOUT")
    assert reply.text.startswith("drop0 drop1 ")


async def test_an_endless_answer_is_cut_at_our_own_limit(server: OpenAIServer) -> None:
    reply = await complete(LiteLLMModel(spec_for("huge", server), max_answer_characters=120_000), REQUEST)
    assert (reply.outcome, len(reply.text)) == (Outcome.INCOMPLETE, 120_000)
    assert reply.error is not None
    assert reply.error.details["reason"] == "length_capped"


async def test_an_answer_arrives_while_it_is_being_written() -> None:
    with OpenAIServer() as server:
        stream = LiteLLMModel(spec_for("held", server)).stream(REQUEST)
        assert [await anext(stream), await anext(stream)] == [TextDelta(text=word) for word in WORDS[:2]]
        server.release()
        items = [item async for item in stream]
    assert isinstance(items[-1], Reply)
    assert items[-1].text == TEXT


async def test_a_cancelled_stream_hangs_up_at_once(server: OpenAIServer) -> None:
    gone = server.disconnects

    async def consume() -> None:
        async for _ in LiteLLMModel(spec_for("drip", server)).stream(REQUEST):
            pass

    turn = asyncio.create_task(consume())
    await asyncio.sleep(0.4)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await _until(lambda: server.disconnects > gone)


async def test_a_stream_that_its_reader_leaves_hangs_up_at_once(server: OpenAIServer) -> None:
    gone = server.disconnects
    gc.disable()  # collecting the stream would close it too, some time
    try:
        stream = LiteLLMModel(spec_for("drip", server)).stream(REQUEST)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        await _until(lambda: server.disconnects > gone)
    finally:
        gc.enable()


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail("the server never noticed")


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    spec = ModelSpec(
        alias="mine",
        litellm_model="openai/x",
        api_base="http://127.0.0.1:9/v1",
        context_window=1_000,
        max_output_tokens=10,
    )
    reply = await complete(LiteLLMModel(spec), REQUEST)
    assert (reply.outcome, reply.error and reply.error.code) == (Outcome.FAILED, "MODEL_UNREACHABLE")
    assert reply.error is not None
    assert "127.0.0.1" in reply.error.message


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
