"""Rows of runs of operators: claimed once, settled once, bound by the ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, connections
from django.utils import timezone

from agents_app import store
from agents_app.models import OperatorItem, OperatorTry
from agents_app.queries import (
    accepted_outputs,
    attempts_of_item,
    forgotten_runs,
    list_items,
    live_runs,
    load_item,
    load_items,
    load_run,
)
from audit_app.proof.verify import check_replay, verify_session
from mnesis_core.context.replay import Difference
from mnesis_core.errors import OperatorRunNotFoundError, OperatorRunNotInState
from mnesis_core.maps.values import ErrorKind, ItemRecord, ItemState, OperatorKind, RunState, Settlement
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.turn_queries import list_calls, load_call
from tests.support.processes.children import another_process
from tests.support.record.operators import SCHEMA, WORKER, accept, add_run, claim, finish, new_call, refuse, settle
from tests.support.record.talks import new_session

pytestmark = pytest.mark.both_databases


@pytest.fixture
def session_id(db: None) -> str:
    return new_session(User.objects.create_user("alice"))


def assert_proven(session_id: str) -> None:
    assert verify_session(session_id).problems == []
    assert check_replay(session_id) == []


def event_types(session_id: str) -> list[str]:
    return [event.type for event in load_events(session_id) if event.type.startswith("map.")]


def test_a_run_from_its_first_claim_to_its_end(session_id):
    run_id = add_run(session_id)
    assert [run.id for run in live_runs()] == [run_id]
    items = claim(session_id, run_id)
    assert [(item.number, item.offset, item.length, item.attempts) for item in items] == [
        (1, 0, 9, 1),
        (2, 10, 9, 1),
        (3, 20, 9, 1),
    ]
    assert claim(session_id, run_id, worker="worker-2") == []
    first, second, third = items
    again = timezone.now() + timedelta(hours=1)
    settled = [accept(first), refuse(second), refuse(third, ItemState.PENDING, not_before=again)]
    assert settle(session_id, run_id, settled) == {1, 2, 3}
    assert load_item(run_id, 3).not_before == again
    assert claim(session_id, run_id) == []
    OperatorItem.objects.filter(number=3).update(not_before=timezone.now())
    [third] = claim(session_id, run_id)
    assert third.attempts == 2
    assert settle(session_id, run_id, [accept(third, '{"z": 3}')]) == {3}
    output = finish(session_id, run_id)
    run = load_run(run_id)
    assert (run.state, run.output_file_id) == (RunState.COMPLETED, output)
    assert (run.counts.items, run.counts.completed, run.counts.failed, run.counts.tries) == (3, 2, 1, 4)
    assert (run.counts.tokens_input, run.counts.cost_micros) == (120, 28)
    assert list(run.spec.schema["properties"]) == ["z", "a"]
    assert run.spec.schema == SCHEMA
    assert [item.state.value for item in list_items(run_id)] == ["completed", "failed", "completed"]
    assert [(r.number, r.output, r.error_kind) for r in accepted_outputs(run_id)] == [
        (1, '{"z": 1}', None),
        (2, None, ErrorKind.VALIDATION),
        (3, '{"z": 3}', None),
    ]
    assert [(t.number, t.accepted, t.error) for t in attempts_of_item(run_id, 3)] == [
        (1, False, "this is no JSON"),
        (2, True, ""),
    ]
    assert [item.number for item in list_items(run_id, states=[ItemState.FAILED])] == [2]
    assert {call.state for call in list_calls(session_id)} == {"completed"}
    assert event_types(session_id) == [
        "map.started",
        "map.state_changed",
        *["map.items_claimed", "map.item_completed"] * 2,
        "map.completed",
    ]
    assert_proven(session_id)
    assert live_runs() == []


def test_an_item_is_settled_by_who_holds_it_in_this_very_try(session_id):
    run_id = add_run(session_id, items=1)
    [item] = claim(session_id, run_id, lease_seconds=-1)
    assert forgotten_runs() == [run_id]
    with change(session_id) as record:
        assert store.release_expired(record, run_id) == [1]
    assert load_call(item.call_id).error_code == "MODEL_CALL_ABANDONED"
    assert settle(session_id, run_id, [accept(item)]) == set()
    [again] = claim(session_id, run_id)
    assert (again.attempts, again.counted_attempts) == (2, 1)
    assert settle(session_id, run_id, [accept(item)]) == set(), "the try is another one"
    assert settle(session_id, run_id, [accept(again)], worker="worker-2") == set()
    assert settle(session_id, run_id, [accept(item), accept(again)]) == {1}
    assert settle(session_id, run_id, [accept(again)]) == set()
    assert [one.number for one in OperatorTry.objects.all()] == [2]
    assert_proven(session_id)


def test_items_of_a_worker_that_runs_here_are_not_released_though_its_lease_ran_out(session_id):
    run_id = add_run(session_id, items=1)
    with another_process() as (owner, process):
        claim(session_id, run_id, worker=owner, lease_seconds=-1)
        assert forgotten_runs() == []
        with change(session_id) as record:
            assert store.release_expired(record, run_id) == []
        process.kill()
        process.wait()
    assert forgotten_runs() == [run_id]
    with change(session_id) as record:
        assert store.release_expired(record, run_id) == [1]


def test_the_database_refuses_a_second_result(session_id):
    run_id = add_run(session_id, items=1)
    [item] = claim(session_id, run_id)
    settle(session_id, run_id, [accept(item)])
    row = OperatorTry.objects.get()
    row.pk, row.number, row._state.adding = "try_" + "0" * 26, 2, True
    with pytest.raises(IntegrityError):
        row.save()


@pytest.mark.django_db(transaction=True)
def test_a_claim_passes_over_what_somebody_has_in_hand():
    session_id = new_session(User.objects.create_user("alice"))
    run_id = add_run(session_id, items=3)
    if connection.vendor == "sqlite":
        return  # its one writer has nobody to pass over
    other = connections.create_connection("default")
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor, connection.cursor() as own:
            cursor.execute("SELECT id FROM operator_items WHERE number = 1 FOR UPDATE")
            own.execute("SET lock_timeout = '3s'")  # who waits for the row is told, and not for ever
            assert [item.number for item in claim(session_id, run_id)] == [2, 3]
    finally:
        other.rollback()
        other.close()
        with connection.cursor() as own:
            own.execute("RESET lock_timeout")
    assert [item.number for item in claim(session_id, run_id)] == [1]


def test_a_renewed_lease_is_not_released(session_id):
    run_id = add_run(session_id, items=2)
    claim(session_id, run_id, lease_seconds=-1)
    assert store.renew_items(run_id, worker="another", items=[1, 2], lease_seconds=30) == set()
    assert store.renew_items(run_id, worker=WORKER, items=[1, 2], lease_seconds=30) == {1, 2}
    with change(session_id) as record:
        assert store.release_expired(record, run_id) == []


def test_pause_keeps_what_is_in_flight_and_gives_out_nothing(session_id):
    run_id = add_run(session_id)
    [item] = claim(session_id, run_id, limit=1)
    with change(session_id) as record:
        assert store.set_run_state(record, run_id, RunState.PAUSED, reason="person") is RunState.PAUSED
    assert claim(session_id, run_id) == []
    assert settle(session_id, run_id, [accept(item)]) == {1}
    assert (load_run(run_id).state, load_run(run_id).reason) == (RunState.PAUSED, "person")
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.RUNNING)
    assert [item.number for item in claim(session_id, run_id)] == [2, 3]
    assert_proven(session_id)


def test_cancel_ends_what_waits_and_a_resume_brings_it_back(session_id):
    run_id = add_run(session_id, items=5)
    first, second = claim(session_id, run_id, limit=2)
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.CANCELLED, reason="person")
    assert settle(session_id, run_id, [accept(first), refuse(second, ItemState.PENDING)]) == {1, 2}
    assert [item.state.value for item in list_items(run_id)] == ["completed", *["cancelled"] * 4]
    assert load_run(run_id).counts.cancelled == 4
    assert_proven(session_id)
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.RUNNING)
    again = claim(session_id, run_id)
    assert [(item.number, item.counted_attempts) for item in again] == [(2, 1), (3, 1), (4, 1), (5, 1)]
    settle(session_id, run_id, [accept(item) for item in again])
    finish(session_id, run_id)
    assert load_run(run_id).counts.cancelled == 0
    assert_proven(session_id)


def test_what_failed_is_tried_again_as_if_for_the_first_time(session_id):
    run_id = add_run(session_id)
    first, *others = claim(session_id, run_id)
    settle(session_id, run_id, [accept(first), *[refuse(item) for item in others]])
    finish(session_id, run_id)
    with change(session_id) as record:
        assert store.retry_failed(record, run_id) == 2
    run = load_run(run_id)
    assert (run.state, run.ended_at, run.counts.failed, run.counts.left) == (RunState.RUNNING, None, 0, 2)
    again = claim(session_id, run_id)
    assert [(item.number, item.attempts, item.counted_attempts) for item in again] == [(2, 2, 1), (3, 2, 1)]
    settle(session_id, run_id, [accept(item) for item in again])
    finish(session_id, run_id, output="/out2.jsonl")
    assert_proven(session_id)


def test_states_that_do_not_follow_each_other_are_refused(session_id):
    run_id = add_run(session_id)
    with change(session_id) as record:
        with pytest.raises(OperatorRunNotInState):
            store.set_run_state(record, run_id, RunState.RUNNING)
        with pytest.raises(OperatorRunNotInState):
            store.begin_run(record, run_id, items=3)
        with pytest.raises(OperatorRunNotInState):
            store.finish_run(record, run_id, output_file_id="")
    elsewhere = new_session(User.objects.create_user("bob"))
    with change(elsewhere) as record, pytest.raises(OperatorRunNotFoundError):
        store.set_run_state(record, run_id, RunState.PAUSED)


def claim_some(session_id: str, run_id: str, *, asked: set[int]) -> dict[int, ItemRecord]:
    """Claim all items, and write calls for some: what cannot be put together is never asked."""
    with change(session_id) as record:
        items = store.claim_items(record, run_id, worker=WORKER, limit=10, lease_seconds=30)
        calls = {item.number: new_call(run_id, item, "ab" * 32) for item in items if item.number in asked}
        store.start_map_calls(record, run_id, calls)
    return {item.number: item for item in load_items(run_id, [item.number for item in items])}


@pytest.mark.parametrize("kind", list(OperatorKind))
def test_items_whose_try_came_to_nothing_that_could_be_kept_are_no_false_alarm(session_id, kind):
    run_id = add_run(session_id, items=4, kind=kind)
    for number in (1, 2):
        items = claim_some(session_id, run_id, asked={3, 4})
        hopeless = Settlement(
            item=1, number=number, state=ItemState.FAILED, error_kind=ErrorKind.VALIDATION, error="it nests too deeply"
        )
        given_back = Settlement(item=2, number=number, state=ItemState.PENDING, excused=True)
        long = "\x00 a long reason " * 1_000
        waits = replace(refuse(items[3], ItemState.PENDING), error=long, excused=True)
        last = replace(refuse(items[4]), error=long)
        settle(session_id, run_id, [hopeless, given_back, waits, last])
        assert_proven(session_id)
        with change(session_id) as record:
            assert store.retry_failed(record, run_id) == 2
        assert_proven(session_id)
    claim(session_id, run_id, lease_seconds=-1)
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.CANCELLED, reason="person")
        assert store.release_expired(record, run_id) == [1, 2, 3, 4]
    assert_proven(session_id)


def test_a_sub_agent_that_never_began_is_no_false_alarm(session_id):
    run_id = add_run(session_id, items=2, kind=OperatorKind.AGENTIC)
    with change(session_id) as record:
        items = store.claim_items(record, run_id, worker=WORKER, limit=2, lease_seconds=30)
        store.note_claimed(record, run_id, {2: "sess_b", 1: "sess_a"})
    assert_proven(session_id)
    never = [
        Settlement(item=item.number, number=1, state=state, error_kind=ErrorKind.TOOL_ERROR, error="no such model")
        for item, state in zip(items, (ItemState.FAILED, ItemState.PENDING), strict=True)
    ]
    settle(session_id, run_id, never)
    assert_proven(session_id)
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.CANCELLED, reason="person")
    assert_proven(session_id)
    OperatorItem.objects.filter(number=2).update(child_session_id="sess_a")
    assert check_replay(session_id) == [
        Difference(what="map_children", id=f"{run_id} 2", ledger="sess_b", rows="sess_a")
    ]


def test_what_is_changed_behind_the_ledger_is_found(session_id):
    run_id = add_run(session_id, items=1)
    OperatorItem.objects.filter(run_id=run_id).update(state="cancelled")
    assert check_replay(session_id) == [
        Difference(what="map_items", id=f"{run_id} 1", ledger=None, rows="cancelled"),
        Difference(what="operator_runs.cancelled_count", id=run_id, ledger=1, rows=0),
    ]
    assert load_item(run_id, 1).state is ItemState.CANCELLED
