"""Tool calls that a person is asked about: the turn waits in the record, goes on with a yes, and hears a no."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from audit_app.proof.verify import verify_session
from mnesis_core.errors import (
    ApprovalNotPending,
    AtCapacity,
    PartNotFoundError,
    RequestTooLarge,
    SessionBusy,
    SessionNotFoundError,
    SessionNotRunning,
)
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.messages import TextPart, ToolPart, ToolState
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, TurnRecord, TurnState, WaitsFor
from mnesis_core.turns.options import RecordedTurn
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_turn
from tests.support.people.story import begin, ended, history, spoken, tool_call

ERASED: list[str] = []


@tool(needs_approval=True)
def erase(context: ToolContext, what: str) -> str:
    """Erase something."""
    ERASED.append(what)
    return f"erased {what}"


@tool()
def glance(context: ToolContext) -> str:
    """Look, which needs nobody."""
    return "seen"


@pytest.fixture
def session(alice) -> SessionRecord:
    ERASED.clear()
    return lifecycle.create_session(owner=alice, config={"turn": {"tools": ["erase", "glance"]}})


ERASE = Step(tool_calls=(tool_call("erase", what="a"),))


async def asked(session: SessionRecord, **options: object) -> TurnRecord:
    """A turn that waits for an approval."""
    turn = await begin(session, "Go", **options)
    turn = await lifecycle.wait_turn(session.id, turn.id, owner_id=session.owner_id)
    assert turn.state == TurnState.SUSPENDED
    return turn


async def decide(session: SessionRecord, part_id: str, approved: bool, note: str = "") -> TurnRecord:
    turn = await lifecycle.decide_approval(session.id, part_id, owner_id=session.owner_id, approved=approved, note=note)
    return await ended(turn)


async def tools(session: SessionRecord, message: int = 1) -> list[ToolPart]:
    return [part.part for part in (await history(session))[message].parts if isinstance(part.part, ToolPart)]


async def test_a_yes_runs_the_call_and_the_turn_goes_on(session, script):
    model = script(ERASE, "It is gone.")
    turn = await asked(session)
    [waiting] = turn.waits_for
    assert (waiting.tool_name, waiting.reason, ERASED) == ("erase", WaitsFor.APPROVAL, [])
    after = await decide(session, waiting.part_id, approved=True, note="go ahead")
    assert (after.state, ERASED) == (TurnState.COMPLETED, ["a"])
    [part] = await tools(session)
    assert (part.state, part.output, part.decision_note) == (ToolState.COMPLETED, "erased a", "go ahead")
    assert "go ahead" not in json.dumps(model.requests[1].payload)
    events = await db(load_events, session.id)
    [decided] = [event.data for event in events if event.type == "approval.decided"]
    assert (decided["part_id"], decided["approved"]) == (waiting.part_id, True)
    assert "go ahead" not in json.dumps([event.data for event in events])


async def test_a_no_is_the_calls_result_and_the_model_hears_why(session, script):
    model = script(ERASE, "Then not.")
    turn = await asked(session)
    after = await decide(session, turn.waits_for[0].part_id, approved=False, note="that is mine")
    assert (after.state, ERASED) == (TurnState.COMPLETED, [])
    [part] = await tools(session)
    assert part.state is ToolState.ERROR
    assert "refused" in part.error
    assert "that is mine" in json.dumps(model.requests[1].payload)
    assert spoken((await history(session))[-1]) == "Then not."


async def test_what_needs_nobody_has_run_before_and_each_call_is_decided_by_itself(session, script):
    script(
        Step(
            tool_calls=(
                tool_call("erase", "c1", what="a"),
                tool_call("glance", "c2"),
                tool_call("erase", "c3", what="b"),
            )
        ),
        "Done.",
    )
    turn = await asked(session)
    assert [part.state for part in await tools(session)] == [
        ToolState.PENDING,
        ToolState.COMPLETED,
        ToolState.PENDING,
    ]
    first, second = (waiting.part_id for waiting in turn.waits_for)
    half = await lifecycle.decide_approval(session.id, first, owner_id=session.owner_id, approved=True)
    assert (half.state, [waiting.part_id for waiting in half.waits_for]) == (TurnState.SUSPENDED, [second])
    assert (await tools(session))[0].state is ToolState.APPROVED
    assert ERASED == []
    assert (await decide(session, second, approved=False)).state == TurnState.COMPLETED
    assert ERASED == ["a"]


async def test_the_session_may_ask_before_tools_that_do_not_ask_by_themselves(alice, script):
    config = {"turn": {"tools": ["glance"], "ask_before": ["glance"]}}
    session = await db(lifecycle.create_session, owner=alice, config=config)
    script(Step(tool_calls=(tool_call("glance"),)), "Seen.")
    turn = await asked(session)
    assert (await decide(session, turn.waits_for[0].part_id, approved=True)).state == TurnState.COMPLETED


async def test_of_two_decisions_at_once_one_is_taken(session, script):
    script(ERASE, "Done.")
    turn = await asked(session)
    part_id = turn.waits_for[0].part_id
    results = await asyncio.gather(
        *(decide(session, part_id, approved) for approved in (True, False, True, False)), return_exceptions=True
    )
    won = [result for result in results if not isinstance(result, BaseException)]
    assert [turn.state for turn in won] == [TurnState.COMPLETED]
    assert {type(result) for result in results if isinstance(result, BaseException)} == {ApprovalNotPending}
    events = [event.type for event in await db(load_events, session.id)]
    assert (events.count("approval.decided"), events.count("turn.resumed")) == (1, 1)
    assert len(ERASED) <= 1


async def test_two_calls_decided_at_once_resume_the_turn_once(session, script):
    script(Step(tool_calls=(tool_call("erase", "c1", what="a"), tool_call("erase", "c2", what="b"))), "Done.")
    turn = await asked(session)
    await asyncio.gather(*(decide(session, waiting.part_id, approved=True) for waiting in turn.waits_for))
    assert (await ended(turn)).state == TurnState.COMPLETED
    assert sorted(ERASED) == ["a", "b"]


async def test_the_wait_survives_the_end_of_every_process(session, script):
    script(ERASE, "Done.")
    turn = await asked(session)
    await runner.shutdown()
    # As a server does that begins anew: nothing of the turn is known but its rows.
    assert (await db(load_session, session.id)).state == "suspended"
    again = await db(load_turn, turn.id, session_id=session.id)
    assert again.waits_for == turn.waits_for
    assert (await decide(session, again.waits_for[0].part_id, approved=True)).state == TurnState.COMPLETED


async def test_a_turn_ends_while_it_waits_and_no_decision_comes_after(session, script):
    script(ERASE)
    turn = await asked(session)
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    with pytest.raises(ApprovalNotPending):
        await decide(session, turn.waits_for[0].part_id, approved=True)
    assert ERASED == []


@pytest.mark.parametrize("part_id", ["part_nosuch", "", "\x00", "\ud800", "'; --", "x" * 5_000])
async def test_an_id_that_is_no_tool_call_is_not_found(session, script, part_id):
    script(ERASE)
    await asked(session)
    with pytest.raises(PartNotFoundError):
        await decide(session, part_id, approved=True)


async def test_nobody_else_may_decide(session, bob, script):
    script(ERASE)
    turn = await asked(session)
    with pytest.raises(SessionNotFoundError):
        await lifecycle.decide_approval(session.id, turn.waits_for[0].part_id, owner_id=bob.pk, approved=True)


async def test_the_callers_calls_are_not_for_a_person_to_decide(session, script):
    script(Step(tool_calls=(tool_call("weather"),)))
    turn = await asked(session, tools=[ToolSpec(name="weather", description="", parameters={})])
    with pytest.raises(ApprovalNotPending):
        await decide(session, turn.waits_for[0].part_id, approved=True)


async def test_a_note_has_a_longest(session, script):
    script(ERASE)
    turn = await asked(session)
    with pytest.raises(RequestTooLarge):
        await decide(session, turn.waits_for[0].part_id, approved=True, note="x" * 2_001)


async def test_a_server_that_is_full_takes_no_decision(session, script, monkeypatch):
    script(ERASE, "Done.")
    turn = await asked(session)
    monkeypatch.setattr(runner, "_permits", Counter({None: site_config().turn.capacity}))
    with pytest.raises(AtCapacity):
        await decide(session, turn.waits_for[0].part_id, approved=True)
    monkeypatch.undo()
    assert (await decide(session, turn.waits_for[0].part_id, approved=True)).state == TurnState.COMPLETED


async def test_an_interrupt_and_a_decision_at_once_leave_one_end(session, script):
    script(ERASE, "Done.")
    turn = await asked(session)
    results = await asyncio.gather(
        decide(session, turn.waits_for[0].part_id, approved=True),
        db(lifecycle.interrupt, session.id, owner_id=session.owner_id),
        return_exceptions=True,
    )
    unexpected = [result for result in results if isinstance(result, BaseException)]
    assert all(isinstance(error, ApprovalNotPending | SessionNotRunning) for error in unexpected)
    after = await ended(turn)
    assert after.state in (TurnState.COMPLETED, TurnState.CANCELLED)
    assert (await db(load_session, session.id)).running_turn_id is None
    assert (await db(verify_session, session.id)).problems == []


async def test_what_else_is_done_with_a_session_that_waits(session, alice, script):
    script(ERASE)
    await asked(session)
    with pytest.raises(SessionBusy) as busy:
        await db(lifecycle.delete_session, session.id, owner_id=alice.pk)
    assert busy.value.details["state"] == "suspended"
    said = RecordedTurn(user=(TextPart(text="a"),), assistant=(TextPart(text="b"),))
    with pytest.raises(SessionBusy):
        await db(lifecycle.record_turn, session.id, owner_id=alice.pk, turn=said)
    last = (await history(session))[-1].id
    fork = await db(lifecycle.fork_session, session.id, owner=alice, at_message_id=last)
    assert (await tools(fork))[0].state is ToolState.ERROR
    assert (await db(verify_session, session.id)).problems == []


async def test_an_archived_session_lets_a_turn_that_waits_come_to_its_end(session, script):
    script(ERASE, "Done.")
    turn = await asked(session)
    await db(lifecycle.archive_session, session.id, owner_id=session.owner_id)
    assert (await decide(session, turn.waits_for[0].part_id, approved=True)).state == TurnState.COMPLETED
    assert (await db(load_session, session.id)).state == "archived"


async def test_a_turn_may_wait_more_than_once(session, script):
    model = script(ERASE, Step(tool_calls=(tool_call("erase", "c1", what="b"),)), "Done.")
    turn = await asked(session)
    again = await decide(session, turn.waits_for[0].part_id, approved=True)
    assert again.state == TurnState.SUSPENDED
    after = await decide(session, again.waits_for[0].part_id, approved=True)
    assert (after.state, ERASED) == (TurnState.COMPLETED, ["a", "b"])
    assert len(model.requests) == 3
    calls = [event.data for event in await db(load_events, session.id) if event.type == "message.finalized"]
    assert after.usage.tokens_output == sum(data["tokens_output"] for data in calls)


async def test_the_same_call_again_and_again_is_noticed_over_waits(session, script):
    script(ERASE, ERASE, ERASE, "I stop.")
    turn = await asked(session)
    turn = await decide(session, turn.waits_for[0].part_id, approved=False)
    turn = await decide(session, turn.waits_for[0].part_id, approved=False)
    assert turn.state == TurnState.COMPLETED
    assert "several times in a row" in (await tools(session, 3))[0].error
