"""Around a wait: what comes just before it, who waits for it elsewhere, and room for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from dataclasses import replace

import pytest

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle, transactions
from agents_app.turns.claim import ToolResult, claim_turn
from agents_app.turns.runner import runner
from agents_app.turns.transactions import TurnEnd
from mnesis_core.errors import AtCapacity, Conflict, SessionNotFoundError, TurnNotFoundError
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.messages import Message, ToolPart
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnRecord, TurnState, UsageRecord
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.record import message_queries, message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.turn_queries import load_turn
from tests.support.people.story import begin, ended, history, part_when, say, tool_call

pytestmark = pytest.mark.both_databases

WEATHER = ToolSpec(name="weather", description="The weather of a town.", parameters={"type": "object"})


ANSWERED = threading.Event()


@tool()
def dawdle(context: ToolContext) -> str:
    """Take until the other call is answered."""
    ANSWERED.wait(60)
    return "here at last"


@pytest.fixture
def claimed(session) -> TurnRecord:
    """A turn that runs in no process of this test, with a tool call that has no answer."""
    turn = claim_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key=None, lease_owner="x").turn
    with change(session.id) as record:
        message = Message(role="assistant", parts=(ToolPart(tool_name="weather", tool_call_id="c1"),))
        message_store.append_message(record, turn_id=turn.id, message=message)
    return load_turn(turn.id, session_id=session.id)


def test_a_turn_that_is_to_be_interrupted_does_not_go_to_wait(session, claimed):
    lifecycle.interrupt(session.id, owner_id=session.owner_id)
    assert transactions.suspend_turn(claimed) is TurnState.CANCELLED
    assert load_turn(claimed.id, session_id=session.id).state == TurnState.RUNNING


def test_a_turn_does_not_wait_for_what_came_meanwhile(session, claimed):
    with change(session.id) as record:
        part_id = message_queries.unanswered_tools(claimed.id)[0]
        message_store.finish_tool(record, part_id, output="rain", error=None)
    assert transactions.suspend_turn(claimed) is TurnState.RUNNING


def test_a_process_that_lost_its_turn_writes_no_result(session, claimed):
    [part_id] = message_queries.unanswered_tools(claimed.id)
    lost, result = replace(claimed, fence=claimed.fence - 1), {"text": "rain", "is_error": False, "inline": 100}
    with pytest.raises(Conflict):
        transactions.finish_tool(lost, part_id, owner_id=session.owner_id, **result)
    assert list(message_queries.unanswered_tools(claimed.id)) == [part_id]
    transactions.finish_tool(claimed, part_id, owner_id=session.owner_id, **result)
    assert not message_queries.unanswered_tools(claimed.id)


def test_a_turn_that_waits_has_no_lease_and_is_never_recovered(session, claimed):
    assert transactions.suspend_turn(claimed) is TurnState.SUSPENDED
    turn = load_turn(claimed.id, session_id=session.id)
    assert [waiting.tool_call_id for waiting in turn.waits_for] == ["c1"]
    with pytest.raises(Conflict):
        transactions.finish_turn(claimed, TurnEnd(state=TurnState.COMPLETED), step=None, usage=UsageRecord())


def test_who_ran_a_turn_before_it_waited_writes_nothing_after_it_goes_on(session, claimed):
    transactions.suspend_turn(claimed)
    with change(session.id) as record:
        turn_store.resume_turn(record, claimed.id, fence=claimed.fence, lease_owner="other", lease_seconds=60)
    with pytest.raises(Conflict), transactions.held(claimed):
        pass
    assert load_turn(claimed.id, session_id=session.id).fence == claimed.fence + 1


async def test_a_result_may_come_before_the_turn_waits_for_it(alice, script):
    ANSWERED.clear()
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["dawdle"]}})
    calls = (tool_call("dawdle"), tool_call("weather", "c2"))
    model = script(Step(tool_calls=calls), "Both.")
    turn = await begin(session, "Go", tools=(WEATHER,))
    await part_when(session, lambda part: part)
    await lifecycle.answer_tools(
        session.id, turn.id, owner_id=alice.pk, results=[ToolResult(tool_call_id="c2", output="rain")]
    )
    ANSWERED.set()
    assert (await ended(turn)).state == TurnState.COMPLETED
    shown = json.dumps(model.requests[1].payload)
    assert "rain" in shown
    assert "here at last" in shown
    assert "turn.suspended" not in [event.type for event in await db(load_events, session.id)]


async def test_whoever_waits_hears_of_the_end_wherever_it_is_written(session, claimed):
    waiting = asyncio.create_task(lifecycle.wait_turn(session.id, claimed.id, owner_id=session.owner_id))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await db(transactions.finish_turn, claimed, TurnEnd(state=TurnState.COMPLETED), step=None, usage=UsageRecord())
    async with asyncio.timeout(60):
        assert (await waiting).state == TurnState.COMPLETED


async def test_nobody_waits_for_what_is_not_theirs(session, bob, claimed):
    with pytest.raises(SessionNotFoundError):
        await lifecycle.wait_turn(session.id, claimed.id, owner_id=bob.pk)
    for unknown in ("turn_nosuch", "", "\x00", "\ud800"):
        with pytest.raises(TurnNotFoundError):
            await lifecycle.wait_turn(session.id, unknown, owner_id=session.owner_id)


async def test_of_many_that_start_at_once_only_those_run_that_there_is_room_for(alice, script, monkeypatch):
    gate = asyncio.Event()
    script(lambda request: Step(text="x", gate=gate))
    sessions = [await db(lifecycle.create_session, owner=alice) for _ in range(6)]
    monkeypatch.setattr(runner, "_permits", Counter({None: site_config().turn.capacity - 2}))
    results = await asyncio.gather(
        *(lifecycle.start_turn(session.id, owner_id=alice.pk, message="Go") for session in sessions),
        return_exceptions=True,
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert [type(error) for error in refused] == [AtCapacity] * 4
    gate.set()
    for result in results:
        if not isinstance(result, BaseException):
            assert (await ended(result.turn)).state == TurnState.COMPLETED
    left = await asyncio.gather(*(history(session) for session in sessions))
    assert sorted(len(messages) for messages in left) == [0, 0, 0, 0, 2, 2]


async def test_a_plain_turn_keeps_no_options(session, script):
    script("Hello.")
    assert (await say(session, "Hi")).options == ""
