"""Tools that the caller runs: the turn waits with the calls, in the record alone, until the results come."""

from __future__ import annotations

import asyncio
import json

import pytest

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from agents_app.turns.claim import ToolResult
from agents_app.turns.runner import runner
from mnesis_core.errors import (
    InvalidRequest,
    SessionBusy,
    SessionNotFoundError,
    SessionNotRunning,
    ToolCallAnswered,
    ToolCallNotCallers,
    ToolCallNotFoundError,
    TurnNotFoundError,
)
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.messages import ToolPart, ToolState
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnRecord, TurnState, WaitsFor
from mnesis_core.turns.options import TurnOptions
from sessions_app.database.threads import db
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_turn
from tests.support.people.story import ended, history, say, spoken, tool_call

WEATHER = ToolSpec(name="weather", description="The weather of a town.", parameters={"type": "object"})


@tool()
def louder(context: ToolContext, text: str) -> str:
    """Say it louder."""
    return text.upper()


async def begin(session, *calls: ToolCall, script, then=("It rains.",), **options) -> TurnRecord:
    """A turn that waits for its caller."""
    script(Step(tool_calls=calls), *then)
    started = await lifecycle.start_turn(
        session.id, owner_id=session.owner_id, message="Weather?", options=TurnOptions(tools=(WEATHER,), **options)
    )
    return await lifecycle.wait_turn(session.id, started.turn.id, owner_id=session.owner_id)


async def answer(session, turn: TurnRecord, *results: ToolResult) -> TurnRecord:
    answered = await lifecycle.answer_tools(session.id, turn.id, owner_id=session.owner_id, results=results)
    return await ended(answered.turn) if answered.is_new else answered.turn


async def types(session) -> list[str]:
    return [event.type for event in await db(load_events, session.id)]


async def test_the_turn_waits_with_the_calls_and_their_results_resume_it(session, script):
    turn = await begin(session, tool_call("weather", town="Lyon"), script=script)
    assert turn.state == TurnState.SUSPENDED
    [waiting] = turn.waits_for
    assert (waiting.tool_call_id, waiting.tool_name, waiting.reason) == ("c1", "weather", WaitsFor.CALLER)
    assert json.loads(waiting.input) == {"town": "Lyon"}
    with pytest.raises(SessionBusy) as busy:
        await say(session, "Hello?")
    assert busy.value.details["state"] == "suspended"
    assert (await db(load_session, session.id)).state == "suspended"
    after = await answer(session, turn, ToolResult(tool_call_id="c1", output="rain"))
    assert (after.state, after.waits_for) == (TurnState.COMPLETED, ())
    assert spoken((await history(session))[-1]) == "It rains."
    found = await types(session)
    assert found.index("turn.suspended") < found.index("turn.resumed") < found.index("turn.completed")


async def test_a_step_runs_what_runs_here_first_and_waits_for_the_rest(alice, script):
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["louder"]}})
    turn = await begin(
        session,
        tool_call("louder", "c1", text="a"),
        tool_call("weather", "c2"),
        tool_call("weather", "c3"),
        script=script,
    )
    parts = [stored.part for stored in (await history(session))[1].parts]
    assert [part.state for part in parts] == [ToolState.COMPLETED, ToolState.PENDING, ToolState.PENDING]
    assert [waiting.tool_call_id for waiting in turn.waits_for] == ["c2", "c3"]
    half = await answer(session, turn, ToolResult(tool_call_id="c3", error="no such town"))
    assert (half.state, [waiting.tool_call_id for waiting in half.waits_for]) == (TurnState.SUSPENDED, ["c2"])
    assert (await answer(session, turn, ToolResult(tool_call_id="c2", output="sun"))).state == TurnState.COMPLETED


async def test_the_model_is_offered_both_and_told_the_turns_own_prompt(alice, script):
    session = await db(
        lifecycle.create_session, owner=alice, system_prompt="Be dry.", config={"turn": {"tools": ["louder"]}}
    )
    model = script(Step(tool_calls=(tool_call("weather"),)), "Done.")
    options = TurnOptions(tools=(WEATHER,), system_prompt="Be kind.")
    started = await lifecycle.start_turn(session.id, owner_id=alice.pk, message="Go", options=options)
    turn = await lifecycle.wait_turn(session.id, started.turn.id, owner_id=alice.pk)
    await answer(session, turn, ToolResult(tool_call_id="c1", output="rain"))
    for request in model.requests:
        assert [item["function"]["name"] for item in request.payload["tools"]] == ["louder", "weather"]
        assert request.payload["messages"][0]["content"] == "Be kind."


@pytest.mark.parametrize("field", ["output", "error"])
async def test_a_result_is_taken_once(session, script, field):
    turn = await begin(session, tool_call("weather", "c1"), tool_call("weather", "c2"), script=script)
    await answer(session, turn, ToolResult(tool_call_id="c1", **{field: "rain"}))
    with pytest.raises(ToolCallAnswered):
        await answer(session, turn, ToolResult(tool_call_id="c1", output="sun"))
    part = (await history(session))[1].parts[0].part
    assert isinstance(part, ToolPart)
    assert (getattr(part, field), part.late_output) == ("rain", None)


@pytest.mark.parametrize("id", ["nosuch", "", "\x00", "\ud800", "c1'; --", "x" * 5_000])
async def test_an_id_that_no_call_has_is_not_found(session, script, id):
    turn = await begin(session, tool_call("weather"), script=script)
    with pytest.raises(ToolCallNotFoundError):
        await answer(session, turn, ToolResult(tool_call_id=id, output="x"))
    with pytest.raises(TurnNotFoundError):
        await lifecycle.answer_tools(
            session.id, id, owner_id=session.owner_id, results=[ToolResult(tool_call_id="c1", output="x")]
        )


async def test_nobody_else_may_answer(session, bob, script):
    turn = await begin(session, tool_call("weather"), script=script)
    with pytest.raises(SessionNotFoundError):
        await lifecycle.answer_tools(
            session.id, turn.id, owner_id=bob.pk, results=[ToolResult(tool_call_id="c1", output="x")]
        )


async def test_a_tool_that_runs_here_takes_no_result_from_outside(alice, script):
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["louder"]}})
    turn = await begin(session, tool_call("louder", "c1", text="a"), tool_call("weather", "c2"), script=script)
    with pytest.raises(ToolCallNotCallers):
        await answer(session, turn, ToolResult(tool_call_id="c1", output="x"))


@pytest.mark.parametrize(
    "results",
    [
        [],
        [ToolResult(tool_call_id="c1")],
        [ToolResult(tool_call_id="c1", output="x", error="y")],
        [ToolResult(tool_call_id="c1", output="x"), ToolResult(tool_call_id="c1", output="y")],
    ],
)
async def test_results_that_make_no_sense_are_refused_whole(session, script, results):
    turn = await begin(session, tool_call("weather"), script=script)
    with pytest.raises(InvalidRequest):
        await answer(session, turn, *results)
    assert (await db(load_turn, turn.id, session_id=session.id)).waits_for == turn.waits_for


async def test_of_several_results_all_are_taken_or_none(session, script):
    turn = await begin(session, tool_call("weather"), script=script)
    with pytest.raises(ToolCallNotFoundError):
        await answer(
            session, turn, ToolResult(tool_call_id="c1", output="x"), ToolResult(tool_call_id="c9", output="y")
        )
    assert (await db(load_turn, turn.id, session_id=session.id)).waits_for == turn.waits_for


async def test_a_turn_that_is_interrupted_while_it_waits_ends_at_once(session, script):
    await begin(session, tool_call("weather"), script=script, then=("And on.",))
    cancelled = await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    assert (cancelled.state, cancelled.waits_for) == (TurnState.CANCELLED, ())
    assert cancelled.usage.tokens_output is not None
    part = (await history(session))[1].parts[0].part
    assert part.state is ToolState.ERROR
    with pytest.raises(SessionNotRunning):
        await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    assert (await say(session, "again")).state == TurnState.COMPLETED


async def test_a_late_result_is_kept_with_its_turn_and_enters_no_other(session, script):
    turn = await begin(session, tool_call("weather"), script=script, then=("And on.", "Further."))
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    late = await lifecycle.answer_tools(
        session.id, turn.id, owner_id=session.owner_id, results=[ToolResult(tool_call_id="c1", output="too late rain")]
    )
    assert (late.turn.state, late.is_new) == (TurnState.CANCELLED, False)
    part = (await history(session))[1].parts[0].part
    assert (part.late_output, part.output) == ("too late rain", None)
    model = script("And on.")
    await say(session, "again")
    assert "too late" not in json.dumps(model.requests[0].payload)
    with pytest.raises(ToolCallAnswered):
        await answer(session, turn, ToolResult(tool_call_id="c1", output="again"))


async def test_a_long_result_becomes_a_file_and_its_ends_stay(session, script):
    turn = await begin(session, tool_call("weather"), script=script)
    whole = "begin " + "x" * 500_000 + " end"
    await answer(session, turn, ToolResult(tool_call_id="c1", output=whole))
    shown = (await history(session))[1].parts[0].part.output
    assert "begin " in shown
    assert shown.endswith(" end")
    assert "file_" in shown
    assert len(shown) < len(whole)


async def test_the_turn_survives_the_end_of_its_process(session, script):
    turn = await begin(session, tool_call("weather"), script=script)
    await runner.shutdown()
    assert (await db(load_turn, turn.id, session_id=session.id)).state == TurnState.SUSPENDED
    assert (await answer(session, turn, ToolResult(tool_call_id="c1", output="rain"))).state == TurnState.COMPLETED


async def test_numbers_of_a_turn_that_waited_are_those_of_all_its_calls(session, script):
    turn = await begin(session, tool_call("weather"), script=script)
    after = await answer(session, turn, ToolResult(tool_call_id="c1", output="rain"))
    calls = [event for event in await db(load_events, session.id) if event.type == "message.finalized"]
    assert after.usage.tokens_output == sum(event.data["tokens_output"] for event in calls)
    assert len(calls) == 2


async def test_one_of_two_answers_at_once_is_taken(session, script):
    turn = await begin(session, tool_call("weather"), script=script)
    results = await asyncio.gather(
        *(answer(session, turn, ToolResult(tool_call_id="c1", output=text)) for text in ("rain", "sun")),
        return_exceptions=True,
    )
    assert [type(result) for result in results if isinstance(result, BaseException)] == [ToolCallAnswered]
    assert (await db(load_turn, turn.id, session_id=session.id)).state == TurnState.COMPLETED
