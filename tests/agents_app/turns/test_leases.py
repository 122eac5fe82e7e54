"""Turns of processes that are too busy to say that they live: nobody takes them away."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from agents_app.turns import lifecycle
from agents_app.turns.claim import claim_turn, recover_turn, recover_turns
from agents_app.turns.runner import runner
from mnesis_core.errors import SessionBusy
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, TurnRecord, TurnState
from sessions_app.database import threads
from sessions_app.models import Turn
from sessions_app.record import turn_store
from sessions_app.record.change import change
from sessions_app.record.lease import STARVED, new_owner
from sessions_app.record.turn_queries import load_turn
from tests.support.people.story import begin, ended
from tests.support.processes.children import another_process
from tests.support.processes.writers import end_turn, stream_answer
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.both_databases

LEASE_SECONDS, BUSY_SECONDS = 6.0, 4.0


def claimed(session: SessionRecord, owner: str, *, expired: timedelta = timedelta(seconds=1)) -> TurnRecord:
    """A turn of another process, whose lease ran out so long ago."""
    turn = claim_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key=None, lease_owner=owner).turn
    Turn.objects.filter(id=turn.id).update(lease_expires_at=timezone.now() - expired)
    return turn


def in_thread(call: Callable[[], Any]) -> Any:
    """What a call in another thread returns; this one waits, and so does its event loop."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.slow
async def test_leases_are_renewed_while_the_event_loop_and_all_database_threads_are_busy(
    session: SessionRecord, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"turn": {"lease_seconds": LEASE_SECONDS}}
    await threads.db(lifecycle.update_session, session.id, owner_id=session.owner_id, config=config)
    gate = asyncio.Event()
    turn = await begin(session, "Go", until=script(Step(text=("one ", "two"), gate=gate)))
    before: datetime = await threads.db(lease_of, turn.id)
    busy = [threads._THREADS.submit(time.sleep, BUSY_SECONDS) for _ in range(threads._THREADS._max_workers)]
    time.sleep(BUSY_SECONDS)  # noqa: ASYNC251 - that is the point: nothing else of this loop runs
    assert in_thread(lambda: lease_of(turn.id)) > before + timedelta(seconds=BUSY_SECONDS / 2)
    gate.set()
    assert (await ended(turn)).state == TurnState.COMPLETED
    assert not wait(busy, PATIENCE_SECONDS).not_done
    await until(lambda: runner._leases._thread is None)


def lease_of(turn_id: str) -> datetime:
    """Return until when a turn's process has it."""
    return Turn.objects.values_list("lease_expires_at", flat=True).get(id=turn_id)


def test_a_turn_whose_process_runs_here_is_left_alone_until_it_dies(session: SessionRecord) -> None:
    with another_process() as (owner, process):
        turn = claimed(session, owner)
        assert recover_turns(lease_owner="another") == 0
        with pytest.raises(SessionBusy):
            claim_turn(
                session.id, owner_id=session.owner_id, message="Me?", idempotency_key=None, lease_owner="another"
            )
        process.kill()
        process.wait()
        assert recover_turns(lease_owner="another") == 1
    assert load_turn(turn.id, session_id=session.id).state == TurnState.INTERRUPTED


def test_a_process_that_runs_and_never_renews_loses_its_turn_in_the_end(session: SessionRecord) -> None:
    claimed(session, new_owner(), expired=STARVED)
    assert recover_turns(lease_owner="another") == 1


def test_a_process_closes_what_it_claimed_and_never_began(session: SessionRecord) -> None:
    owner = new_owner()
    claimed(session, owner)
    assert recover_turns(lease_owner=owner, runs_here=lambda turn_id: True) == 0
    assert recover_turns(lease_owner=owner, runs_here=lambda turn_id: False) == 1


def test_who_was_found_dead_loses_nothing_that_another_one_has_by_now(session: SessionRecord) -> None:
    turn = claimed(session, "alive")
    assert not recover_turn(session.id, turn.id, lease_owner="another", left_by="dead")
    assert recover_turn(session.id, turn.id, lease_owner="another", left_by="alive")


def test_who_renews_late_has_its_turn_again_where_nobody_took_it(session: SessionRecord) -> None:
    turn = claimed(session, "slow")
    turn_store.renew_leases(lease_owner="slow", turn_ids=[turn.id], lease_seconds=60)
    assert recover_turns(lease_owner="another") == 0


def test_a_turn_is_gone_on_with_after_its_lease_where_nobody_took_it(session: SessionRecord) -> None:
    turn = claimed(session, "slow")
    message_id = stream_answer(turn, "one")
    end_turn(turn, message_id, "one")
    assert load_turn(turn.id, session_id=session.id).state == TurnState.COMPLETED
    with change(session.id) as record:
        assert turn_store.take_over_turn(record, turn.id, lease_owner="another", lease_seconds=9) is None
