"""The tools that a turn calls: their results, those that come late, and calls without end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import ToolPart, ToolState
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_turn
from tests.support.people.story import begin, ended, history, part_when, say, spoken, tool_call


@tool()
def twice(context: ToolContext, text: str) -> str:
    """Say a text twice."""
    return text + text


MEETING = threading.Barrier(2)


@tool()
def meet(context: ToolContext, text: str) -> str:
    """Say a text twice, as soon as another call runs beside this one."""
    MEETING.wait(60)
    return text + text


TURN_IS_OVER = threading.Event()


@tool(timeout_seconds=0.2)
def sleepy(context: ToolContext) -> str:
    """Take too long."""
    TURN_IS_OVER.wait(60)
    return "too late"


@tool()
def slow(context: ToolContext) -> str:
    """Take a while."""
    TURN_IS_OVER.wait(60)
    return "slow answer"


@tool()
def broken(context: ToolContext) -> str:
    """Have a mistake in it."""
    raise ZeroDivisionError


TOOLS = ["twice", "meet", "broken", "sleepy", "slow"]


@pytest.fixture
def offered(alice) -> Iterator[SessionRecord]:
    """A session that is offered the tools above."""
    TURN_IS_OVER.clear()
    yield lifecycle.create_session(owner=alice, config={"turn": {"tools": TOOLS}})
    TURN_IS_OVER.set()


async def test_tools_run_in_parallel_and_their_results_reach_the_model(offered, script):
    model = script(
        Step(text="Let me see.", tool_calls=(tool_call("meet", text="ab"), tool_call("meet", "c2", text="cd"))),
        "abab, cdcd",
    )
    turn = await say(offered, "Twice, please")
    assert turn.state == TurnState.COMPLETED
    _, asked, answered = await history(offered)
    tools = [stored.part for stored in asked.parts if isinstance(stored.part, ToolPart)]
    assert [(part.output, part.state) for part in tools] == [
        ("abab", ToolState.COMPLETED),
        ("cdcd", ToolState.COMPLETED),
    ]
    assert all(part.started_at and part.completed_at for part in tools)
    assert spoken(answered) == "abab, cdcd"
    shown = [message for message in model.requests[1].payload["messages"] if message["role"] == "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in shown] == [
        ("c1", "abab"),
        ("c2", "cdcd"),
    ]
    assert [item["function"]["name"] for item in model.requests[0].payload["tools"]] == TOOLS


async def test_results_are_durable_before_the_model_is_asked_again(offered, script):
    gate = asyncio.Event()
    model = script(tool_call("twice", text="ab"), Step(text="abab", gate=gate, gate_after=0))
    turn = await begin(offered, "Twice, please", until=model)
    assert len(model.requests) == 2
    part = (await history(offered))[1].parts[0].part
    assert (part.output, part.state) == ("abab", ToolState.COMPLETED)
    gate.set()
    assert (await ended(turn)).state == TurnState.COMPLETED


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
async def test_a_tool_that_fails_is_a_result_not_the_end(offered, script, name, arguments, error):
    script(tool_call(name, **arguments), "I see.")
    turn = await say(offered, "Go")
    assert turn.state == TurnState.COMPLETED
    part = (await history(offered))[1].parts[0].part
    assert part.state is ToolState.ERROR
    assert error in part.error


async def test_a_tool_that_the_session_is_not_offered_is_not_run(session, script):
    script(tool_call("twice", text="ab"), "I see.")
    await say(session, "Go")
    part = (await history(session))[1].parts[0].part
    assert part.error.startswith("TOOL_NOT_FOUND: no tool is called 'twice'")


async def test_what_a_tool_answers_after_its_time_is_kept_with_its_call_and_sent_to_no_model(offered, script):
    model = script(tool_call("sleepy"), "I see.", "Further.")
    await say(offered, "Go")
    TURN_IS_OVER.set()
    part = await part_when(offered, lambda part: part.late_output)
    assert (part.late_output, part.output, part.state) == ("too late", None, ToolState.ERROR)
    await say(offered, "And now?")
    assert "too late" not in json.dumps([request.payload for request in model.requests])


async def test_what_a_tool_answers_after_an_interrupt_is_kept_with_its_call(offered, script):
    script(tool_call("slow"))
    turn = await begin(offered, "Go")
    await part_when(offered, lambda part: part.state is ToolState.RUNNING)
    await db(lifecycle.interrupt, offered.id, owner_id=offered.owner_id)
    assert (await ended(turn)).state == TurnState.CANCELLED
    TURN_IS_OVER.set()
    part = await part_when(offered, lambda part: part.late_output)
    assert (part.late_output, part.state) == ("slow answer", ToolState.ERROR)
    assert (await db(load_turn, turn.id, session_id=offered.id)).state == TurnState.CANCELLED


async def test_a_model_that_goes_round_in_circles_is_told(offered, script):
    same = tool_call("twice", text="x")
    script(same, same, same, "I stop.")
    turn = await say(offered, "Go")
    assert turn.state == TurnState.COMPLETED
    parts = [message.parts[0].part for message in (await history(offered))[1:4]]
    assert [part.state for part in parts] == [ToolState.COMPLETED, ToolState.COMPLETED, ToolState.ERROR]
    events = [event.type for event in await db(load_events, offered.id)]
    assert events.count("doom_loop.detected") == 1


@pytest.mark.parametrize("of_turn", [False, True])
async def test_a_caller_may_have_a_turn_stopped_that_goes_round_in_circles(alice, script, of_turn):
    config = {} if of_turn else {"on_doom_loop": "stop"}
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["twice"], **config}})
    script(*[tool_call("twice", text="x") for _ in range(3)])
    turn = await ended(await begin(session, "Go", on_doom_loop="stop" if of_turn else None))
    assert (turn.state, turn.error_code) == (TurnState.INCOMPLETE, "DOOM_LOOP")
    last = (await history(session))[3].parts[0].part
    assert "several times in a row" in last.error
    assert (await db(load_session, session.id)).running_turn_id is None


async def test_calls_are_the_same_however_their_json_is_written(session, script):
    texts = ('{"text": "x", "n": 1}', '{"n":1,"text":"x"}', '{ "text":"x","n" : 1 }')
    script(*[Step(tool_calls=(ToolCall(id="c", name="nosuch", arguments=text),)) for text in texts], "I stop.")
    await say(session, "Go")
    events = [event.type for event in await db(load_events, session.id)]
    assert events.count("doom_loop.detected") == 1


async def test_another_call_in_between_is_no_circle(offered, script):
    one, other = (tool_call("twice", text=text) for text in "xy")
    script(one, one, other, one, one, "Done.")
    await say(offered, "Go")
    assert "doom_loop.detected" not in [event.type for event in await db(load_events, offered.id)]


async def test_a_turn_stops_at_its_limit_of_steps(alice, script):
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"max_steps": 2}})
    script(*(tool_call("twice", text=str(index)) for index in range(2)))
    turn = await say(session, "Go")
    assert (turn.state, turn.error_code) == (TurnState.INCOMPLETE, "STEP_LIMIT_REACHED")
