"""Runs that sub-agents of runs ask for: they come to their ends also where everything is scarce, and end together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agents_app import store
from agents_app.maps.service import MapRequest
from agents_app.maps.service import start as begin_run
from agents_app.maps.worker import work_for_a_slice
from agents_app.queries import list_items, list_runs, load_run
from agents_app.turns import lifecycle
from agents_app.turns.claim import claim_turn
from agents_app.turns.overview import used_by
from audit_app.proof.verify import verify_session
from mnesis_core.config import Config, override
from mnesis_core.llm.interface import Request
from mnesis_core.maps.values import ItemState, OperatorKind, RunState, StopReason
from mnesis_core.providers.scripted import Script as Said
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import SessionRecord
from mnesis_core.spending import TurnLimits
from mnesis_core.turns.options import TurnOptions
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_launched
from sessions_app.record.turn_queries import list_turns
from tests.agents_app.maps.test_runs_in_a_worker import until, working
from tests.support.people.story import alice, begin, ended, script, tool_call
from tests.support.record.maps import output_of, start, worked

pytestmark = pytest.mark.both_databases

__all__ = ["alice", "script"]

Script = Callable[..., ScriptedModel]


@pytest.fixture
def session(alice: Any) -> SessionRecord:
    return lifecycle.create_session(owner=alice, config={"turn": {"tools": ["llm_map", "agentic_map"]}})


def scarce(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """A site with other settings of operators."""
    config = override(Config(), {"operators": values, "turn": {"retry_base_seconds": 0.005}})
    for module in ("worker", "service", "llm_map"):
        monkeypatch.setattr(f"agents_app.maps.{module}.site_config", lambda: config)


def nests(tool: str, inner: Said = "inner") -> Callable[[Request], Said]:
    """A model whose sub-agents ask for a run over two items, and answer when they have its results."""

    def reply(request: Request) -> Said:
        message = request.payload["messages"][-1]
        if message["role"] == "tool":
            return f"outer {'completed' in message['content']}"
        if not str(message["content"]).startswith("Say"):
            return inner
        return tool_call(tool, prompt_template="Inner {{ item }}", items=[1, 2], wait_seconds=600)

    return reply


def outer(session: SessionRecord, items: int, **spec: Any) -> str:
    return start(session, items, kind=OperatorKind.AGENTIC, read_only=False, **spec)


def inner_runs(session: SessionRecord, outer_id: str) -> list[Any]:
    return [run for run in list_runs(owner_id=session.owner_id) if run.id != outer_id]


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["llm_map", "agentic_map"])
@pytest.mark.parametrize("limit", ["per_owner", "per_model", "per_provider"])
def test_who_waits_for_a_run_keeps_nothing_from_it(tool, limit, session, script, monkeypatch):
    scarce(monkeypatch, **{limit: 2}, heartbeat_seconds=0.05)
    script(nests(tool))
    run = worked(outer(session, 2))
    assert [line["output"] for line in output_of(run)] == ["outer True"] * 2
    found = inner_runs(session, run.id)
    assert [(one.state, one.counts.completed) for one in found] == [(RunState.COMPLETED, 2)] * 2
    assert {one.session_id for one in found} == {item.child_session_id for item in list_items(run.id)}
    for one in (run, *found):
        assert verify_session(one.session_id).problems == []


@pytest.mark.slow
def test_a_worker_that_is_to_stop_still_does_what_its_own_sub_agents_wait_for(session, script, monkeypatch):
    scarce(monkeypatch, slice_seconds=0.01, heartbeat_seconds=0.05)
    monkeypatch.setattr("agents_app.maps.worker.must_make_room", lambda: True)
    script(nests("llm_map"))
    run_id = outer(session, 3, concurrency=1)
    slices = 1
    while work_for_a_slice():
        slices += 1
    assert slices > 1
    assert [line["output"] for line in output_of(load_run(run_id))] == ["outer True"] * 3


@pytest.mark.slow
def test_what_its_sub_agents_have_done_counts_for_a_run(session, script, monkeypatch):
    scarce(monkeypatch, heartbeat_seconds=0.05)
    script(nests("llm_map", "word " * 300))
    run = worked(outer(session, 2))
    found = inner_runs(session, run.id)
    turns = [turn for item in list_items(run.id) for turn in list_turns(item.child_session_id)]
    used = [*(turn.usage.tokens_output for turn in turns), *(one.counts.tokens_output for one in found)]
    assert len(used) == 4
    assert min(used) > 0
    assert run.counts.tokens_output == sum(used)
    assert verify_session(session.id).problems == []


@pytest.mark.slow
def test_a_run_stops_where_its_sub_agents_have_others_spend_too_much(session, script, monkeypatch):
    scarce(monkeypatch, heartbeat_seconds=0.05)
    script(nests("llm_map", "word " * 300))
    run = worked(outer(session, 30, concurrency=4, limits=TurnLimits(tokens=30_000)))
    taken = used_by(load_launched(session.id))
    assert (run.state, run.reason) == (RunState.PAUSED, StopReason.BUDGET)
    assert run.counts.completed > 0
    assert 0 < taken.tokens_input + taken.tokens_output <= 30_000


def test_a_run_may_spend_no_more_than_the_turn_that_asked_for_it(session, script):
    limits = TurnLimits(tokens=500, cost_micros=70, seconds=9)
    options = TurnOptions(limits=limits)
    turn = claim_turn(session.id, owner_id=session.owner_id, message="Go.", lease_owner="here", options=options).turn
    asked = MapRequest(kind=OperatorKind.LLM, template="{{ item }}", session_id=session.id, items=[1])
    for own, tokens in ((None, 500), (TurnLimits(tokens=80), 80)):
        run = begin_run(replace(asked, limits=own), owner_id=session.owner_id, turn_id=turn.id, part_id="part_1")
        assert run.spec.limits == TurnLimits(tokens=tokens, cost_micros=70)


@pytest.mark.slow
def test_what_sub_agents_asked_for_is_cancelled_with_their_run(session, script, monkeypatch):
    scarce(monkeypatch, heartbeat_seconds=0.05)
    script(nests("llm_map", Step(text="late", delay_seconds=30)))
    run_id = outer(session, 1)
    with working():
        until(lambda: [item for one in inner_runs(session, run_id) for item in list_items(one.id) if item.call_id])
        with change(session.id) as record:
            store.set_run_state(record, run_id, RunState.CANCELLED, reason="person")
    [inner] = inner_runs(session, run_id)
    assert inner.state is RunState.CANCELLED
    assert {item.state for item in list_items(inner.id)} == {ItemState.CANCELLED}


async def test_an_interrupt_cancels_the_run_that_its_turn_waits_for(alice, script):
    from sessions_app.database.threads import db

    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["llm_map"]}})
    script(nests("llm_map"))
    turn = await begin(session, "Say it.")
    while not (found := await db(list_runs, session_id=session.id)):
        pass
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    assert (await ended(turn)).state == "cancelled"
    assert (await db(load_run, found[0].id)).state is RunState.CANCELLED


async def test_a_server_that_stops_lets_the_run_go_on(alice, script):
    from agents_app.turns.runner import runner
    from sessions_app.database.threads import db

    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["llm_map"]}})
    script(nests("llm_map"))
    await begin(session, "Say it.")
    while not (found := await db(list_runs, session_id=session.id)):
        pass
    await runner.shutdown()
    assert (await db(load_run, found[0].id)).state.is_live
