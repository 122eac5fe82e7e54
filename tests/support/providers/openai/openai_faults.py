"""Models that do not answer: ends that prove nothing, breaks, usage that cannot be true, refusals.

Every coroutine here is a model of its own name. They write the wire by hand, since a good server library would not let
them break it.
"""

from __future__ import annotations

import asyncio

from tests.support.providers.openai.openai_exchange import Exchange, chunk

# Ends that look like an end and prove nothing


async def no_finish(exchange: Exchange) -> None:
    await exchange.words()


async def done_without_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish=None, usage=None)


async def cut_json(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.raw(b'data: {"id": "chatcmpl-1", "choices": [{"index": 0, "del')


async def empty(exchange: Exchange) -> None:
    await exchange.head()


async def html(exchange: Exchange) -> None:
    await exchange.head(kind="text/html")
    await exchange.raw(b"<!doctype html><title>Welcome</title><p>This is a web page.</p>\n\n")


async def empty_choices(exchange: Exchange) -> None:
    await exchange.event(chunk([]))
    await exchange.event("[DONE]")


# Breaks in mid-answer


async def closed(exchange: Exchange) -> None:
    await exchange.words()
    exchange.writer.transport.abort()


async def reset(exchange: Exchange) -> None:
    await exchange.words()
    await asyncio.sleep(0.05)  # a reset discards what is still in the client's receive buffer
    exchange.reset()


async def reset_after_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.delta(finish="stop")
    await asyncio.sleep(0.05)
    exchange.reset()


async def malformed(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.event('{"choices": [}')


async def invalid_utf8(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.raw(b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n')


async def error_chunk(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.event({"error": {"message": "GPU fell off the bus", "type": "server_error", "code": 500}})


async def error_first(exchange: Exchange) -> None:
    await exchange.event({"error": {"message": "GPU fell off the bus", "type": "server_error", "code": 500}})


async def stall(exchange: Exchange) -> None:
    await exchange.words()
    await asyncio.Event().wait()


async def drip(exchange: Exchange) -> None:
    await exchange.words((f"drop{number} " for number in range(10_000)), pause=0.05)


async def huge_chunk(exchange: Exchange) -> None:
    """More than our limit in one piece."""
    await exchange.words(["x" * 9_000_000])
    await exchange.close()


async def huge(exchange: Exchange) -> None:
    await exchange.words(f"{number} " + "x" * 50_000 for number in range(200))
    await exchange.close()


# Usage that cannot be true


async def negative_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": -5, "completion_tokens": 7, "total_tokens": 2})


async def enormous_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": 2**60, "completion_tokens": 7, "total_tokens": 2**60 + 7})


async def wordy_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={"prompt_tokens": "many", "completion_tokens": "few", "total_tokens": None})


# Refusals


async def unauthorized(exchange: Exchange) -> None:
    sent = exchange.request.headers.get("authorization", "")
    await exchange.error(401, f"Incorrect API key provided: {sent}", code="invalid_api_key")


async def forbidden(exchange: Exchange) -> None:
    await exchange.error(403, "This project may not use this model.")


async def rate_limited(exchange: Exchange) -> None:
    await exchange.error(429, "Too many requests.", code="rate_limit_exceeded", Retry_After="7")


async def rate_limited_for_long(exchange: Exchange) -> None:
    await exchange.error(429, "Too many requests.", code="rate_limit_exceeded", Retry_After="3600")


async def busy_once(exchange: Exchange) -> None:
    """Refuses every first of two calls."""
    if exchange.number % 2:
        await exchange.error(503, "Busy.", Retry_After="0")
        return
    await exchange.words()
    await exchange.close()


async def no_credit(exchange: Exchange) -> None:
    await exchange.error(429, "You exceeded your current quota.", code="insufficient_quota")


async def unpaid(exchange: Exchange) -> None:
    await exchange.error(402, "Insufficient balance.")


async def too_slow(exchange: Exchange) -> None:
    await exchange.error(408, "The request took too long.")


async def context_length(exchange: Exchange) -> None:
    text = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    await exchange.error(400, text, code="context_length_exceeded")


async def context_length_without_numbers(exchange: Exchange) -> None:
    await exchange.error(400, "Please reduce the length of your request.", code="context_length_exceeded")


async def context_length_of_gemini(exchange: Exchange) -> None:
    text = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    await exchange.error(400, text)


async def context_length_in_an_event(exchange: Exchange) -> None:
    """The server has said yes before it looks at the prompt."""
    text = "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
    await exchange.event({"error": {"message": text, "type": "exceed_context_size_error", "code": 400}})


async def context_length_after_a_role(exchange: Exchange) -> None:
    """The first piece of an answer holds no word of it."""
    await exchange.event(chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]))
    text = "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens."
    await exchange.event({"error": {"message": text, "type": "BadRequestError", "code": 400}})


async def bad_request(exchange: Exchange) -> None:
    key = exchange.request.headers.get("authorization", "").removeprefix("Bearer ")
    await exchange.error(400, f"temperature must be below 2; you are {key}")


async def server_error(exchange: Exchange) -> None:
    await exchange.error(500, "Internal error.")


async def unavailable(exchange: Exchange) -> None:
    await exchange.head(503, "text/html")
    await exchange.raw(b"<html><body><h1>503 Service Unavailable</h1></body></html>")


async def redirect(exchange: Exchange) -> None:
    await exchange.head(307, "text/plain", Location="/v1/elsewhere")


async def hang(exchange: Exchange) -> None:
    await asyncio.Event().wait()
