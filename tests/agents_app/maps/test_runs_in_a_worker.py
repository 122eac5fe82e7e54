"""A worker works on runs: from the first line to the output file, and whatever gets in between."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import storages
from django.db import connections
from django.utils import timezone

from agents_app import store
from agents_app.maps.worker import RunExecutor, Worker, make_executor, read_input, work_for_a_slice
from agents_app.models import OperatorBrake, OperatorItem, OperatorShare
from agents_app.queries import attempts_of_item, list_items, load_run
from agents_app.store import Demand
from agents_app.turns.lifecycle import create_session
from audit_app.proof.verify import verify_session
from compaction_app.context.state import rebuild_payload
from files_app.queries import load_file_reference
from mnesis_core.config import Config, override
from mnesis_core.errors import ModelAuthenticationFailed, ModelRateLimited, ModelUnavailable
from mnesis_core.llm.interface import Prices, Request
from mnesis_core.maps.prompts import CURRENT
from mnesis_core.maps.values import ErrorKind, ItemState, NewItem, RunRecord, RunState, StopReason
from mnesis_core.providers.scripted import Script as Said
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import SessionRecord
from mnesis_core.spending import TurnLimits
from sessions_app.conf import site_config
from sessions_app.llm.calls import RateLimitPause
from sessions_app.llm.spending_store import load_paid_calls
from sessions_app.models import ModelCall
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_store import soft_delete_session
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import alice, script, session
from tests.support.record.maps import output_of, start, worked
from tests.support.record.operators import add_run, claim
from tests.support.waiting import PATIENCE_SECONDS

__all__ = ["alice", "script", "session"]

Script = Callable[..., ScriptedModel]
LOOK_SECONDS = 0.01
"""Between two looks at what runs: far shorter than a call, and long enough to leave the workers the processor."""
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def echo(request: Request) -> str:
    """What is asked, once more."""
    return said(request).upper()


def said(request: Request, place: int = 1) -> str:
    """A message of a question: the first one of the user's."""
    return str(request.payload["messages"][place]["content"])


@contextmanager
def working() -> Iterator[threading.Thread]:
    """A worker beside the test."""

    def work() -> None:
        try:
            work_for_a_slice()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def until(condition: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def set_state(run_id: str, state: RunState, **how: Any) -> None:
    with change(load_run(run_id).session_id) as record:
        store.set_run_state(record, run_id, state, **how)


def calls(session: SessionRecord, **which: Any) -> int:
    return ModelCall.objects.filter(session_id=session.id, purpose="map", **which).count()


@pytest.mark.both_databases
def test_every_line_has_its_answer_in_the_order_of_the_input(session: SessionRecord, script: Script) -> None:
    script(echo)
    run = worked(start(session, ["a", {"b": [1, None]}, 3]))
    assert (run.state, run.counts.completed, run.counts.failed) == (RunState.COMPLETED, 3, 0)
    assert output_of(run) == [
        {"item": 1, "input": "a", "output": "SAY A"},
        {"item": 2, "input": {"b": [1, None]}, "output": 'SAY {"B": [1, NULL]}'},
        {"item": 3, "input": 3, "output": "SAY 3"},
    ]
    assert verify_session(session.id).problems == []


def test_a_file_without_lines_is_a_run_without_items(session: SessionRecord, script: Script) -> None:
    script(echo)
    run = worked(start(session, []))
    assert (run.state, run.counts.items, output_of(run)) == (RunState.COMPLETED, 0, [])


@pytest.mark.slow
def test_an_answer_that_does_not_fit_is_asked_for_again_with_what_is_wrong(
    session: SessionRecord, script: Script
) -> None:
    model = script("one", '{"n": "one"}', '{"n": 1}')
    run = worked(start(session, 1, schema=NUMBER, native_schema=True))
    assert output_of(run) == [{"item": 1, "input": 1, "output": {"n": 1}}]
    assert ["response_format" in request.payload for request in model.requests] == [True, False, False]
    tries = attempts_of_item(run.id, 1)
    assert [(one.number, one.error_kind, one.accepted) for one in tries] == [
        (1, ErrorKind.VALIDATION, False),
        (2, ErrorKind.SCHEMA_ERROR, False),
        (3, None, True),
    ]
    assert [one.output for one in tries] == ["one", '{"n": "one"}', '{"n": 1}']
    assert all(one.error and one.error in said(model.requests[one.number], -1) for one in tries[:2])
    assert run.counts.tries == 3
    asked = list_calls(session.id)
    assert {call.manifest[0]["prompt"] for call in asked} == {CURRENT.version}
    assert all(rebuild_payload(call).digest_matches for call in asked)


@pytest.mark.slow
def test_an_item_that_never_fits_fails_and_says_why(session: SessionRecord, script: Script) -> None:
    script(lambda request: "no" if "2" in said(request) else '{"n": 1}')
    run = worked(start(session, 3, schema=NUMBER, max_retries=1))
    assert (run.state, run.counts.completed, run.counts.failed, run.counts.tries) == (RunState.COMPLETED, 2, 1, 4)
    line = output_of(run)[1]
    assert (line["item"], line["error"]["kind"]) == (2, "validation")
    with change(session.id) as record:
        assert store.retry_failed(record, run.id) == 1
    script(lambda request: '{"n": 2}')
    again = worked(run.id)
    assert (again.state, again.counts.completed, again.counts.failed) == (RunState.COMPLETED, 3, 0)
    assert output_of(again)[1] == {"item": 2, "input": 2, "output": {"n": 2}}
    assert verify_session(session.id).problems == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "kind", "tries"),
    [
        (ModelUnavailable(), ErrorKind.LLM_ERROR, 2),
        (ModelAuthenticationFailed(), ErrorKind.LLM_ERROR, 1),
        (Step(text="much too late", delay_seconds=5), ErrorKind.TIMEOUT, 2),
    ],
)
def test_a_call_that_fails_is_made_again_where_that_may_help(
    session: SessionRecord, script: Script, settings: Any, answer: Said, kind: ErrorKind, tries: int
) -> None:
    script(lambda request: answer)
    run = worked(start(session, 1, max_retries=1, timeout_seconds=0.2))
    [item] = list_items(run.id)
    assert (item.state, item.error_kind, item.attempts) == (ItemState.FAILED, kind, tries)
    assert calls(session, state="failed") == tries


@pytest.mark.slow
@pytest.mark.both_databases
def test_too_many_requests_slow_the_model_down_and_use_up_no_try(session: SessionRecord, script: Script) -> None:
    refusals, asked = iter(range(3)), []

    def answer(request: Request) -> Said:
        asked.append(timezone.now())
        return "fine" if next(refusals, None) is None else ModelRateLimited(retry_after="1")

    script(answer)
    until = timezone.now() + timedelta(seconds=1)
    # Another worker was refused a moment ago.
    OperatorBrake.objects.create(model="demo", until=until, ceiling=64, since=until - timedelta(seconds=1))
    run = worked(start(session, 6, max_retries=0, concurrency=3))
    assert (run.counts.completed, run.counts.failed) == (6, 0)
    assert asked[0] >= until
    assert asked[3] >= asked[0] + timedelta(seconds=1)  # as the refusal asked for
    assert max(ModelCall.objects.values_list("attempts", flat=True)) >= 2


def test_a_template_that_does_not_fit_an_item_fails_it_without_a_call(session: SessionRecord, script: Script) -> None:
    script(echo)
    run = worked(start(session, [{"a": 1}, {"b": 2}], template="Say {{ item.a }}"))
    assert [item.state for item in list_items(run.id)] == [ItemState.COMPLETED, ItemState.FAILED]
    assert calls(session) == 1


@pytest.mark.slow
@pytest.mark.both_databases
def test_never_more_calls_are_in_flight_than_the_run_allows(session: SessionRecord, script: Script) -> None:
    # Some take longer than results gather, so that others begin beside them.
    script(lambda request: Step(text="ok", delay_seconds=0.6 if said(request).endswith("0") else 0.02))
    run_id, seen = start(session, 40, concurrency=4), {0}
    with working() as worker:
        while worker.is_alive():
            seen.add(calls(session, state="running"))
            time.sleep(LOOK_SECONDS)
    assert (load_run(run_id).counts.completed, max(seen)) == (40, 4)
    assert not OperatorShare.objects.exists()


@pytest.mark.slow
def test_the_ledger_hears_of_items_together_and_not_of_each(
    session: SessionRecord, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = override(Config(), {"operators": {"flush_seconds": 30.0}})
    monkeypatch.setattr("agents_app.maps.worker.site_config", lambda: config)
    # They end one after the other, and are written together when all in flight have.
    script(lambda request: Step(text="ok", delay_seconds=0.06 * (int(said(request).removeprefix("Say ")) % 16)))
    run = worked(start(session, 48, concurrency=16))
    told = [event for event in load_events(session.id, limit=1_000) if event.type == "map.item_completed"]
    assert sorted(number for event in told for number in event.data["completed"]) == list(range(1, 49))
    assert len(told) <= 48 // 16 + 3
    assert run.counts.completed == 48


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_pause_lets_calls_end_and_begins_none(session: SessionRecord, script: Script) -> None:
    script(lambda request: Step(text="ok", delay_seconds=0.3))
    run_id = start(session, 40, concurrency=4)
    with working():
        until(lambda: calls(session, state="completed"))
        set_state(run_id, RunState.PAUSED, reason=StopReason.PERSON)
        begun = calls(session)
    paused = load_run(run_id)
    assert (paused.state, paused.counts.completed, calls(session)) == (RunState.PAUSED, begun, begun)
    assert 0 < paused.counts.completed < 40
    assert not OperatorItem.objects.filter(state="running").exists()
    set_state(run_id, RunState.RUNNING)
    assert worked(run_id).counts.completed == 40
    assert calls(session) == 40


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_cancellation_cuts_calls_off_and_keeps_what_is_done(session: SessionRecord, script: Script) -> None:
    slow = iter([False] * 4)
    script(lambda request: Step(text="ok", delay_seconds=0.01 if next(slow, None) is False else 60))
    run_id = start(session, 20, concurrency=4)
    with working():
        until(lambda: load_run(run_id).counts.completed == 4 and calls(session, state="running") == 4)
        began = time.monotonic()
        set_state(run_id, RunState.CANCELLED, reason=StopReason.PERSON)
    assert time.monotonic() - began < 14  # leases would have run out after 15 s, and answers have come after a minute
    run = load_run(run_id)
    assert (run.state, run.counts.completed, run.counts.cancelled) == (RunState.CANCELLED, 4, 16)
    assert calls(session, outcome="cancelled") == 4
    assert ["output" in line for line in output_of(run)] == [True] * 4 + [False] * 16
    assert verify_session(session.id).problems == []


def test_a_run_stops_before_it_spends_more_than_it_may(session: SessionRecord, script: Script) -> None:
    script(lambda request: "word " * 20)
    run = worked(start(session, 50, limits=TurnLimits(tokens=3_000), concurrency=4))
    assert (run.state, run.reason) == (RunState.PAUSED, StopReason.BUDGET)
    assert 0 < run.counts.completed < 50
    assert run.counts.tokens_input + run.counts.tokens_output <= 3_000
    assert [line["output"] for line in output_of(run)[: run.counts.completed]] == ["word " * 20] * run.counts.completed
    assert not OperatorItem.objects.filter(state="running").exists()


def test_a_run_stops_before_it_costs_more_than_it_may(session: SessionRecord, script: Script) -> None:
    model = script(lambda request: "word " * 20)
    model.spec = replace(model.spec, prices=Prices(input=1_000_000, output=1_000_000))
    run = worked(start(session, 50, limits=TurnLimits(cost_micros=3_000), concurrency=4))
    assert (run.state, run.reason) == (RunState.PAUSED, StopReason.BUDGET)
    assert 0 < run.counts.completed < 50
    assert 0 < run.counts.cost_micros <= 3_000


def test_a_limit_of_the_session_stops_a_run_too(alice: User, script: Script) -> None:
    script(lambda request: "word " * 20)
    session = create_session(owner=alice, config={"limits": {"session": {"tokens": 3_000, "seconds": 3_600}}})
    run = worked(start(session, 50, concurrency=4))
    assert (run.state, run.reason) == (RunState.PAUSED, StopReason.BUDGET)
    taken = run.counts.tokens_input + run.counts.tokens_output
    assert 0 < taken <= 3_000
    paid = load_paid_calls(session_id=session.id)
    assert (sum(call.spent.tokens for call in paid), sum(call.count for call in paid)) == (taken, calls(session))
    assert len(paid) < calls(session)
    began = min(ModelCall.objects.values_list("created_at", flat=True))
    assert (min(call.first or call.began for call in paid), {call.is_open for call in paid}) == (began, {False})


@pytest.mark.slow
@pytest.mark.both_databases
def test_two_workers_share_a_run_and_make_each_call_once(session: SessionRecord, script: Script) -> None:
    script(lambda request: Step(text="ok", delay_seconds=0.1))
    run_id, seen = start(session, 100, concurrency=8), {0}
    with working() as one, working() as other:
        while one.is_alive() and other.is_alive():
            seen.add(calls(session, state="running"))
            time.sleep(LOOK_SECONDS)
    run = load_run(run_id)
    assert (run.state, run.counts.completed, calls(session)) == (RunState.COMPLETED, 100, 100)
    assert 4 < max(seen) <= 8, "of both together"


@pytest.mark.both_databases
def test_an_item_that_was_lost_and_claimed_again_is_asked_about_once(session: SessionRecord) -> None:
    run_id = start(session, 1)
    read_input(run_id, may_go_on=lambda: True)
    run = load_run(run_id)
    items = make_executor(run, pause_of=partial(RateLimitPause, share=store.brake_model))
    work = RunExecutor(run, owner="worker-1", config=site_config().operators, items=items)
    assert work.demand == Demand(
        run_id=run_id,
        wanted=run.spec.concurrency,
        in_flight=0,
        concurrency=run.spec.concurrency,
        model="demo",
        provider="demo",
        owner_id=session.owner_id,
    )
    work.allow(4)
    for lease_seconds in (-1, 30):
        with change(session.id) as record:
            store.release_expired(record, run_id)
            claimed = store.claim_items(record, run_id, worker="worker-1", limit=1, lease_seconds=lease_seconds)
            store.note_claimed(record, run_id, {})
        work._prepared += items.prepare(claimed)[0]
        work.held |= {item.number: item.attempts for item in claimed}
    started = asyncio.run(work._change()).started
    assert [one.item.attempts for one in started] == [2]
    assert work.held == {1: 2}


@pytest.mark.both_databases
def test_a_worker_s_heart_keeps_what_it_has_and_tells_of_what_it_lost(session: SessionRecord) -> None:
    run_id, worker = add_run(session.id, items=2), Worker(site_config().operators, must_stop=lambda: False)
    claim(session.id, run_id, worker=worker.owner, limit=1, lease_seconds=-1)
    claim(session.id, run_id, worker="another")
    _, _, lost, _ = worker._renew([], {run_id: {1: 1, 2: 1}})
    assert lost == {run_id: {2: 1}}
    assert [item.attempts for item in list_items(run_id, states=[ItemState.RUNNING])] == [1, 1]


def test_an_input_that_is_no_json_fails_the_run(session: SessionRecord, script: Script) -> None:
    script(echo)
    run = worked(start(session, "1\nnot json\n"))
    assert (run.state, run.error_code) == (RunState.FAILED, "INVALID_INPUT")


def test_a_run_whose_model_is_gone_waits_for_a_person(session: SessionRecord, script: Script) -> None:
    run = worked(start(session, 2, model="gone"))
    assert (run.state, run.reason) == (RunState.PAUSED, StopReason.ERROR)


def test_a_run_whose_input_is_gone_says_so(session: SessionRecord, script: Script) -> None:
    script(echo)
    run_id = start(session, 2)
    remove_content(load_run(run_id))
    run = worked(run_id)
    assert (run.state, run.error_code) == (RunState.FAILED, "FILE_CONTENT_NOT_FOUND")


def test_an_input_that_goes_while_the_run_is_at_it_lets_the_run_wait(session: SessionRecord, script: Script) -> None:
    run_id = start(session, 30, concurrency=2)
    script(echo)
    with change(session.id) as record:
        store.add_items(record, run_id, [NewItem(number=1, offset=0, length=1)])
        store.begin_run(record, run_id, items=1)
    remove_content(load_run(run_id))
    run = worked(run_id)
    assert (run.state, run.reason) == (RunState.PAUSED, StopReason.ERROR)
    assert not OperatorItem.objects.filter(state="running").exists()


@pytest.mark.slow
def test_a_run_of_a_deleted_session_is_left_alone(session: SessionRecord, script: Script) -> None:
    script(lambda request: Step(text="ok", delay_seconds=0.2))
    start(session, 40, concurrency=2)
    with working():
        until(lambda: calls(session, state="completed"))
        with change(session.id) as record:
            soft_delete_session(record)
    assert calls(session) < 40


def remove_content(run: RunRecord) -> None:
    file = load_file_reference(run.input_file_id, session_id=run.session_id)
    storages["files"].delete(f"{file.content_id[:2]}/{file.content_id[2:4]}/{file.content_id}")
