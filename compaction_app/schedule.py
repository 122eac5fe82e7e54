"""Request compactions and claim them: one at most is live per session.

A process may be killed at any line, or be paused for longer than its lease. Then another one takes the compaction over
and goes on from what is committed; the first can write nothing any more and stops asking its model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from django.utils import timezone
from django_q.tasks import async_task

from compaction_app import store
from compaction_app.context import ContextState, Frame, load_state, meter_of, read_state, size_of
from compaction_app.queries import is_free_to_claim, last_run, stale_runs
from mnesis_core.compaction.selection import next_round
from mnesis_core.context.fitting import Pressure, Reason, Size, Trigger, pressure, select_prunable, should_compact
from mnesis_core.events import EventType
from sessions_app.conf import site_config
from sessions_app.database.threads import AWAY, db
from sessions_app.record.change import Change, change
from sessions_app.record.lease import Lease, new_owner

TASK = "compaction_app.compact.compact"
SLACK_SECONDS = 60  # a worker that passes the longest time of a compaction by this much hangs, and the cluster kills it
T = TypeVar("T")


def find_trigger(session_id: str) -> Trigger | None:
    """Return whether a session's context calls for a compaction, and why or why not; ``None`` below the soft threshold."""
    state = load_state(session_id)
    return trigger_of(state, size=size_of(state))


def trigger_after(frame: Frame, size: Size) -> Trigger | None:
    """Return what ``find_trigger`` does, for a context of known size: below the soft threshold nothing is read."""
    return None if pressure(size.tokens, frame.budget) is Pressure.NONE else trigger_of(read_state(frame), size=size)


def trigger_of(state: ContextState, *, size: Size) -> Trigger | None:
    """Return what ``find_trigger`` does, for a loaded context of this size."""
    if pressure(size.tokens, state.budget) is Pressure.NONE:
        return None
    situation = state.situation(used=size.tokens)
    trigger = should_compact(
        used=size.tokens,
        budget=state.budget,
        config=state.config,
        turns=state.session.turn_seq,
        last=last_run(state.session.id),
        is_something_to_do=next_round(situation) is not None
        or bool(select_prunable(state.entries, state.config, state.budget).part_ids),
    )
    return replace(trigger, source=size.source)


def request_if_due(record: Change, trigger: Trigger | None) -> str | None:
    """Queue the compaction that is due and return its id, or record why none is queued."""
    if trigger is None:
        return None
    size = Size(tokens=trigger.used, source=trigger.source)
    run_id = request_compaction(record, trigger=trigger.pressure.value, size=size) if trigger.compact else None
    if run_id is None:
        reason = Reason.ALREADY_REQUESTED if trigger.compact else trigger.reason
        record.publish(
            EventType.COMPACTION_SKIPPED,
            pressure=trigger.pressure.value,
            reason=reason.value,
            tokens=size.tokens,
            source=size.source.value,
        )
    return run_id


def request_compaction(record: Change, *, trigger: str, size: Size) -> str | None:
    """Queue a compaction for a worker and return its id; ``None`` when one is live already."""
    run_id = store.request_run(record, trigger=trigger)
    if run_id is not None:
        record.publish(
            EventType.COMPACTION_TRIGGERED, run_id=run_id, trigger=trigger, tokens=size.tokens, source=size.source.value
        )
        _wake_worker(run_id)
    return run_id


def wake_stale() -> int:
    """Queue again what was queued or claimed and then forgotten, and return how many. Safe to repeat."""
    stale = stale_runs(timezone.now())
    max_attempts = site_config().compaction.max_attempts
    for session_id, run_id in stale:
        with change(session_id) as record:
            if store.requeue_run(record, run_id, max_attempts=max_attempts):
                _wake_worker(run_id)
    return len(stale)


def _wake_worker(run_id: str) -> None:
    # The broker's queue is a table of this database, so the wake-up commits with the run or not at all.
    config = site_config().compaction
    longest = config.run_timeout_seconds + config.model_timeout_seconds + SLACK_SECONDS
    async_task(TASK, run_id=run_id, timeout=int(longest))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A compaction claimed by this process: held under a lease, and fenced, so that it disturbs no other claim."""

    run_id: str
    session_id: str
    fence: int
    lease: Lease

    @contextmanager
    def held(self) -> Iterator[Change]:
        """Change the session, if this process still has the compaction.

        :raises TakenOver: it does not.
        """
        with change(self.session_id) as record:
            store.require_run(record, self.run_id, fence=self.fence)
            yield record

    def renew(self) -> None:
        """:raises TakenOver: another process has the compaction."""
        store.renew_run(self.run_id, fence=self.fence, lease=self.lease)

    async def asking(self, question: Coroutine[Any, Any, T]) -> T:
        """Ask a model with no lock held, however long that takes, and keep the lease meanwhile.

        :raises TakenOver: the lease was lost all the same; the answer would not be used, so the model is not asked on.
        """

        async def keep_lease() -> None:
            while True:
                await asyncio.sleep(self.lease.seconds / 3)
                # The database may be away for a moment; if it stays away, the next write fails.
                with suppress(*AWAY):
                    await db(self.renew)

        asked = asyncio.ensure_future(question)
        heartbeat = asyncio.ensure_future(keep_lease())
        try:
            await asyncio.wait({asked, heartbeat}, return_when=asyncio.FIRST_COMPLETED)
            if heartbeat.done():
                heartbeat.result()
            return await asked
        finally:
            for task in (asked, heartbeat):
                task.cancel()
            await asyncio.gather(asked, heartbeat, return_exceptions=True)


def claim(session_id: str, run_id: str) -> ClaimedRun | None:
    """Claim a compaction; return ``None`` if it has ended, or if another live process has it.

    :raises SessionNotFoundError: there is no such session.
    """
    if not is_free_to_claim(run_id, timezone.now(), session_id=session_id):
        return None
    state = load_state(session_id)
    lease = Lease(owner=new_owner(), seconds=state.config.compaction.lease_seconds)
    tokens = meter_of(state).used_tokens
    with change(session_id) as record:
        fence = store.claim_run(
            record, run_id, lease_owner=lease.owner, lease_seconds=lease.seconds, tokens_before=tokens
        )
    if fence is None:
        return None
    return ClaimedRun(run_id=run_id, session_id=session_id, fence=fence, lease=lease)
