"""Models that answer, and models that call tools, well or badly.

Every coroutine here is a model of its own name. They write the wire by hand, since a good server library would not let
them bend it.
"""

from __future__ import annotations

import asyncio

from mnesis_core.providers.answer import estimate_payload
from tests.support.providers.openai.openai_exchange import USAGE, WORDS, Exchange, chunk, tool_fragment

# Good answers


async def ok(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close()


async def echo(exchange: Exchange) -> None:
    await exchange.words(str(exchange.request.body["messages"][-1]["content"]).split(" "))
    await exchange.close()


async def no_done(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(done=False)


async def no_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage=None)


async def counted(exchange: Exchange) -> None:
    """Reports what the prompt really comes to."""
    await exchange.words()
    prompt = estimate_payload(exchange.request.body)
    await exchange.close(usage={"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7})


async def cached_usage(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 5}})


async def length(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish="length")


async def unknown_finish(exchange: Exchange) -> None:
    await exchange.words()
    await exchange.close(finish="because " * 40)


async def silent(exchange: Exchange) -> None:
    await exchange.close()


async def pings(exchange: Exchange) -> None:
    await exchange.raw(b": keep-alive\n\n")
    await exchange.raw(b"event: ping\ndata: {}\n\n")
    await exchange.event(chunk([]))
    await exchange.words()
    await exchange.close()


async def reasoning(exchange: Exchange) -> None:
    for word in ("Let me ", "see."):
        await exchange.delta(reasoning_content=word)
    await exchange.words()
    await exchange.close()


async def repeating(exchange: Exchange) -> None:
    await exchange.words(["| --- "] * 300)
    await exchange.close()


async def hostile_text(exchange: Exchange) -> None:
    await exchange.words(["nul \x00 ", "lone \ud800 ", "bidi \u202e"])
    await exchange.close()


async def slow(exchange: Exchange) -> None:
    await exchange.words((f"word{number} " for number in range(20)), pause=0.05)
    await exchange.close()


async def held(exchange: Exchange) -> None:
    """Says the first two words, then waits for ``OpenAIServer.release``."""
    await exchange.words(WORDS[:2])
    await exchange.held.wait()
    await exchange.words(WORDS[2:])
    await exchange.close()


# Tool calls


async def tools(exchange: Exchange) -> None:
    await exchange.delta(content="Looking. ")
    await exchange.delta(tool_calls=[tool_fragment(0, "", id="call_a", name="search")])
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": ')])
    await exchange.delta(tool_calls=[tool_fragment(1, "", id="call_b", name="now")])
    await exchange.delta(tool_calls=[tool_fragment(0, '"blue"}')])
    await exchange.delta(tool_calls=[tool_fragment(1, "{}")])
    await exchange.close(finish="tool_calls")


async def tools_same_index(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 1}', id="call_a", name="first")])
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 2}', id="call_b", name="second")])
    await exchange.close(finish="tool_calls")


async def tools_doubled_ids(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 1}', id="call_a", name="first")])
    await exchange.delta(tool_calls=[tool_fragment(1, '{"n": 2}', id="call_a", name="second")])
    await exchange.close(finish="tool_calls")


async def tools_without_ids(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 1}', name="first")])
    await exchange.delta(tool_calls=[tool_fragment(1, '{"n": ', name="second")])
    await exchange.delta(tool_calls=[tool_fragment(1, "2}")])
    await exchange.close(finish="tool_calls")


async def tools_without_ids_or_numbers(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 1}', name="first")])
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 2}', name="second")])
    await exchange.close(finish="tool_calls")


async def tools_same_id_in_each_piece(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": ', id="call_a", name="first")])
    await exchange.delta(tool_calls=[tool_fragment(0, "1}", id="call_a", name="first")])
    await exchange.close(finish="tool_calls")


async def tools_hostile_ids(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, "{}", id="nul \x00", name="first")])
    await exchange.delta(tool_calls=[tool_fragment(1, "{}", id="x" * 10_000, name="second")])
    await exchange.close(finish="tool_calls")


async def tools_no_object(exchange: Exchange) -> None:
    for index, arguments in enumerate(("[1, 2]", '"text"', "7", "null")):
        await exchange.delta(tool_calls=[tool_fragment(index, arguments, id=f"call_{index}", name="search")])
    await exchange.close(finish="tool_calls")


async def tools_reset(exchange: Exchange) -> None:
    """Breaks off after one call that is whole and one that is not."""
    await exchange.delta(tool_calls=[tool_fragment(0, '{"n": 1}', id="call_a", name="first")])
    await exchange.delta(tool_calls=[tool_fragment(1, '{"n": ', id="call_b", name="second")])
    await asyncio.sleep(0.05)
    exchange.reset()


async def tools_cut(exchange: Exchange) -> None:
    await exchange.delta(content="Looking. ")
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "bl', id="call_a", name="search")])
    await exchange.close(finish="tool_calls")


async def tools_too_long(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "bl', id="call_a", name="search")])
    await exchange.close(finish="length")


async def tools_no_finish(exchange: Exchange) -> None:
    await exchange.delta(tool_calls=[tool_fragment(0, '{"pattern": "blue"}', id="call_a", name="search")])
