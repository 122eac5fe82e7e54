"""Workers are woken for runs, once each, and make room for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django_q.models import OrmQ
from django_q.tasks import async_task

from agents_app import schedule, store
from agents_app.maps import worker as working
from agents_app.maps.worker import work_for_a_slice, worker_slot
from agents_app.models import OperatorItem, OperatorShare
from agents_app.queries import load_item, load_run
from agents_app.tasks import work
from agents_app.turns.lifecycle import create_session
from mnesis_core.config import Config, override
from mnesis_core.llm.interface import Request
from mnesis_core.maps.values import ItemState, OperatorKind, RunState
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import SessionRecord
from sessions_app.models import ModelCall
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import load_call
from tests.support.people.story import alice, script, session
from tests.support.record.maps import start
from tests.support.record.operators import add_run, claim

pytestmark = pytest.mark.both_databases

__all__ = ["alice", "script", "session"]

Script = Callable[..., ScriptedModel]


@pytest.fixture(autouse=True)
def empty_queue(transactional_db: None) -> None:
    OrmQ.objects.all().delete()


def wakings() -> int:
    return sum(row.func() == schedule.TASK for row in OrmQ.objects.all())


def test_a_forsaken_run_wakes_workers_once(session: SessionRecord) -> None:
    assert not schedule.wake_for_forsaken()
    start(session, 3)
    OrmQ.objects.all().delete()
    assert schedule.wake_for_forsaken()
    assert not schedule.wake_for_forsaken()
    assert wakings() == schedule.most_workers()


def test_what_a_dead_worker_held_of_a_paused_run_is_taken_back(session: SessionRecord) -> None:
    run_id = add_run(session.id)
    [item] = claim(session.id, run_id, limit=1, lease_seconds=-1)
    with change(session.id) as record:
        store.set_run_state(record, run_id, RunState.PAUSED, reason="person")
    assert schedule.wake_for_forsaken()
    work_for_a_slice()
    assert load_item(run_id, 1).state is ItemState.PENDING
    assert load_call(item.call_id).error_code == "MODEL_CALL_ABANDONED"


def test_a_new_worker_looks_for_runs(session: SessionRecord) -> None:
    schedule.wake_in_new_worker(sender="django_q", proc_name="worker")
    assert wakings() == 0
    start(session, 3)
    OrmQ.objects.all().delete()
    schedule.wake_in_new_worker(sender="django_q", proc_name="worker")
    schedule.wake_in_new_worker(sender="django_q", proc_name="worker")
    assert wakings() == 1


@pytest.mark.parametrize(("workers", "runs", "makes_room"), [(1, 1, True), (2, 1, False), (4, 3, False)])
def test_one_worker_is_left_for_what_people_wait_for(
    settings: Any, alice: User, workers: int, runs: int, makes_room: bool
) -> None:
    settings.Q_CLUSTER = settings.Q_CLUSTER | {"workers": workers}
    assert schedule.most_workers() == runs
    schedule.wake_workers()
    assert not schedule.must_make_room()
    async_task("compaction_app.compact.compact", run_id="none")
    assert schedule.must_make_room() is makes_room


def test_no_more_workers_work_on_runs_than_may(session: SessionRecord, script: Script, settings: Any) -> None:
    script(lambda request: "ok")
    run_id = start(session, 3)
    with worker_slot(1) as first, worker_slot(1) as second:
        assert (first, second) == (True, False)
        work()
    assert load_run(run_id).state == RunState.PENDING
    work()
    assert load_run(run_id).state == RunState.COMPLETED


@pytest.mark.slow
def test_a_worker_that_is_to_stop_ends_what_it_began_and_is_queued_again(
    session: SessionRecord, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(request: Request) -> Step:
        monkeypatch.setattr(working, "LONGEST_SECONDS", 0.0)
        return Step(text="ok", delay_seconds=0.1)

    script(reply)
    run_id = start(session, 60, concurrency=4)
    OrmQ.objects.all().delete()
    work()
    run = load_run(run_id)
    assert (run.state, wakings()) == (RunState.RUNNING, 1)
    assert 0 < run.counts.completed < 60
    assert not OperatorItem.objects.filter(state="running").exists()
    assert not OperatorShare.objects.exists()
    script(lambda request: "ok")
    monkeypatch.undo()
    work_for_a_slice()
    assert load_run(run_id).counts.completed == 60


@pytest.mark.slow
def test_a_worker_whose_cluster_stops_gives_back_what_does_not_end(
    session: SessionRecord, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(lambda request: Step(text="ok", delay_seconds=60))
    run_id = start(session, 5, concurrency=2)
    monkeypatch.setattr(working, "LEAVE_SECONDS", 0.5)
    assert work_for_a_slice(must_stop=lambda: ModelCall.objects.filter(state="running").exists())
    assert load_run(run_id).state == RunState.RUNNING
    assert not OperatorItem.objects.exclude(state="pending").exists()
    assert ModelCall.objects.filter(error_code="MODEL_CALL_ABANDONED").count() == 2
    assert not schedule.is_cluster_stopping()


@pytest.mark.slow
def test_the_only_worker_leaves_a_long_item_where_others_wait_and_goes_on_with_it_later(
    session: SessionRecord, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = iter([Step(text="late", delay_seconds=60)])
    script(lambda request: next(replies, "ok"))
    config = override(Config(), {"operators": {"slice_seconds": 0.01}})
    run_id = start(session, 1, kind=OperatorKind.AGENTIC)
    with monkeypatch.context() as only:
        only.setattr("agents_app.maps.worker.site_config", lambda: config)
        only.setattr(working, "must_make_room", lambda: ModelCall.objects.filter(state="running").exists())
        only.setattr(working, "ROOM_SECONDS", 0.5)
        assert work_for_a_slice()
    item = load_item(run_id, 1)
    assert (item.state, item.excused, item.child_session_id != "") == (ItemState.PENDING, 1, True)
    work_for_a_slice()
    run = load_run(run_id)
    assert (run.state, run.counts.tries) == (RunState.COMPLETED, 1)
    assert [message.role for message in load_messages(item.child_session_id)][-2:] == ["user", "assistant"]


@pytest.mark.slow
def test_many_runs_at_once_all_come_to_their_end(alice: User, script: Script) -> None:
    script(lambda request: "ok")
    runs = [start(create_session(owner=alice), 2) for _ in range(working.RUNS_AT_ONCE + 3)]
    work_for_a_slice()
    assert {load_run(run_id).state for run_id in runs} == {RunState.COMPLETED}
