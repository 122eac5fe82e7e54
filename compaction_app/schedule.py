"""Ask for a compaction: at most one is live per session, and its queue row commits with the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone
from django_q.tasks import async_task

from compaction_app import store
from compaction_app.context import load_state, meter_of
from compaction_app.queries import last_compacted_tokens, stale_runs
from mnesis_core.budget import Pressure, should_compact
from mnesis_core.events import EventType
from sessions_app.conf import site_config
from sessions_app.ledger import Change, change

TASK = "compaction_app.tasks.compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTrigger:
    """A compaction is due."""

    pressure: Pressure
    used: int
    """Tokens of the whole context."""


def due_trigger(session_id: str) -> DueTrigger | None:
    """Whether a session's context calls for a compaction now."""
    state = load_state(session_id)
    used = meter_of(state).used_tokens
    after_last = last_compacted_tokens(session_id)
    decision = should_compact(
        used=used,
        budget=state.budget,
        config=state.config,
        turns=state.session.turn_seq,
        new_tokens=None if after_last is None else max(0, used - after_last),
    )
    return DueTrigger(pressure=decision.pressure, used=used) if decision.compact else None


def request_compaction(record: Change, *, trigger: str, tokens: int) -> str | None:
    """Queue a compaction for a worker; returns its id, or ``None`` when one is live already."""
    run_id = store.request_run(record, trigger=trigger)
    if run_id is not None:
        record.publish(EventType.COMPACTION_TRIGGERED, run_id=run_id, trigger=trigger, tokens=tokens)
        # The broker's queue is a table of this database, so the wake-up commits with the run or not at all.
        async_task(TASK, run_id=run_id)
    return run_id


def wake_stale() -> int:
    """Queue again what was queued or claimed and then forgotten; returns how many. Safe to repeat."""
    stale = stale_runs(timezone.now())
    max_attempts = site_config().compaction.max_attempts
    for session_id, run_id in stale:
        with change(session_id) as record:
            if store.requeue_run(record, run_id, max_attempts=max_attempts):
                async_task(TASK, run_id=run_id)
    return len(stale)
