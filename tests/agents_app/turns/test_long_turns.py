"""A turn of many steps is summarised while it runs: by a worker between two steps, or by the turn where a call does not fit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from compaction_app.compact import compact, compact_now
from compaction_app.context.manifests import load_manifest
from compaction_app.context.refills import find_refill, load_refill
from compaction_app.context.retrieval import size_of_prompt
from compaction_app.context.state import ContextState, load_frame, load_meter, load_state, rebuild_payload
from compaction_app.queries import cover, list_runs, list_summaries, live_run
from mnesis_core.context.additions import Refill
from mnesis_core.context.manifests import rows_beside
from mnesis_core.llm.interface import Request, ToolCall
from mnesis_core.messages import Message, TextPart
from mnesis_core.providers.scripted import Script
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.test_compaction import is_summary_request
from tests.support.people.story import history, say

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@tool()
def archive(context: ToolContext, number: int) -> str:
    """Read a page of an archive, of which every twentieth is longer than half of the window."""
    if run_id := live_run(context.session_id):
        compact(run_id=run_id)
    return f"Page {number}: " + "The harbour master wrote down what came in. " * (700 if number % 20 == 8 else 40)


async def archive_session(alice) -> SessionRecord:
    return await long_session(alice, turn={"tools": ["archive"], "doom_loop_threshold": 10})


async def shares_of(session: SessionRecord) -> list[tuple[float, bool]]:
    """What each call of a turn took of usable, and whether anything had been summarised."""
    state = await db(load_state, session.id)
    calls = [call for call in await db(list_calls, session.id, limit=200) if call.purpose == "turn"]
    found = []
    for call in calls[::-1]:
        assert (await db(rebuild_payload, call)).digest_matches
        rows = await db(load_manifest, call)
        found.append((call.estimated_tokens / state.budget.usable, any(row["kind"] == "summary" for row in rows)))
    return found


@pytest.mark.slow
async def test_when_a_step_of_half_a_window_leaves_its_ends_and_what_is_newer_fill_the_prompt(alice, script) -> None:
    model = script(reader(40, tool="archive"))
    session = await archive_session(alice)
    turn = await say(session, TASK)
    assert turn.state == TurnState.COMPLETED
    shares = await shares_of(session)
    compacted = [share for share, is_compacted in shares if is_compacted]
    assert len(compacted) > 10
    assert min(compacted) >= 0.5
    runs = await db(list_runs, session.id)
    assert {run.outcome for run in runs if run.state == "completed"} <= {"target_met", "fits"}
    assert all(TASK in prompt for prompt in prompts(model.requests))
    assert (await db(cover, session.id)).ok


@pytest.mark.slow
async def test_nothing_is_shown_again_once_a_person_has_compacted(alice, script) -> None:
    script(reader(14, tool="archive"))
    session = await archive_session(alice)
    await say(session, TASK)
    before = await db(load_state, session.id)
    await db(compact_now, session.id)
    after = await db(load_state, session.id)
    assert before.refill_room
    assert (after.refill_room, after.refill) == (0, [])
    assert await db(find_again, after) is None
    at = await db(load_state, session.id, at=before.context_seq)
    assert (at.refill_room, at.refill) == (before.refill_room, before.refill)


def find_again(state: ContextState) -> Refill | None:
    """What an automatic compaction would decide now."""
    budget, ratio = state.budget, state.calibration.ratio
    return find_refill(state.session.id, state.entries, used=0, budget=budget, calibration=ratio, path=None)


@pytest.mark.slow
async def test_a_refill_is_read_with_two_queries_and_stays_the_same_for_some_calls(alice, script) -> None:
    script(reader(17, tool="archive"))
    session = await archive_session(alice)
    await say(session, TASK)
    state = await db(load_state, session.id)

    def read() -> int:
        with CaptureQueriesContext(connection) as captured:
            load_refill(session.id, state.entries, branch=0, at=state.context_seq, path=None)
        return len(captured)

    assert await db(read) == 2
    calls = [call for call in (await db(list_calls, session.id, limit=200))[::-1] if call.purpose == "turn"]
    shown = [rows_beside(call.manifest) for call in calls]
    refilled = [rows for rows in shown if len(rows) > 1]
    assert any(rows == following for rows, following in pairwise(refilled))


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("steps", [9, 11, 14, 17])
async def test_what_is_said_before_a_call_of_its_size_is_what_the_call_takes(alice, script, steps) -> None:
    script(reader(steps, tool="archive"))
    session = await archive_session(alice)
    await say(session, TASK)
    question = "Which page of the archive has the harbour master's own words?"
    meter, state = await db(load_meter, session.id), await db(load_state, session.id)
    sent = await db(state.build, state.assemble().tools)
    assert meter.used_tokens == sent.assembled.used_tokens + state.tool_tokens
    assert bool(state.refill) == (steps > 12)
    assert (meter.used_tokens > meter.context_tokens) == bool(state.refill)
    assert sum(meter.breakdown.values()) == pytest.approx(meter.usable_tokens, abs=3)
    said = Message(role="user", parts=(TextPart(text=question),))
    before = await db(size_of_prompt, await db(load_frame, session.id), said)
    await say(session, question)
    [*_, earlier, call] = [call for call in (await db(list_calls, session.id))[::-1] if call.purpose == "turn"]
    assert earlier.message_id != call.message_id
    ratio = call.parameters["calibration"]["ratio"]
    assert before == pytest.approx(call.estimated_tokens * ratio, abs=5)
