"""A turn at the hard threshold, with a worker that is away, asleep or slow: it waits as long as it may, and is answered."""

from __future__ import annotations

import threading

import pytest

from compaction_app.compact import claim, compact_now, request_manual
from compaction_app.context.state import load_meter
from compaction_app.queries import list_runs
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import Script, ScriptedModel
from mnesis_core.records import RunRecord, SessionRecord, TurnRecord
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import change
from tests.compaction_app.test_compaction import add_turns, is_summary_request, model_of
from tests.support.people.story import history, say, spoken
from tests.support.processes.attempts import SUMMARY, elsewhere, is_whole, lose_lease
from tests.support.sites.site import wait_until
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.both_databases


@pytest.fixture
def full(session: SessionRecord) -> SessionRecord:
    """A session whose context does not fit."""
    add_turns(session, 60)
    meter = load_meter(session.id)
    assert meter.used_tokens > meter.hard_tokens
    return session


@pytest.fixture
def impatient(full: SessionRecord) -> SessionRecord:
    """Its turns wait only for a moment."""
    with change(full.id) as record:
        session_store.update_session(record, config={"compaction": {"wait_seconds": 0.3}})
    return full


async def answered(session: SessionRecord, model: ScriptedModel) -> TurnRecord:
    """A turn that gets its answer to its own question, whatever is in the context besides."""
    turn = await say(session, "Where are the ledgers?")
    assert (turn.state, spoken((await history(session))[-1])) == ("completed", "Here it is.")
    asked = [request for request in model.requests if not is_summary_request(request)]
    assert "Where are the ledgers?" in asked[-1].payload["messages"][-1]["content"]
    return turn


async def only_run(session: SessionRecord) -> RunRecord:
    [run] = await db(list_runs, session.id)
    return run


async def test_a_worker_that_sleeps_over_a_run_is_waited_for_and_then_the_turn_goes_on(impatient, script):
    model = script(model_of(SUMMARY, "Here it is."))
    run_id = await db(request_manual, impatient.id)
    assert await db(claim, impatient.id, run_id)
    await answered(impatient, model)
    run = await only_run(impatient)
    assert (run.state, run.attempts, len(model.requests)) == ("running", 1, 1)


async def test_a_worker_that_died_over_a_run_is_replaced_by_the_turn_that_needs_it(full, script):
    model = script(model_of(SUMMARY, "Here it is."))
    run_id = await db(request_manual, full.id)
    assert await db(claim, full.id, run_id)
    await db(lose_lease, run_id)
    await answered(full, model)
    run = await only_run(full)
    assert (run.state, run.attempts) == ("completed", 2)
    assert await db(is_whole, full)


@pytest.mark.slow
async def test_a_slow_summary_does_not_hold_a_turn_up_and_is_used_when_it_comes(impatient, script):
    may_come = threading.Event()

    def reply(request: Request) -> Script:
        if not is_summary_request(request):
            return "Here it is."
        assert may_come.wait(PATIENCE_SECONDS)
        return SUMMARY

    model = script(reply)
    await answered(impatient, model)
    assert (await only_run(impatient)).state == "running"
    may_come.set()
    await db(wait_until, lambda: list_runs(impatient.id)[0].state == "completed")
    assert (await only_run(impatient)).summary_ids
    assert await db(is_whole, impatient)


def test_who_waits_for_a_compaction_gets_its_end_though_another_process_is_at_it(session, script):
    script(model_of(SUMMARY))
    add_turns(session, 8)
    run_id = request_manual(session.id)
    assert claim(session.id, run_id)
    dies = threading.Timer(0.3, elsewhere, [lambda: lose_lease(run_id)])
    dies.start()
    run = compact_now(session.id)
    dies.join()
    assert (run.id, run.state, run.attempts) == (run_id, "completed", 2)
