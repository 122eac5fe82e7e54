"""One turn: what is durable when, what tools do, and how every end looks."""

from __future__ import annotations

import asyncio
import json

import pytest

from agents_app import lifecycle
from agents_app.runner import runner
from agents_app.tools.registry import ToolContext, tool
from mnesis_core.errors import (
    ModelAuthenticationFailed,
    ModelRateLimited,
    ModelStreamBroken,
    SessionBusy,
    SessionNotRunning,
)
from mnesis_core.llm import Request, Source, ToolCall, Usage
from mnesis_core.messages import ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.providers.scripted import Script, Step
from mnesis_core.record import TurnState
from sessions_app.conf import site_config
from sessions_app.database import db
from sessions_app.queries import (
    journal_texts,
    list_calls,
    load_events,
    load_message_rows,
    load_session,
    load_turn,
)
from tests.support.story import ended, frames_until, history, say, spoken


@tool()
def twice(context: ToolContext, text: str) -> str:
    """Say a text twice."""
    return text + text


@tool(timeout_seconds=0.2)
def sleepy(context: ToolContext) -> str:
    """Take too long."""
    import time

    time.sleep(0.6)
    return "too late"


@tool()
def broken(context: ToolContext) -> str:
    """Have a mistake in it."""
    raise ZeroDivisionError


async def test_an_answer_is_recorded_with_its_numbers_and_their_source(session, script):
    usage = Usage(input_tokens=11, output_tokens=7, source=Source.PROVIDER)
    script(Step(reasoning="hm", text="Hello Alice.", usage=usage))
    turn = await say(session, "Hello")
    assert turn.state == TurnState.COMPLETED
    assert (turn.usage.tokens_input, turn.usage.tokens_output, turn.usage.usage_source) == (11, 7, "provider")
    user, answer = await history(session)
    assert spoken(user) == "Hello"
    assert [stored.part for stored in answer.parts] == [ReasoningPart(text="hm"), TextPart(text="Hello Alice.")]
    row = (await db(load_message_rows, session.id, [answer.id]))[answer.id]
    assert (row.finish_reason, row.outcome, row.usage_source, row.tokens_output) == ("stop", "complete", "provider", 7)
    [call] = await db(list_calls, session.id)
    assert (call.state, call.message_id, call.usage.tokens_input) == ("completed", answer.id, 11)
    assert len(call.digest) == 64
    assert call.manifest


async def test_message_and_stub_are_durable_before_the_model_streams(session, script):
    gate = asyncio.Event()
    model = script(Step(text=("one ", "two"), gate=gate, gate_after=0))
    started = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Hello")
    await model.at_gate.wait()
    user, stub = await history(session)
    assert (spoken(user), stub.role, stub.parts) == ("Hello", "assistant", ())
    assert [call.state for call in await db(list_calls, session.id)] == ["running"]
    gate.set()
    assert (await ended(started.turn)).state == TurnState.COMPLETED


async def test_every_follower_gets_the_same_text_whenever_it_comes(session, script):
    gate = asyncio.Event()
    model = script(Step(text=("one ", "two ", "three"), gate=gate, gate_after=2))
    early = asyncio.create_task(frames_until(session, "turn.completed"))
    await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Count")
    await model.at_gate.wait()
    late = asyncio.create_task(frames_until(session, "turn.completed"))
    await asyncio.sleep(0.2)
    gate.set()
    for frames in await asyncio.gather(early, late):
        seqs = [frame["seq"] for frame in frames if "data" in frame]
        assert seqs == list(range(1, len(seqs) + 1))
        deltas = [frame for frame in frames if frame["type"] == "delta"]
        assert "".join(frame["text"] for frame in deltas) == "one two three"
        offsets = [frame["offset"] for frame in deltas]
        assert offsets == [sum(len(frame["text"]) for frame in deltas[:index]) for index in range(len(deltas))]
    assert next(frame["text"] for frame in late.result() if frame["type"] == "delta") == "one two "


async def test_a_follower_resumes_by_seq_without_loss_or_repetition(session, script):
    script("first", "second")
    await say(session, "one")
    seen = await frames_until(session, "turn.completed")
    await say(session, "two")
    more = await frames_until(session, "turn.completed", after=seen[-1]["seq"])
    events = await db(load_events, session.id)
    both = [frame["seq"] for frame in [*seen, *more] if "data" in frame]
    assert both == [event.seq for event in events]


async def test_another_process_reads_the_text_so_far_from_the_journal(session, script, settings):
    gate = asyncio.Event()
    words = tuple(f"word{index} " * 40 for index in range(20))
    model = script(Step(text=words, gate=gate, gate_after=20))
    started = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go")
    await model.at_gate.wait()
    [text] = await db(journal_texts, session.id)
    whole = "".join(words)
    assert whole.startswith(text.text)
    assert len(text.text) > len(whole) - 2 * site_config().stream.journal_bytes
    gate.set()
    await ended(started.turn)
    assert await db(journal_texts, session.id) == []
    assert spoken((await history(session))[1]) == whole


async def test_a_second_turn_while_one_runs_is_busy_and_leaves_no_trace(session, script):
    gate = asyncio.Event()
    model = script(Step(text="slow", gate=gate, gate_after=0))
    started = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="first")
    await model.at_gate.wait()
    with pytest.raises(SessionBusy) as busy:
        await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="second")
    assert busy.value.details["turn_id"] == started.turn.id
    gate.set()
    await ended(started.turn)
    assert [spoken(message) for message in await history(session)] == ["first", "slow"]


async def test_of_many_turns_started_at_once_one_wins(session, script):
    script(Step(text="only", delay_seconds=0.2))
    results = await asyncio.gather(
        *(lifecycle.start_turn(session.id, owner_id=session.owner_id, message=f"try {index}") for index in range(8)),
        return_exceptions=True,
    )
    won = [result for result in results if not isinstance(result, BaseException)]
    assert len(won) == 1
    assert all(isinstance(result, SessionBusy) for result in results if isinstance(result, BaseException))
    await ended(won[0].turn)


async def test_an_interrupt_keeps_what_was_said_and_frees_the_session(session, script):
    gate = asyncio.Event()
    model = script(Step(text=("kept ", "lost"), gate=gate, gate_after=1), "next")
    started = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go")
    await model.at_gate.wait()
    # As another process does it: only the database knows.
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    turn = await ended(started.turn)
    assert turn.state == TurnState.CANCELLED
    answer = (await history(session))[1]
    assert spoken(answer) == "kept "
    row = (await db(load_message_rows, session.id, [answer.id]))[answer.id]
    assert row.outcome == "cancelled"
    assert [call.state for call in await db(list_calls, session.id)] == ["completed"]
    assert (await say(session, "again")).state == TurnState.COMPLETED


async def test_interrupting_an_idle_session_is_refused(session, script):
    with pytest.raises(SessionNotRunning):
        await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)


async def test_a_shutdown_ends_turns_as_interrupted_with_their_text(session, script):
    model = script(Step(text=("kept ", "lost"), gate=asyncio.Event(), gate_after=1))
    started = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go")
    await model.at_gate.wait()
    await runner.shutdown()
    turn = await db(load_turn, started.turn.id, session_id=session.id)
    assert (turn.state, turn.error_code) == (TurnState.INTERRUPTED, "TURN_INTERRUPTED")
    assert spoken((await history(session))[1]) == "kept "


@pytest.mark.parametrize(
    ("step", "state", "code", "text"),
    [
        (Step(error=ModelAuthenticationFailed()), "failed", "MODEL_AUTHENTICATION_FAILED", ""),
        (Step(text="half ", error=ModelStreamBroken()), "interrupted", "MODEL_STREAM_BROKEN", "half "),
        (Step(text="half ", finish_reason=""), "incomplete", "MODEL_REPLY_INCOMPLETE", "half "),
    ],
)
async def test_a_bad_end_is_told_the_text_is_kept_and_the_session_goes_on(session, script, step, state, code, text):
    script(step, "fine again")
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (state, code)
    assert turn.error_message
    assert spoken((await history(session))[1]) == text
    assert (await say(session, "again")).state == TurnState.COMPLETED


async def test_an_error_that_may_pass_is_tried_again_before_the_first_token(session, script):
    model = script(ModelRateLimited(), "at last")
    turn = await say(session, "Go")
    assert turn.state == TurnState.COMPLETED
    assert len(model.requests) == 2
    retried = [event for event in await db(load_events, session.id) if event.type == "call.retried"]
    assert [event.data["error_code"] for event in retried] == ["MODEL_RATE_LIMITED"]


async def test_a_model_that_has_a_mistake_ends_the_turn_not_the_session(session, script):
    def explode(request: Request) -> Script:
        raise RuntimeError("a bug")

    script(explode)
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "INTERNAL_ERROR")
    assert (await db(load_session, session.id)).running_turn_id is None


def calls(*pairs: tuple[str, dict[str, object]]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=f"call_{index}", name=name, arguments=json.dumps(arguments))
        for index, (name, arguments) in enumerate(pairs)
    )


async def test_tools_run_in_parallel_and_their_results_reach_the_model(alice, script):
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["twice"]}})
    model = script(
        Step(text="Let me see.", tool_calls=calls(("twice", {"text": "ab"}), ("twice", {"text": "cd"}))), "abab, cdcd"
    )
    turn = await say(session, "Twice, please")
    assert turn.state == TurnState.COMPLETED
    _, asked, answered = await history(session)
    tools = [stored.part for stored in asked.parts if isinstance(stored.part, ToolPart)]
    assert [(part.output, part.state) for part in tools] == [
        ("abab", ToolState.COMPLETED),
        ("cdcd", ToolState.COMPLETED),
    ]
    assert all(part.started_at and part.completed_at for part in tools)
    assert spoken(answered) == "abab, cdcd"
    shown = [message for message in model.requests[1].payload["messages"] if message["role"] == "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in shown] == [
        ("call_0", "abab"),
        ("call_1", "cdcd"),
    ]
    assert [item["function"]["name"] for item in model.requests[0].payload["tools"]] == ["twice"]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("nosuch", {}, "TOOL_NOT_FOUND"),
        ("twice", {"texts": "ab"}, "INVALID_REQUEST"),
        ("twice", {"text": "ab", "more": 1}, "INVALID_REQUEST"),
        ("broken", {}, "ZeroDivisionError"),
        ("sleepy", {}, "did not answer within"),
    ],
)
async def test_a_tool_that_fails_is_a_result_not_the_end(session, script, name, arguments, error):
    script(Step(tool_calls=calls((name, arguments))), "I see.")
    turn = await say(session, "Go")
    assert turn.state == TurnState.COMPLETED
    part = (await history(session))[1].parts[0].part
    assert part.state is ToolState.ERROR
    assert error in part.error


async def test_a_model_that_goes_round_in_circles_is_told(session, script):
    same = Step(tool_calls=calls(("twice", {"text": "x"})))
    script(same, same, same, "I stop.")
    turn = await say(session, "Go")
    assert turn.state == TurnState.COMPLETED
    parts = [message.parts[0].part for message in (await history(session))[1:4]]
    assert [part.state for part in parts] == [ToolState.COMPLETED, ToolState.COMPLETED, ToolState.ERROR]
    events = [event.type for event in await db(load_events, session.id)]
    assert events.count("doom_loop.detected") == 1


async def test_a_turn_stops_at_its_limit_of_steps(alice, script):
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"max_steps": 2}})
    script(*(Step(tool_calls=calls(("twice", {"text": str(index)}))) for index in range(2)))
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (TurnState.INCOMPLETE, "STEP_LIMIT_REACHED")
