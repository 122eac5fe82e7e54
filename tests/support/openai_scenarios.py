"""What the model server of these tests does for each model's name: answers, bad ends, breaks and refusals.

Every function marked ``@scenario`` is a model of its own name. They write the wire by hand, since a good
server library would not let them break it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mnesis_core.providers.answer import estimate_payload
from tests.support.openai_exchange import USAGE, WORDS, Exchange, chunk, tool_fragment

Scenario = Callable[[Exchange], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    """Register a function under its own name as a model."""
    SCENARIOS[getattr(play, "__name__")] = play  # noqa: B009 - a Callable has no __name__ for mypy
    return play


# Good answers


@scenario
async def ok(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close()


@scenario
async def echo(exchange: Exchange) -> None:
    await exchange.words(str(exchange.request.body["messages"][-1]["content"]).split(" "))
    await exchange.close()


@scenario
async def no_done(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(done=False)


@scenario
async def no_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage=None)


@scenario
async def counted(exchange: Exchange) -> None:
    """Reports what the prompt really comes to."""
    await exchange.words()
    prompt = estimate_payload(exchange.request.body)
    await exchange.close(usage={"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7})


@scenario
async def cached_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 5}})


@scenario
async def length(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish="length")


@scenario
async def unknown_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish="because " * 40)


@scenario
async def silent(exchange: Exchange) -> None:
    await exchange.close()


@scenario
async def pings(exchange: Exchange) -> None:
    await exchange.raw(b": keep-alive\n\n")
    await exchange.raw(b"event: ping\ndata: {}\n\n")
    await exchange.event(chunk([]))
    await exchange.words()
    await exchange.close()


@scenario
async def reasoning(exchange: Exchange) -> None:
    for word in ("Let me ", "see."):
        await exchange.delta(reasoning_content=word)
    await exchange.words()
    await exchange.close()


@scenario
async def repeating(exchange: Exchange) -> None:
    await exchange.words(["| --- "] * 300)
    await exchange.close()


@scenario
async def hostile_text(exchange: Exchange) -> None:
    await exchange.words(["nul \x00 ", "lone \ud800 ", "bidi \u202e"])
    await exchange.close()


@scenario
async def slow(exchange: Exchange) -> None:
    await exchange.words((f"word{number} " for number in range(20)), pause=0.05)
    await exchange.close()


@scenario
async def held(exchange: Exchange) -> None:
    """Says the first two words, then waits for ``OpenAIServer.release``."""
    await exchange.words(WORDS[:2])
    await exchange.held.wait()
    await exchange.words(WORDS[2:])
    await exchange.close()


# Tool calls


@scenario
async def tools(exchange: Exchange) -> None:
    await exchange.delta(content="Looking. ")
    await exchange.delta(tool_calls=[tool_fragment(0, "", id="call_a", name="search")])
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": ')])
    await exchange.delta(tool_calls=[tool_fragment(1, "", id="call_b", name="now")])
    await exchange.delta(tool_calls=[tool_fragment(0, '"blue"}')])
    await exchange.delta(tool_calls=[tool_fragment(1, "{}")])
    await exchange.close(finish="tool_calls")


@scenario
async def tools_same_index(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 1}', id="call_a", name="first")])
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 2}', id="call_b", name="second")])
    await exchange.close(finish="tool_calls")


@scenario
async def tools_cut(exchange: Exchange) -> None:
    await exchange.delta(content="Looking. ")
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "bl', id="call_a", name="search")])
    await exchange.close(finish="tool_calls")


@scenario
async def tools_too_long(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "bl', id="call_a", name="search")])
    await exchange.close(finish="length")


@scenario
async def tools_no_finish(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "blue"}', id="call_a", name="search")])


# Ends that look like an end and prove nothing


@scenario
async def no_finish(exchange: Exchange) -> None:
    await exchange.words()


@scenario
async def done_without_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish=None, usage=None)


@scenario
async def cut_json(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.raw(b'data: {"id": "chatcmpl-1", "choices": [{"index": 0, "del')


@scenario
async def empty(exchange: Exchange) -> None:
    await exchange.head()


@scenario
async def html(exchange: Exchange) -> None:
    await exchange.head(kind="text/html")
    await exchange.raw(b"<!doctype html><title>Welcome</title><p>This is a web page.</p>\n\n")


@scenario
async def empty_choices(exchange: Exchange) -> None:
    await exchange.event(chunk([]))
    await exchange.event("[DONE]")


# Breaks in mid-answer


@scenario
async def closed(exchange: Exchange) -> None:
    await exchange.words()
    exchange.writer.transport.abort()


@scenario
async def reset(exchange: Exchange) -> None:
    await exchange.words()
    await asyncio.sleep(0.05)  # a reset discards what is still in the client's receive buffer
    exchange.reset()


@scenario
async def reset_after_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.delta(finish="stop")
    await asyncio.sleep(0.05)
    exchange.reset()


@scenario
async def malformed(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.event('{"choices": [}')


@scenario
async def invalid_utf8(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.raw(b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n')


@scenario
async def error_chunk(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.event({"error": {"message": "GPU fell off the bus", "type": "server_error", "code": 500}})


@scenario
async def error_first(exchange: Exchange) -> None:
    await exchange.event({"error": {"message": "GPU fell off the bus", "type": "server_error", "code": 500}})


@scenario
async def stall(exchange: Exchange) -> None:
    await exchange.words()
    await asyncio.Event().wait()


@scenario
async def drip(exchange: Exchange) -> None:
    await exchange.words((f"drop{number} " for number in range(10_000)), pause=0.05)


@scenario
async def huge(exchange: Exchange) -> None:
    await exchange.words(f"{number} " + "x" * 50_000 for number in range(200))
    await exchange.close()


# Usage that cannot be true


@scenario
async def negative_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": -5, "completion_tokens": 7, "total_tokens": 2})


@scenario
async def enormous_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": 2**60, "completion_tokens": 7, "total_tokens": 2**60 + 7})


@scenario
async def wordy_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": "many", "completion_tokens": "few", "total_tokens": None})


# Refusals


@scenario
async def unauthorized(exchange: Exchange) -> None:
    sent = exchange.request.headers.get("authorization", "")
    await exchange.error(401, f"Incorrect API key provided: {sent}", code="invalid_api_key")


@scenario
async def forbidden(exchange: Exchange) -> None:
    await exchange.error(403, "This project may not use this model.")


@scenario
async def rate_limited(exchange: Exchange) -> None:
    await exchange.error(429, "Too many requests.", code="rate_limit_exceeded", Retry_After="7")


@scenario
async def context_length(exchange: Exchange) -> None:
    text = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    await exchange.error(400, text, code="context_length_exceeded")


@scenario
async def bad_request(exchange: Exchange) -> None:
    key = exchange.request.headers.get("authorization", "").removeprefix("Bearer ")
    await exchange.error(400, f"temperature must be below 2; you are {key}")


@scenario
async def server_error(exchange: Exchange) -> None:
    await exchange.error(500, "Internal error.")


@scenario
async def unavailable(exchange: Exchange) -> None:
    await exchange.head(503, "text/html")
    await exchange.raw(b"<html><body><h1>503 Service Unavailable</h1></body></html>")


@scenario
async def redirect(exchange: Exchange) -> None:
    await exchange.head(307, "text/plain", Location="/v1/elsewhere")


@scenario
async def hang(exchange: Exchange) -> None:
    await asyncio.Event().wait()


async def no_such_model(exchange: Exchange) -> None:
    """What every other name gets."""
    await exchange.error(404, f"The model '{exchange.request.model}' does not exist.", code="model_not_found")
