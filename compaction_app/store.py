"""The only writer of compactions and summaries."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q
from django.utils import timezone

from compaction_app.models import CompactionRun, RunState, SummaryEdge, SummaryNode
from mnesis_core.errors import Conflict
from mnesis_core.events import EventType
from mnesis_core.ids import new_id
from mnesis_core.ledger import new_salt
from mnesis_core.text import encode_json, encode_text
from sessions_app import search_index
from sessions_app import store as record_store
from sessions_app.ledger import Change
from sessions_app.statements import Table

_RUNS, _NODES = Table(CompactionRun), Table(SummaryNode)

LIVE = (RunState.QUEUED, RunState.RUNNING)
LOST_AFTER = timedelta(seconds=30)
"""A queued compaction that nobody claimed by then has lost its wake-up, or no worker runs."""
WAKE_AGAIN_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSummary:
    """A summary that was accepted and waits for its commit."""

    kind: str
    depth: int
    level: int
    text: str
    token_count: int
    source_tokens: int
    first_seq: int
    last_seq: int
    message_count: int
    model: str
    prompt_version: str
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a compaction did, written once at its end."""

    tokens_before: int
    tokens_after: int
    level: int
    tries: list[dict[str, Any]]
    summary_ids: list[str]
    source_count: int
    pruned_parts: int
    pruned_tokens: int
    tokens_input: int
    tokens_output: int
    cost_micros: int


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


def claim_run(record: Change, run_id: str, *, lease_owner: str, lease_seconds: int) -> int | None:
    """Claim a queued compaction, or one whose worker died; returns the fence, or ``None`` if somebody has it."""
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
    record.update(_RUNS, {"started_at": record.now}, id=run_id, started_at=None)
    fence: int = CompactionRun.objects.values_list("fence", flat=True).get(id=run_id)
    record.publish(EventType.COMPACTION_STARTED, run_id=run_id, attempt=fence)
    return fence


def renew_run(run_id: str, *, fence: int, lease_seconds: int, now: datetime | None = None) -> None:
    """Prolong the lease before each long step.

    :raises Conflict: somebody else took the compaction over.
    """
    until = (now or timezone.now()) + timedelta(seconds=lease_seconds)
    if not _mine(run_id, fence).update(lease_expires_at=until):
        raise Conflict("this compaction was taken over", run_id=run_id)


def requeue_run(record: Change, run_id: str) -> bool:
    """A forgotten compaction waits again, and is left alone for a while so that the queue does not fill up."""
    values = {"state": RunState.QUEUED.value, "lease_expires_at": record.now + WAKE_AGAIN_AFTER}
    forgotten = CompactionRun.objects.filter(id=run_id, state__in=LIVE, lease_expires_at__lt=record.now)
    if not forgotten.update(**values):
        return False
    record.bind(_RUNS, values, id=run_id, salt=record.salt)
    record.publish(EventType.COMPACTION_REQUESTED, run_id=run_id, again=True)
    return True


def record_summary(
    record: Change, run_id: str, summary: NewSummary, *, fence: int, source_type: str, source_ids: list[str]
) -> str:
    """Write a summary with its edges and swap it into the context for its sources; returns its id.

    :raises Conflict: the compaction was taken over, or a source is not in the context any more.
    """
    if not _mine(run_id, fence).exists():
        raise Conflict("this compaction was taken over", run_id=run_id)
    node = _NODES.row(
        id=new_id("sum"),
        salt=new_salt(),
        session_id=record.session_id,
        run_id=run_id,
        attempt=fence,
        created_at=record.now,
        **asdict(summary) | {"text": encode_text(summary.text)},
    )
    record.insert(_NODES, node)
    SummaryEdge.objects.bulk_create(
        SummaryEdge(node_id=node.id, position=position, source_type=source_type, source_id=source_id)
        for position, source_id in enumerate(source_ids)
    )
    record.publish(
        EventType.SUMMARY_CREATED,
        summary_id=node.id,
        run_id=run_id,
        kind=node.kind,
        level=node.level,
        first_seq=node.first_seq,
        last_seq=node.last_seq,
        source_ids=source_ids,
    )
    record_store.swap_context_items(record, removed_ids=source_ids, summary_id=node.id)
    search_index.add_row(record, "summaries", node)
    return str(node.id)


def finish_run(record: Change, run_id: str, result: RunResult, *, fence: int) -> None:
    """End a compaction that did its work.

    :raises Conflict: somebody else took it over.
    """
    values = asdict(result) | {"tries": encode_json(result.tries)}
    _end(record, run_id, fence, state=RunState.COMPLETED.value, **values)
    record.publish(
        EventType.COMPACTION_COMPLETED,
        run_id=run_id,
        level=result.level,
        tokens_before=result.tokens_before,
        tokens_after=result.tokens_after,
        summary_ids=result.summary_ids,
    )


def fail_run(record: Change, run_id: str, *, fence: int, error_code: str, error_message: str) -> None:
    """End a compaction that could not do its work.

    :raises Conflict: somebody else took it over.
    """
    _end(
        record,
        run_id,
        fence,
        state=RunState.FAILED.value,
        error_code=error_code,
        error_message=encode_text(error_message),
    )
    record.publish(EventType.COMPACTION_FAILED, run_id=run_id, error_code=error_code)


def _end(record: Change, run_id: str, fence: int, **values: Any) -> None:
    values |= {"ended_at": record.now, "end_seq": record.next_seq, "after_message_seq": record.message_seq}
    if not record.update(_RUNS, values, id=run_id, state=RunState.RUNNING.value, fence=fence):
        raise Conflict("this compaction was taken over", run_id=run_id)


def _mine(run_id: str, fence: int) -> Any:
    return CompactionRun.objects.filter(id=run_id, state=RunState.RUNNING, fence=fence)
