"""An answer while it streams: its pieces, its tool calls, its limits, and a reader who leaves."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import replace

import pytest

from mnesis_core.llm.interface import Outcome, ReasoningDelta, Reply, TextDelta, ToolCall, complete
from mnesis_core.providers.litellm_ import LiteLLMModel
from tests.core.providers.litellm.questions import REQUEST, ask, spec_for
from tests.support.providers.openai.openai_server import TEXT, WORDS, OpenAIServer
from tests.support.waiting import until


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


@pytest.mark.parametrize(
    "name", ["tools_doubled_ids", "tools_hostile_ids", "tools_without_ids", "tools_without_ids_or_numbers"]
)
async def test_every_call_has_an_id_of_its_own_that_can_be_sent_back(name: str, server: OpenAIServer) -> None:
    calls = (await ask(name, server)).tool_calls
    assert [call.name for call in calls] == ["first", "second"]
    assert [call.arguments for call in calls] in (["{}", "{}"], ['{"n": 1}', '{"n": 2}'])
    assert len({call.id for call in calls}) == 2
    assert all(0 < len(call.id) <= 128 and call.id.isprintable() for call in calls)


async def test_an_id_that_comes_with_every_piece_is_one_call(server: OpenAIServer) -> None:
    [call] = (await ask("tools_same_id_in_each_piece", server)).tool_calls
    assert (call.id, call.name, call.arguments) == ("call_a", "first", '{"n": 1}')


async def test_arguments_that_are_no_object_are_handed_on_for_the_tool_to_refuse(server: OpenAIServer) -> None:
    calls = (await ask("tools_no_object", server)).tool_calls
    assert [call.arguments for call in calls] == ["[1, 2]", '"text"', "7", "null"]


@pytest.mark.parametrize("name", ["tools_cut", "tools_too_long"])
async def test_a_cut_tool_call_is_not_handed_on_but_shown(name: str, server: OpenAIServer) -> None:
    reply = await ask(name, server)
    assert reply.tool_calls == ()
    assert reply.error is not None
    assert reply.error.details["arguments"] == '{"pattern": "bl'


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


async def test_who_asks_may_allow_less_time_and_fewer_characters(server: OpenAIServer) -> None:
    started = time.monotonic()
    late = await complete(LiteLLMModel(spec_for("drip", server)), replace(REQUEST, seconds=0.3))
    assert time.monotonic() - started < 3
    assert (late.outcome, late.error and late.error.code) == (Outcome.BROKEN, "MODEL_TIMEOUT")
    assert "after 0.3 seconds" in (late.error.message if late.error else "")
    short = await complete(LiteLLMModel(spec_for("ok", server)), replace(REQUEST, max_characters=5))
    assert (short.outcome, short.text) == (Outcome.INCOMPLETE, TEXT[:5])


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
    await until(lambda: server.disconnects > gone)


async def test_a_stream_that_its_reader_leaves_hangs_up_at_once(server: OpenAIServer) -> None:
    gone = server.disconnects
    gc.disable()  # collecting the stream would close it too, some time
    try:
        stream = LiteLLMModel(spec_for("drip", server)).stream(REQUEST)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        await until(lambda: server.disconnects > gone)
    finally:
        gc.enable()
