"""Questions that a model asks a person: the turn waits in the record, and the answers are the call's result."""

from __future__ import annotations

import json

import pytest

from agents_app.tools.registry import offered_tools, permitted_tools
from agents_app.turns import lifecycle
from agents_app.turns.claim import ToolResult
from mnesis_core.config import TurnConfig
from mnesis_core.errors import InvalidRequest, RequestTooLarge, ToolCallAnswered, ToolCallNotFoundError
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.messages import ToolPart, ToolState
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, TurnRecord, TurnState, WaitsFor
from mnesis_core.turns.options import TurnOptions
from mnesis_core.turns.questions import ASK_USER, NO_ANSWER
from sessions_app.database.threads import db
from sessions_app.record.turn_queries import load_turn, reasons_to_wait
from tests.support.people.story import ended, history, spoken, tool_call

WHERE = {"question": "Where to?", "options": ["Lyon", "Bergen"]}
WHAT = {"question": "What do you like?", "options": ["sea", "snow"], "several": True}
ASKS = Step(tool_calls=(tool_call(ASK_USER, questions=[WHERE, WHAT]),))


@pytest.fixture
def session(alice) -> SessionRecord:
    return lifecycle.create_session(owner=alice, config={"turn": {"tools": [ASK_USER]}})


async def asked(session: SessionRecord, options: TurnOptions | None = None) -> TurnRecord:
    started = await lifecycle.start_turn(
        session.id, owner_id=session.owner_id, message="Plan it.", options=options or TurnOptions()
    )
    return await lifecycle.wait_turn(session.id, started.turn.id, owner_id=session.owner_id)


async def answer(session: SessionRecord, turn: TurnRecord, answers: list[list[str]], **said: str) -> TurnRecord:
    result = ToolResult(tool_call_id=said.pop("call", "c1"), answers=answers, **said)
    answered = await lifecycle.answer_tools(session.id, turn.id, owner_id=session.owner_id, results=[result])
    return await ended(answered.turn)


async def the_call(session: SessionRecord) -> ToolPart:
    [part] = [part.part for part in (await history(session))[1].parts if isinstance(part.part, ToolPart)]
    return part


@pytest.mark.both_databases
async def test_the_turn_waits_for_a_person_and_goes_on_with_the_answers(session, script):
    model = script(ASKS, "Pack a coat.")
    turn = await asked(session)
    [waiting] = turn.waits_for
    assert (turn.state, waiting.tool_name, waiting.reason) == (TurnState.SUSPENDED, ASK_USER, WaitsFor.ANSWER)
    assert await db(reasons_to_wait, [turn.id]) == {turn.id: WaitsFor.ANSWER}
    after = await answer(session, turn, [["Bergen"], ["sea", "snow", "and\nquiet"]])
    assert after.state == TurnState.COMPLETED
    part = await the_call(session)
    assert part.state is ToolState.COMPLETED
    assert part.output == "Where to?\n> Bergen\n\nWhat do you like?\n> sea\n> snow\n> and\n> quiet"
    assert json.dumps(part.output)[1:-1] in json.dumps(model.requests[1].payload)
    assert spoken((await history(session))[-1]) == "Pack a coat."
    with pytest.raises(ToolCallAnswered):
        await answer(session, turn, [["Lyon"], []])


async def test_questions_may_be_left_out_one_or_all(session, script):
    script(ASKS, "So be it.", ASKS, "Then I choose.")
    await answer(session, await asked(session), [[], ["snow"]])
    assert (await the_call(session)).output == "Where to?\n> (no answer)\n\nWhat do you like?\n> snow"
    turn = await asked(session)
    await answer(session, turn, [["  "], []])
    parts = [stored.part for message in await history(session) for stored in message.parts]
    assert [part.output for part in parts if isinstance(part, ToolPart)][1] == NO_ANSWER


async def test_answers_that_do_not_fit_change_nothing(session, script):
    script(ASKS, "Fine.")
    turn = await asked(session)
    for answers, said in (
        ([["Lyon"]], "answers has 1 entries for 2 questions"),
        ([["Lyon", "Bergen"], []], "choose one option for “Where to"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            await answer(session, turn, answers)
    with pytest.raises(InvalidRequest, match="either its output or its error"):
        await answer(session, turn, [["Lyon"], []], error="no")
    with pytest.raises(ToolCallNotFoundError):
        await answer(session, turn, [["Lyon"], []], call="c9")
    with pytest.raises(RequestTooLarge):
        await answer(session, turn, [["x" * 5_000_000], []])
    assert (await db(load_turn, turn.id, session_id=session.id)).state == TurnState.SUSPENDED
    assert (await answer(session, turn, [["\x00 \ud800"], []])).state == TurnState.COMPLETED
    assert "\x00 \ud800" in ((await the_call(session)).output or "")


async def test_a_call_whose_questions_are_not_valid_fails_at_once(session, script):
    model = script(Step(tool_calls=(tool_call(ASK_USER, questions=[]),)), "Never mind.")
    assert (await asked(session)).state == TurnState.COMPLETED
    assert (await the_call(session)).state is ToolState.ERROR
    assert "the arguments do not fit" in json.dumps(model.requests[1].payload)


async def test_a_tool_of_the_callers_with_the_same_name_is_the_callers(session, script):
    script(ASKS, "Fine.")
    own = ToolSpec(name=ASK_USER, description="Ask.", parameters={"type": "object"})
    [waiting] = (await asked(session, TurnOptions(tools=(own,)))).waits_for
    assert waiting.reason is WaitsFor.CALLER


async def test_where_no_person_can_be_asked_the_tool_is_not_offered(session):
    offered = await db(offered_tools, [ASK_USER], user_id=session.owner_id)
    assert [*permitted_tools(offered, TurnConfig(read_only=True))] == [ASK_USER]
    assert permitted_tools(offered, TurnConfig(unattended=True)) == {}
