"""The test double must behave as a real model does, or every test that uses it is worth nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from mnesis_core.errors import ModelRateLimited
from mnesis_core.llm.interface import (
    Model,
    ModelSpec,
    Outcome,
    ReasoningDelta,
    Reply,
    Request,
    Source,
    TextDelta,
    ToolCall,
    Usage,
    complete,
)
from mnesis_core.providers.scripted import ScriptedModel, Step
from tests.support.waiting import PATIENCE_SECONDS

SPEC = ModelSpec(alias="double", litellm_model="scripted/double", context_window=1_000, max_output_tokens=100)
REQUEST = Request(payload={"messages": [{"role": "user", "content": "Hello there"}]}, max_output_tokens=10)
CALL = ToolCall(id="call_1", name="now", arguments="{}")


async def test_replies_come_in_order_and_requests_are_kept() -> None:
    model = ScriptedModel(SPEC, ["one", "two"])
    checked: Model = model
    assert [(await complete(checked, REQUEST)).text for _ in range(2)] == ["one", "two"]
    assert model.requests == [REQUEST, REQUEST]


async def test_a_text_is_streamed_word_by_word_and_a_tuple_piece_by_piece() -> None:
    model = ScriptedModel(SPEC, ["a b  c ", Step(text=("x", "y z"), reasoning="hm")])
    assert [item.text async for item in model.stream(REQUEST) if isinstance(item, TextDelta)] == ["a", " b", "  c", " "]
    items = [item async for item in model.stream(REQUEST)]
    assert items[:-1] == [ReasoningDelta(text="hm"), TextDelta(text="x"), TextDelta(text="y z")]
    assert isinstance(items[-1], Reply)


async def test_a_plain_reply_is_complete_and_its_usage_an_estimate() -> None:
    reply = await complete(ScriptedModel(SPEC, ["fine"]), REQUEST)
    assert (reply.outcome, reply.finish_reason, reply.error) == (Outcome.COMPLETE, "stop", None)
    assert reply.usage.source is Source.ESTIMATED
    assert reply.usage.input_tokens > 0


async def test_a_given_usage_is_reported() -> None:
    usage = Usage(input_tokens=5, output_tokens=6, source=Source.PROVIDER)
    assert (await complete(ScriptedModel(SPEC, [Step(text="x", usage=usage)]), REQUEST)).usage == usage


async def test_tool_calls_end_with_their_finish_reason() -> None:
    reply = await complete(ScriptedModel(SPEC, [CALL]), REQUEST)
    assert (reply.tool_calls, reply.finish_reason) == ((CALL,), "tool_calls")


async def test_a_cut_tool_call_is_incomplete() -> None:
    step = Step(tool_calls=(ToolCall(id="call_1", name="now", arguments='{"zone": "Eu'),))
    reply = await complete(ScriptedModel(SPEC, [step]), REQUEST)
    assert (reply.outcome, reply.tool_calls) == (Outcome.INCOMPLETE, ())


@pytest.mark.parametrize("arguments", ["{'zone': 'Europe/Berlin'}", '{"a": 1} and so on', "[1]", '{"a": NaN}'])
async def test_arguments_that_are_whole_but_wrong_are_handed_on(arguments: str) -> None:
    call = ToolCall(id="call_1", name="now", arguments=arguments)
    reply = await complete(ScriptedModel(SPEC, [call]), REQUEST)
    assert (reply.outcome, reply.tool_calls) == (Outcome.COMPLETE, (call,))


@pytest.mark.parametrize("arguments", ["{", '{"a"', '{"a": tru', '{"a": "x', '{"a": "\\u12', '{"a": [1, 2', '{"a": -'])
async def test_arguments_that_stop_before_their_end_are_cut(arguments: str) -> None:
    call = ToolCall(id="call_1", name="now", arguments=arguments)
    assert (await complete(ScriptedModel(SPEC, [call]), REQUEST)).outcome is Outcome.INCOMPLETE


async def test_no_arguments_mean_an_empty_object() -> None:
    reply = await complete(ScriptedModel(SPEC, [ToolCall(id="call_1", name="now", arguments="")]), REQUEST)
    assert reply.tool_calls == (CALL,)


async def test_an_error_before_the_text_fails_and_after_it_breaks() -> None:
    error = ModelRateLimited()
    model = ScriptedModel(SPEC, [error, Step(text="half", error=error)])
    first, second = await complete(model, REQUEST), await complete(model, REQUEST)
    assert (first.outcome, first.text, first.error) == (Outcome.FAILED, "", error)
    assert (second.outcome, second.text, second.error) == (Outcome.BROKEN, "half", error)


async def test_without_a_finish_reason_nothing_is_proven() -> None:
    reply = await complete(ScriptedModel(SPEC, [Step(text="half", finish_reason="")]), REQUEST)
    assert (reply.outcome, reply.error and reply.error.code) == (Outcome.INCOMPLETE, "MODEL_REPLY_INCOMPLETE")


async def test_a_function_answers_every_request() -> None:
    model = ScriptedModel(SPEC, lambda request: str(request.payload["messages"][0]["content"]).upper())
    assert [(await complete(model, REQUEST)).text for _ in range(2)] == ["HELLO THERE"] * 2


async def test_a_function_may_be_one_step_of_a_script() -> None:
    model = ScriptedModel(SPEC, [lambda request: Step(text=str(request.max_output_tokens)), "then"])
    assert [(await complete(model, REQUEST)).text for _ in range(2)] == ["10", "then"]


async def test_a_gate_holds_the_stream_after_its_first_piece() -> None:
    gate = asyncio.Event()
    model = ScriptedModel(SPEC, [Step(text="one two", gate=gate)])
    seen: list[object] = []

    async def consume() -> None:
        async for item in model.stream(REQUEST):
            seen.append(item)

    task = asyncio.create_task(consume())
    await asyncio.wait_for(model.at_gate.wait(), 2)
    assert seen == [TextDelta(text="one")]
    gate.set()
    await asyncio.wait_for(task, 2)
    assert isinstance(seen[-1], Reply)
    assert not model.at_gate.is_set()


async def test_a_cancelled_stream_is_counted() -> None:
    model = ScriptedModel(SPEC, [Step(text="one two", gate=asyncio.Event())])
    task = asyncio.create_task(complete(model, REQUEST))
    await asyncio.wait_for(model.at_gate.wait(), 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.abandoned == 1


async def test_more_requests_than_replies_are_a_fault_of_the_test() -> None:
    with pytest.raises(AssertionError, match="the script is over, but request 1 came"):
        await complete(ScriptedModel(SPEC, []), REQUEST)


@pytest.mark.slow
def test_the_double_needs_no_litellm() -> None:
    script = "import sys; import mnesis_core.providers.scripted; assert 'litellm' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)}, timeout=PATIENCE_SECONDS
    )
