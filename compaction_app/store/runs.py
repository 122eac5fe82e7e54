"""Compactions and summaries.

A compaction is ``queued``, then ``running`` under a lease, then ``completed``, ``failed`` or ``superseded``. Each claim
has a number of its own, the fence: what a process writes that was given up for dead is refused by it (decision 20).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Max, Q, Sum
from django.utils import timezone

from compaction_app.models import (
    LIVE,
    CompactionRun,
    RunState,
    SummaryEdge,
    SummaryNode,
    SummaryTry,
)
from compaction_app.store.tries import close_calls
from mnesis_core.endings import CompactionAbandoned
from mnesis_core.errors import MnesisError, TakenOver
from mnesis_core.events import EventType
from mnesis_core.ids import new_id
from mnesis_core.text import encode_text
from sessions_app import store as record_store
from sessions_app.ledger import Change
from sessions_app.queries import running_summary_calls
from sessions_app.statements import Table

_RUNS = Table(CompactionRun)

LOST_AFTER = timedelta(seconds=30)
"""A queued compaction that nobody claimed by then has lost its wake-up, or no worker runs."""
WAKE_AGAIN_AFTER, WAKE_AGAIN_AT_LAST_AFTER = timedelta(minutes=5), timedelta(hours=1)
"""A compaction is queued again after as long as it has waited already, within these: without a worker the queue must
not fill up."""


LONGEST_ERROR = 1_000
"""Characters of an error's message that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a compaction came to that its summaries do not tell."""

    outcome: str
    """A value of ``mnesis_core.compaction.Outcome``."""
    tokens_after: int


def request_run(record: Change, *, trigger: str) -> str | None:
    """Queue a compaction; returns its id, or ``None`` when one is live already: there is never a second."""
    if CompactionRun.objects.filter(session_id=record.session_id, state__in=LIVE).exists():
        return None
    run = _RUNS.row(
        id=new_id("run"),
        session_id=record.session_id,
        trigger=trigger,
        created_at=record.now,
        lease_expires_at=record.now + LOST_AFTER,
    )
    record.insert(_RUNS, run)
    record.publish(EventType.COMPACTION_REQUESTED, run_id=run.id, trigger=trigger)
    return str(run.id)


def claim_run(
    record: Change, run_id: str, *, lease_owner: str, lease_seconds: float, tokens_before: int | None = None
) -> int | None:
    """Claim a queued compaction, or one whose worker died; returns the fence, or ``None`` if somebody has it.

    ``tokens_before`` is the size of the context; that of the first claim stays.
    """
    free = Q(state=RunState.QUEUED) | Q(state=RunState.RUNNING, lease_expires_at__lt=record.now)
    claimed = CompactionRun.objects.filter(free, id=run_id, session_id=record.session_id).update(
        state=RunState.RUNNING,
        attempts=F("attempts") + 1,
        fence=F("fence") + 1,
        lease_owner=lease_owner,
        lease_expires_at=record.now + timedelta(seconds=lease_seconds),
    )
    if not claimed:
        return None
    record.bind(_RUNS, {"state": RunState.RUNNING.value}, id=run_id, salt=record.salt)
    first = {"started_at": record.now, "tokens_before": tokens_before}
    record.update(_RUNS, first, id=run_id, started_at=None)
    fence: int = CompactionRun.objects.values_list("fence", flat=True).get(id=run_id)
    record.publish(EventType.COMPACTION_STARTED, run_id=run_id, attempt=fence)
    if fence > 1:
        _close_calls(record, run_id)
    return fence


def renew_run(run_id: str, *, fence: int, lease_seconds: float, now: datetime | None = None) -> None:
    """Prolong the lease before each long step.

    :raises TakenOver: somebody else has the compaction, or it has ended.
    """
    until = (now or timezone.now()) + timedelta(seconds=lease_seconds)
    if not _mine(run_id, fence).update(lease_expires_at=until):
        raise TakenOver(run_id=run_id)


def require_run(record: Change, run_id: str, *, fence: int) -> None:
    """Make sure that a compaction is still this process's, before anything is written for it.

    :raises TakenOver: somebody else has the compaction, or it has ended.
    """
    if record.find(_RUNS, "id", id=run_id, state=RunState.RUNNING, fence=fence) is None:
        raise TakenOver(run_id=run_id)


def requeue_run(record: Change, run_id: str, *, max_attempts: int) -> bool:
    """A forgotten compaction waits again, and is then left alone for a while; False if it needs no worker any more.

    One that was forgotten ``max_attempts`` times by who had claimed it fails: whoever takes it up dies of it.
    """
    forgotten = CompactionRun.objects.filter(id=run_id, state__in=LIVE, lease_expires_at__lt=record.now)
    run = forgotten.first()
    if run is None:
        return False
    if run.state == RunState.RUNNING and run.attempts >= max_attempts:
        fail_run(record, run_id, CompactionAbandoned(), fence=run.fence)
        return False
    waits = min(max(record.now - run.created_at, WAKE_AGAIN_AFTER), WAKE_AGAIN_AT_LAST_AFTER)
    values = {"state": RunState.QUEUED.value, "lease_expires_at": record.now + waits}
    forgotten.update(**values)
    record.bind(_RUNS, values, id=run_id, salt=record.salt)
    reason = "abandoned" if run.state == RunState.RUNNING else "forgotten"
    record.publish(EventType.COMPACTION_REQUESTED, run_id=run_id, again=True, reason=reason)
    return True


def prune(record: Change, run_id: str, part_ids: Sequence[str], *, tokens: int) -> int:
    """Take tool outputs out of the context on behalf of a compaction; returns how many. Once in each compaction."""
    parts = record_store.tombstone_parts(record, part_ids)
    record.update(_RUNS, {"pruned_parts": parts, "pruned_tokens": tokens}, id=run_id, pruned_parts=None)
    record.publish(EventType.PRUNE_COMPLETED, run_id=run_id, parts=parts, tokens=tokens)
    return parts


def finish_run(record: Change, run_id: str, result: RunResult, *, fence: int) -> None:
    """End a compaction that did its work.

    :raises TakenOver: somebody else has the compaction, or it has ended.
    """
    values = {"outcome": result.outcome, "tokens_after": result.tokens_after}
    sums = _end(record, run_id, fence, state=RunState.COMPLETED.value, **values)
    record.publish(
        EventType.COMPACTION_COMPLETED,
        run_id=run_id,
        outcome=result.outcome,
        level=sums["level"],
        tokens_before=CompactionRun.objects.values_list("tokens_before", flat=True).get(id=run_id),
        tokens_after=result.tokens_after,
        summary_ids=sums["summary_ids"],
    )


def fail_run(record: Change, run_id: str, error: MnesisError, *, fence: int) -> None:
    """End a compaction that could not do its work.

    :raises TakenOver: somebody else has the compaction, or it has ended.
    """
    _end(record, run_id, fence, state=RunState.FAILED.value, **_error_columns(error))
    record.publish(EventType.COMPACTION_FAILED, run_id=run_id, error_code=error.code)
    _close_calls(record, run_id)


def supersede_run(record: Change, run_id: str, error: MnesisError, *, fence: int) -> None:
    """End a compaction whose sources left the context before their summary was there.

    :raises TakenOver: somebody else has the compaction, or it has ended.
    """
    _end(record, run_id, fence, state=RunState.SUPERSEDED.value, **_error_columns(error))
    record.publish(EventType.COMPACTION_SUPERSEDED, run_id=run_id, error_code=error.code)
    _close_calls(record, run_id)


def _close_calls(record: Change, run_id: str) -> None:
    close_calls(record, running_summary_calls(record.session_id, run_id))


def _error_columns(error: MnesisError) -> dict[str, str]:
    return {"error_code": error.code, "error_message": encode_text(error.message[:LONGEST_ERROR])}


def _end(record: Change, run_id: str, fence: int, **values: Any) -> dict[str, Any]:
    """Write the end with what all attempts together have done; returns that."""
    sums = _sums(run_id)
    values |= {"ended_at": record.now, "end_seq": record.next_seq, "after_message_seq": record.message_seq}
    if not record.update(_RUNS, values | sums, id=run_id, state=RunState.RUNNING.value, fence=fence):
        raise TakenOver(run_id=run_id)
    record.update(_RUNS, {"pruned_parts": 0, "pruned_tokens": 0}, id=run_id, pruned_parts=None)
    return sums


def _sums(run_id: str) -> dict[str, Any]:
    """What a compaction comes to, whichever of its attempts did it, tries that came to nothing included."""
    nodes = SummaryNode.objects.filter(run_id=run_id)
    names = ("tokens_input", "tokens_output", "cost_micros")
    used = SummaryTry.objects.filter(run_id=run_id).aggregate(**{name: Sum(name, default=0) for name in names})
    return used | {
        "level": nodes.aggregate(level=Max("level", default=0))["level"],
        "summary_ids": list(nodes.order_by("created_at", "id").values_list("id", flat=True)),
        "source_count": SummaryEdge.objects.filter(node__run_id=run_id).count(),
    }


def _mine(run_id: str, fence: int) -> Any:
    return CompactionRun.objects.filter(id=run_id, state=RunState.RUNNING, fence=fence)
