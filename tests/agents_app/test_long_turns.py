"""A turn of many steps is summarised while it runs: by a worker between two steps, or by the turn where a call does not fit."""

from __future__ import annotations

import pytest

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from compaction_app.compact import compact
from compaction_app.context import load_state, rebuild_payload
from compaction_app.queries import cover, list_runs, list_summaries, live_run
from mnesis_core.llm.interface import Request, ToolCall
from mnesis_core.providers.scripted import Script
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.test_compaction import is_summary_request
from tests.support.story import history, say

pytestmark = pytest.mark.both_databases
TASK = "Read every ledger of the harbour and name the one that is missing."


def reader(steps: int, tool: str = "ledger") -> object:
    """A model that reads so many ledgers, one a step, and then answers; and writes summaries."""
    made = iter(range(1, steps + 1))

    def reply(request: Request) -> Script:
        if is_summary_request(request):
            return "## Goal\nRead the ledgers.\n## Done\nLedgers were read; none of these was missing."
        number = next(made, None)
        if number is None:
            return "Ledger 12 is missing."
        return ToolCall(id=f"call_{number}", name=tool, arguments=f'{{"number": {number}}}')

    return reply


@tool()
def ledger(context: ToolContext, number: int) -> str:
    """Read a ledger."""
    return f"Ledger {number}: " + "forty crates of tea came in with the tide and were counted twice. " * 12


@tool()
def slow_ledger(context: ToolContext, number: int) -> str:
    """Read a ledger while a worker does what is queued."""
    if run_id := live_run(context.session_id):
        compact(run_id=run_id)
    return ledger(context, number)


async def long_session(alice, **config: object) -> SessionRecord:
    config = {"context_window": 12_000, "turn": {"tools": ["ledger"], "doom_loop_threshold": 10}} | config
    return await db(lifecycle.create_session, owner=alice, config=config)


def prompts(requests: list[Request]) -> list[str]:
    return [str(request.payload["messages"]) for request in requests if not is_summary_request(request)]


async def test_a_turn_that_does_not_fit_is_summarised_by_itself_and_goes_on(alice, script) -> None:
    model = script(reader(90))
    session = await long_session(alice)
    turn = await say(session, TASK)
    assert (turn.state, turn.error_code) == (TurnState.COMPLETED, None)
    sent = prompts(model.requests)
    assert len(sent) == 91
    assert all(TASK in prompt for prompt in sent)
    assert all(f"Ledger {number - 1}:" in prompt for number, prompt in enumerate(sent, start=1) if number > 1)
    runs = await db(list_runs, session.id)
    assert [run.trigger for run in runs if run.state == "completed"]
    assert {summary.kind for summary in await db(list_summaries, session.id)} >= {"leaf"}
    assert (await db(cover, session.id)).ok
    state = await db(load_state, session.id)
    shares = [
        call.estimated_tokens / state.budget.usable
        for call in await db(list_calls, session.id, limit=200)
        if call.purpose == "turn"
    ]
    first_full = max(index for index, share in enumerate(shares) if share > 0.9)
    assert min(shares[:first_full]) >= 0.5
    for call in await db(list_calls, session.id, limit=200):
        assert (await db(rebuild_payload, call)).digest_matches


async def test_the_next_turn_sees_the_newest_steps_of_the_one_before(alice, script) -> None:
    model = script(reader(40))
    session = await long_session(alice)
    await say(session, TASK)
    await say(session, "And which was the last that you read?")
    last = prompts(model.requests)[-1]
    assert all(f"Ledger {number}:" in last for number in range(35, 41))
    assert TASK in last
    state = await db(load_state, session.id)
    assert state.assemble().used_tokens >= 0.5 * state.budget.usable
    assert len(await history(session)) == 44


async def test_a_worker_summarises_while_the_turn_goes_on(alice, script) -> None:
    model = script(reader(60, tool="slow_ledger"))
    session = await long_session(alice, turn={"tools": ["slow_ledger"], "doom_loop_threshold": 10})
    turn = await say(session, TASK)
    assert turn.state == TurnState.COMPLETED
    runs = await db(list_runs, session.id)
    assert {run.trigger for run in runs} == {"soft"}
    assert len([run for run in runs if run.state == "completed"]) >= 2
    assert all(TASK in prompt for prompt in prompts(model.requests))
    assert (await db(cover, session.id)).ok
