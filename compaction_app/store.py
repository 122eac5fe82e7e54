"""Writes of compactions, of the attempts at summaries, of summaries with their claims, and of their revisions and
previews.

A compaction is ``queued``, then ``running`` under a lease, then ``completed``, ``failed`` or ``superseded``. Each claim
has a number of its own, the fence: what a process writes that was given up for dead is refused by it (decision 20).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.db.models import F, Max, Q, Sum
from django.utils import timezone

from compaction_app.models import (
    LIVE,
    Claim,
    CompactionRun,
    Freshness,
    RunState,
    SummaryEdge,
    SummaryNode,
    SummaryPreview,
    SummaryTry,
)
from compaction_app.queries import load_graph
from mnesis_core.compaction import lineage
from mnesis_core.compaction.lineage import Support
from mnesis_core.compaction.requests import Attempt
from mnesis_core.context.additions import Refill
from mnesis_core.errors import (
    CompactionAbandoned,
    ContextChanged,
    MnesisError,
    ModelCallAbandoned,
    SessionArchived,
    SummaryNotFoundError,
    SummaryRevised,
    TakenOver,
)
from mnesis_core.events import EventType
from mnesis_core.llm.interface import Outcome, ToolCall
from mnesis_core.records import MessageEnd, NewSummary, new_id
from sessions_app.database.tables import Table
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import Change
from sessions_app.record.context_queries import standing_items
from sessions_app.record.lease import Lease, expired
from sessions_app.record.turn_queries import running_summary_calls
from sessions_app.search import index

_RUNS, _TRIES = Table(CompactionRun), Table(SummaryTry)
_NODES, _EDGES, _PREVIEWS = Table(SummaryNode), Table(SummaryEdge), Table(SummaryPreview)
LOST_AFTER = timedelta(seconds=30)  # a queued compaction not claimed by then lost its wake-up, or no worker runs
# A compaction is queued again after as long as it has waited already, within these: without a worker the queue must not
# fill up.
WAKE_AGAIN_AFTER, WAKE_AGAIN_AT_LAST_AFTER = timedelta(minutes=5), timedelta(hours=1)
LONGEST_ERROR = 1_000  # characters of an error's message that are kept
_CLAIMS = Table(Claim)


def record_attempt(
    record: Change,
    attempt: Attempt,
    *,
    run_id: str | None,
    summary_id: str,
    kind: str,
    cost_micros: int | None,
    tool_calls: Sequence[ToolCall] = (),
    **columns: Any,
) -> str:
    """Write an attempt with the other ``columns`` that it has, and return its id."""
    row = _TRIES.row(
        id=new_id("try"),
        session_id=record.session_id,
        run_id=run_id,
        summary_id=summary_id,
        number=SummaryTry.objects.filter(summary_id=summary_id).count() + 1,
        kind=kind,
        tool_calls=[asdict(call) for call in tool_calls],
        tokens_input=attempt.usage.input_tokens,
        tokens_output=attempt.usage.output_tokens,
        usage_source=attempt.usage.source.value,
        cost_micros=cost_micros,
        created_at=record.now,
        **{name: getattr(attempt, name) for name in ("level", "piece", "pieces", "accepted", "reason")},
        **columns,
    )
    record.insert(_TRIES, row)
    record.publish(
        EventType.SUMMARY_TRIED,
        try_id=row.id,
        run_id=run_id,
        summary_id=summary_id,
        level=attempt.level,
        accepted=attempt.accepted,
        reason=attempt.reason,
    )
    return str(row.id)


def close_calls(record: Change, call_ids: Sequence[str]) -> None:
    """End calls whose process died, or broke, before it wrote their end. What they cost is not known."""
    reason = ModelCallAbandoned()
    end = MessageEnd(outcome=Outcome.BROKEN.value, error_code=reason.code, error_message=reason.message)
    for call_id in call_ids:
        turn_store.finish_call(record, call_id, end)


def request_run(record: Change, *, trigger: str, turn_ids: Sequence[str] = ()) -> str | None:
    """Queue a compaction, of nothing but these turns if some are named, and return its id; ``None`` when one is live already."""
    if CompactionRun.objects.filter(session_id=record.session_id, state__in=LIVE).exists():
        return None
    run = _RUNS.row(
        id=new_id("run"),
        session_id=record.session_id,
        trigger=trigger,
        branch=record.branch,
        turn_ids=list(turn_ids),
        actor=record.actor,
        created_at=record.now,
        lease_expires_at=record.now + LOST_AFTER,
    )
    record.insert(_RUNS, run)
    named = {"turn_ids": list(turn_ids)} if turn_ids else {}
    record.publish(EventType.COMPACTION_REQUESTED, run_id=run.id, trigger=trigger, **named)
    return str(run.id)


def claim_run(
    record: Change, run_id: str, *, lease_owner: str, lease_seconds: float, tokens_before: int | None = None
) -> int | None:
    """Claim a queued compaction, or one whose worker died; return the fence, or ``None`` if a live process has it.

    ``tokens_before`` is the size of the context; the size at the first claim stays.
    """
    free = Q(state=RunState.QUEUED) | Q(expired(record.now), state=RunState.RUNNING)
    lease = Lease(owner=lease_owner, seconds=lease_seconds)
    claimed = CompactionRun.objects.filter(free, id=run_id, session_id=record.session_id).update(
        state=RunState.RUNNING, attempts=F("attempts") + 1, fence=F("fence") + 1, **lease.columns(record.now)
    )
    if not claimed:
        return None
    first = {"started_at": record.now, "tokens_before": tokens_before}
    record.update(_RUNS, first, id=run_id, started_at=None)
    fence: int = CompactionRun.objects.values_list("fence", flat=True).get(id=run_id)
    record.publish(EventType.COMPACTION_STARTED, run_id=run_id, attempt=fence)
    if fence > 1:
        close_calls(record, running_summary_calls(record.session_id, run_id))
    return fence


def renew_run(run_id: str, *, fence: int, lease: Lease) -> None:
    """:raises TakenOver: another process has the compaction, or it has ended."""
    mine = CompactionRun.objects.filter(id=run_id, state=RunState.RUNNING, fence=fence)
    if not lease.renew(mine, timezone.now()):
        raise TakenOver(run_id=run_id)


def require_run(record: Change, run_id: str, *, fence: int) -> None:
    """:raises TakenOver: another process has the compaction, or it has ended."""
    if record.find(_RUNS, "id", id=run_id, state=RunState.RUNNING, fence=fence) is None:
        raise TakenOver(run_id=run_id)


def requeue_run(record: Change, run_id: str, *, max_attempts: int) -> bool:
    """Queue a forgotten compaction again and leave it alone for a while; return whether it needs a worker.

    One whose workers died ``max_attempts`` times fails: it seems to kill them.
    """
    forgotten = CompactionRun.objects.filter(expired(record.now), id=run_id, state__in=LIVE)
    run = forgotten.first()
    if run is None:
        return False
    if run.state == RunState.RUNNING and run.attempts >= max_attempts:
        fail_run(record, run_id, CompactionAbandoned(), fence=run.fence)
        return False
    waits = min(max(record.now - run.created_at, WAKE_AGAIN_AFTER), WAKE_AGAIN_AT_LAST_AFTER)
    forgotten.update(state=RunState.QUEUED.value, lease_expires_at=record.now + waits)
    reason = "abandoned" if run.state == RunState.RUNNING else "forgotten"
    record.publish(EventType.COMPACTION_REQUESTED, run_id=run_id, again=True, reason=reason)
    return True


def prune(record: Change, run_id: str, part_ids: Sequence[str], *, tokens: int) -> int:
    """Take tool outputs out of the context, once in each compaction; return how many."""
    parts = message_store.tombstone_parts(record, part_ids)
    record.update(_RUNS, {"pruned_parts": parts, "pruned_tokens": tokens}, id=run_id, pruned_parts=None)
    record.publish(EventType.PRUNE_COMPLETED, run_id=run_id, parts=parts, tokens=tokens)
    return parts


def finish_run(
    record: Change, run_id: str, *, outcome: str, tokens_after: int, fence: int, refill: Refill | None = None
) -> None:
    """End a compaction; ``outcome`` is a value of ``mnesis_core.compaction.selection.Outcome``.

    :raises TakenOver: another process has the compaction, or it has ended.
    """
    sums = _end(record, run_id, fence, state=RunState.COMPLETED.value, outcome=outcome, tokens_after=tokens_after)
    record.publish(
        EventType.COMPACTION_COMPLETED,
        run_id=run_id,
        outcome=outcome,
        level=sums["level"],
        tokens_before=CompactionRun.objects.values_list("tokens_before", flat=True).get(id=run_id),
        tokens_after=tokens_after,
        summary_ids=sums["summary_ids"],
        **({"refill": refill.as_dict()} if refill else {}),
    )


def fail_run(record: Change, run_id: str, error: MnesisError, *, fence: int) -> None:
    """End a compaction as failed; as superseded if its sources left the context before their summary was there.

    :raises TakenOver: another process has the compaction, or it has ended.
    """
    state, event = RunState.FAILED, EventType.COMPACTION_FAILED
    if isinstance(error, ContextChanged):
        state, event = RunState.SUPERSEDED, EventType.COMPACTION_SUPERSEDED
    message = error.message[:LONGEST_ERROR]
    _end(record, run_id, fence, state=state.value, error_code=error.code, error_message=message)
    record.publish(event, run_id=run_id, error_code=error.code)
    close_calls(record, running_summary_calls(record.session_id, run_id))


def _end(record: Change, run_id: str, fence: int, **values: Any) -> dict[str, Any]:
    """Write the end of a compaction with the sums over all processes that worked on it, and return those."""
    nodes = SummaryNode.objects.filter(run_id=run_id)
    names = ("tokens_input", "tokens_output", "cost_micros")
    used = SummaryTry.objects.filter(run_id=run_id).aggregate(**{name: Sum(name, default=0) for name in names})
    sums = used | {
        "level": nodes.aggregate(level=Max("level", default=0))["level"],
        "summary_ids": list(nodes.order_by("created_at", "id").values_list("id", flat=True)),
        "source_count": SummaryEdge.objects.filter(node__run_id=run_id).count(),
    }
    values |= {"ended_at": record.now, "end_seq": record.next_seq, "after_message_seq": record.message_seq}
    if not record.update(_RUNS, values | sums, id=run_id, state=RunState.RUNNING.value, fence=fence):
        raise TakenOver(run_id=run_id)
    record.update(_RUNS, {"pruned_parts": 0, "pruned_tokens": 0}, id=run_id, pruned_parts=None)
    return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    id: str
    summary_id: str
    source_ids: tuple[str, ...]  # what was read for it, in order; revisions of the same change among it
    level: int
    text: str
    token_count: int
    source_tokens: int
    model: str
    prompt_version: str
    tokens_input: int = 0
    tokens_output: int = 0
    cost_micros: int = 0
    duration_ms: int = 0
    restores_id: str | None = None


def record_summary(
    record: Change,
    run_id: str,
    summary: NewSummary,
    *,
    fence: int,
    source_type: str,
    source_ids: list[str],
    branch: int = 0,
) -> str:
    """Write a summary with its edges, swap it into the context of a branch for its sources, and return its id.

    :raises TakenOver: another process has the compaction, or it has ended.
    :raises ContextChanged: a source is not in the context any more.
    """
    require_run(record, run_id, fence=fence)
    node = _NODES.row(
        session_id=record.session_id,
        run_id=run_id,
        attempt=fence,
        branch=branch,
        created_at=record.now,
        **asdict(summary),
    )
    _write_node(record, node, source_ids, run_id=run_id)
    message_store.swap_context_items(record, removed_ids=source_ids, summary_id=node.id, branch=branch)
    _write_edges(record, node, source_ids, source_type=source_type)
    if source_type == "summary" and SummaryNode.objects.filter(id__in=source_ids, freshness=Freshness.STALE).exists():
        _mark_freshness(record, because=node.id)
    return str(node.id)


def revise_summaries(record: Change, revisions: Sequence[Revision]) -> None:
    """Write summaries that take others' places and stand for the same, each after those that it was made from.

    They take the places in the context too, where the others stand there. Edges never change, so what was made from
    the others is marked stale; what was made from these very texts before is fresh again.

    :raises SummaryNotFoundError: the session has no such summary.
    :raises SummaryRevised: one of them is not the newest revision any more, or one that was read for it is not.
    :raises SessionArchived: the session is archived.
    """
    if record.archived:
        raise SessionArchived(session_id=record.session_id)
    nodes = SummaryNode.objects.filter(session_id=record.session_id)
    for revision in revisions:
        old = nodes.filter(id=revision.summary_id).first()
        if old is None:
            raise SummaryNotFoundError(summary_id=revision.summary_id)
        # An earlier text comes back with the sources of then, revised or not.
        read = revision.source_ids if old.kind == "condensed" and not revision.restores_id else ()
        if revised := nodes.filter(id__in=[old.id, *read], superseded_seq__isnull=False).first():
            raise SummaryRevised(summary_id=revised.id)

        columns = asdict(revision)
        source_ids, summary_id = columns.pop("source_ids"), columns.pop("summary_id")
        columns |= {
            name: getattr(old, name) for name in ("branch", "kind", "depth", "first_seq", "last_seq", "message_count")
        }
        node = _NODES.row(session_id=record.session_id, revises_id=old.id, created_at=record.now, **columns)
        source_type = "message" if old.kind == "leaf" else "summary"
        _write_node(record, node, source_ids, revises=summary_id)
        _write_edges(record, node, source_ids, source_type=source_type, of_revision=True)
        record.update(_NODES, {"superseded_seq": record.next_seq}, id=old.id)
        record.publish(EventType.SUMMARY_SUPERSEDED, summary_id=old.id, by=node.id)
        # In a tree it may stand in the context of another branch than the chosen one.
        if record.branch_seq or standing_items(record.session_id, [old.id]):
            message_store.swap_context_items(record, removed_ids=[old.id], summary_id=node.id)
    _mark_freshness(record, because=revisions[-1].id)


def record_preview(record: Change, preview: Revision, *, batch_id: str) -> None:
    """:raises SessionArchived: the session is archived."""
    if record.archived:
        raise SessionArchived(session_id=record.session_id)
    columns = asdict(preview) | {"source_ids": list(preview.source_ids)}
    del columns["restores_id"]
    row = _PREVIEWS.row(session_id=record.session_id, batch_id=batch_id, created_at=record.now, **columns)
    record.insert(_PREVIEWS, row)
    record.publish(
        EventType.SUMMARY_PREVIEWED, preview_id=row.id, summary_id=row.summary_id, batch_id=batch_id, level=row.level
    )


def _write_edges(record: Change, node: Any, source_ids: Sequence[str], **values: Any) -> None:
    edges = [
        _EDGES.row(
            session_id=record.session_id,
            node_id=node.id,
            position=position,
            source_id=source_id,
            branch=node.branch,
            **values,
        )
        for position, source_id in enumerate(source_ids)
    ]
    record.insert(_EDGES, *edges)


def _write_node(record: Change, node: Any, source_ids: Sequence[str], **why: str) -> None:
    record.insert(_NODES, node)
    record.publish(
        EventType.SUMMARY_CREATED,
        summary_id=node.id,
        kind=node.kind,
        level=node.level,
        first_seq=node.first_seq,
        last_seq=node.last_seq,
        source_ids=list(source_ids),
        **({"branch": node.branch} if node.branch else {}),
        **why,
    )
    index.add_row(record, "summaries", node)


def _mark_freshness(record: Change, *, because: str) -> None:
    graph = load_graph(record.session_id)
    stale, marked = graph.stale(), {node.id for node in graph.current() if node.freshness == Freshness.STALE}
    changed = {Freshness.STALE: sorted(stale - marked), Freshness.FRESH: sorted(marked - stale)}
    for freshness, ids in changed.items():
        SummaryNode.objects.filter(id__in=ids).update(freshness=freshness)
    if any(changed.values()):
        record.publish(
            EventType.SUMMARY_FRESHNESS_CHANGED,
            stale=changed[Freshness.STALE],
            fresh=changed[Freshness.FRESH],
            because=because,
        )


# Writes of claims: the sentences of a summary and the places that they rest on.


def record_claims(
    record: Change, summary_id: str, claims: Sequence[lineage.Claim], *, method: str = lineage.METHOD
) -> bool:
    """Write the claims of a summary, and return whether this was done now.

    Nothing is written of a summary without sentences, of one that was aligned by this method before, and in a session
    that is archived.
    """
    if not claims or record.archived or Claim.objects.filter(summary_id=summary_id, method=method).exists():
        return False
    rows = [
        _CLAIMS.row(
            id=new_id("claim"),
            session_id=record.session_id,
            summary_id=summary_id,
            method=method,
            number=claim.number,
            text_start=claim.start,
            text_end=claim.end,
            support=claim.support.value,
            share=claim.share,
            missing=list(claim.missing),
            places=[[place.source_id, place.ref] for place in claim.places],
            created_at=record.now,
        )
        for claim in claims
    ]
    record.insert(_CLAIMS, *rows)
    unsupported = sum(claim.support is Support.NONE for claim in claims)
    record.publish(EventType.CLAIMS_ALIGNED, summary_id=summary_id, claims=len(rows), unsupported=unsupported)
    return True
