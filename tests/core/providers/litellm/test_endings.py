"""How each scenario of the model server must end, and what is said of it.

litellm's internals are read in places; this table is what a new version of it must pass.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from mnesis_core.llm.interface import ModelSpec, Outcome, Source, complete
from mnesis_core.llm.tokens import Overflow, read_overflow
from mnesis_core.providers.litellm_ import LiteLLMModel
from tests.core.providers.litellm.questions import KEY, REQUEST, ask
from tests.support.providers.openai.openai_scenarios import SCENARIOS
from tests.support.providers.openai.openai_server import TEXT, OpenAIServer


@dataclass(frozen=True)
class Ending:
    outcome: Outcome
    code: str = ""
    text: str = TEXT
    finish_reason: str = ""
    source: Source = Source.ESTIMATED
    """Who counted the tokens."""
    retriable: bool = False


def whole(text: str = TEXT, finish_reason: str = "stop", source: Source = Source.PROVIDER) -> Ending:
    return Ending(Outcome.COMPLETE, text=text, finish_reason=finish_reason, source=source)


def unproven(text: str = TEXT, finish_reason: str = "", source: Source = Source.ESTIMATED) -> Ending:
    return Ending(Outcome.INCOMPLETE, "MODEL_REPLY_INCOMPLETE", text, finish_reason, source)


def broken(code: str = "MODEL_STREAM_BROKEN", text: str = TEXT) -> Ending:
    return Ending(Outcome.BROKEN, code, text)


def failed(code: str) -> Ending:
    """Nothing was streamed, and asking again would be of no use."""
    return Ending(Outcome.FAILED, code, "")


def passing(code: str) -> Ending:
    """Nothing was streamed, and that may pass."""
    return Ending(Outcome.FAILED, code, "", retriable=True)


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
    "tools_reset": broken(text=""),
    "tools_doubled_ids": whole(text="", finish_reason="tool_calls"),
    "tools_hostile_ids": whole(text="", finish_reason="tool_calls"),
    "tools_no_object": whole(text="", finish_reason="tool_calls"),
    "tools_same_id_in_each_piece": whole(text="", finish_reason="tool_calls"),
    "tools_same_index": whole(text="", finish_reason="tool_calls"),
    "tools_without_ids": whole(text="", finish_reason="tool_calls"),
    "tools_without_ids_or_numbers": whole(text="", finish_reason="tool_calls"),
    # Ends that prove nothing
    "no_finish": unproven(),
    "done_without_finish": unproven(),
    "cut_json": unproven(),
    "empty": unproven(""),
    "html": unproven(""),
    "empty_choices": unproven(""),
    "huge_chunk": unproven("x" * 8_000_000),
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
    "rate_limited": passing("MODEL_RATE_LIMITED"),
    "rate_limited_for_long": passing("MODEL_RATE_LIMITED"),
    "no_credit": failed("MODEL_REFUSED_REQUEST"),
    "unpaid": failed("MODEL_REFUSED_REQUEST"),
    "too_slow": passing("MODEL_UNAVAILABLE"),
    "context_length": failed("CONTEXT_WINDOW_EXCEEDED"),
    "context_length_without_numbers": failed("CONTEXT_WINDOW_EXCEEDED"),
    "context_length_of_gemini": failed("CONTEXT_WINDOW_EXCEEDED"),
    "context_length_in_an_event": failed("CONTEXT_WINDOW_EXCEEDED"),
    "context_length_after_a_role": failed("CONTEXT_WINDOW_EXCEEDED"),
    "bad_request": failed("MODEL_REFUSED_REQUEST"),
    "server_error": passing("MODEL_UNAVAILABLE"),
    "unavailable": passing("MODEL_UNAVAILABLE"),
    "error_first": passing("MODEL_UNAVAILABLE"),
    "redirect": failed("MODEL_REFUSED_REQUEST"),
    "hang": passing("MODEL_TIMEOUT"),
}


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
        reply.outcome is Outcome.FAILED and reply.error is not None and reply.error.retriable,
    )
    assert ending == expected
    # Half a call is never handed on, and errors are never part of the answer.
    assert reply.tool_calls == () or reply.outcome is Outcome.COMPLETE


def test_every_scenario_has_its_row_or_its_own_test() -> None:
    elsewhere = {"busy_once", "cached_usage", "drip", "echo", "held", "huge", "slow"}
    assert set(SCENARIOS) | {"no_such_model"} == set(ENDINGS) | elsewhere


@pytest.mark.parametrize("name", ["ok", "unauthorized", "bad_request", "error_chunk", "no_such_model"])
async def test_no_error_holds_the_key(name: str, server: OpenAIServer) -> None:
    reply = await ask(name, server)
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(reply)
    assert KEY not in json.dumps(reply.error.as_dict() if reply.error else {})


async def test_a_provider_s_usage_is_taken_whole(server: OpenAIServer) -> None:
    reply = await ask("cached_usage", server)
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (11, 7, 5)
    assert json.loads(reply.usage_said)["prompt_tokens_details"]["cached_tokens"] == 5


# Of words in the place of numbers litellm passes on nothing.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    ("name", "said"), [("negative_usage", -5), ("enormous_usage", 2**60), ("wordy_usage", None), ("no_usage", None)]
)
async def test_what_a_provider_said_is_kept_also_where_it_cannot_be_true(
    name: str, said: object, server: OpenAIServer
) -> None:
    reply = await ask(name, server)
    assert reply.usage.source is Source.ESTIMATED
    assert json.loads(reply.usage_said or "{}").get("prompt_tokens") == said


async def test_a_usage_that_the_provider_does_not_send_is_estimated_from_request_and_answer(
    server: OpenAIServer,
) -> None:
    usage = (await ask("no_usage", server)).usage
    assert 5 < usage.input_tokens < 40
    assert 3 < usage.output_tokens < 12


async def test_a_call_that_reached_nothing_costs_nothing(server: OpenAIServer) -> None:
    assert (await ask("server_error", server)).usage.total_tokens == 0


async def test_a_rate_limit_says_when_to_come_back(server: OpenAIServer) -> None:
    error = (await ask("rate_limited", server)).error
    assert error is not None
    assert error.details["retry_after"] == "7"


async def test_the_provider_s_own_words_are_quoted_when_they_help(server: OpenAIServer) -> None:
    error = (await ask("context_length", server)).error
    assert error is not None
    assert "maximum context length is 8192 tokens" in error.message


@pytest.mark.parametrize(
    ("name", "overflow"),
    [
        ("context_length", Overflow(limit=8_192, prompt=9_000)),
        ("context_length_in_an_event", Overflow(limit=8_192, prompt=9_000)),
        ("context_length_after_a_role", Overflow(limit=8_192, prompt=9_000)),
        ("context_length_of_gemini", Overflow(limit=1_048_576, prompt=1_200_000)),
        ("context_length_without_numbers", Overflow()),
    ],
)
async def test_the_numbers_of_a_prompt_that_is_too_long_stay_readable(
    name: str, overflow: Overflow, server: OpenAIServer
) -> None:
    error = (await ask(name, server)).error
    assert error is not None
    assert read_overflow(error.message) == overflow


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
