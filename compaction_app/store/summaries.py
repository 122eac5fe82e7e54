"""Summaries, their revisions and previews of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from compaction_app.models import (
    Freshness,
    SummaryEdge,
    SummaryNode,
    SummaryPreview,
)
from compaction_app.queries import load_graph
from compaction_app.store.runs import require_run
from mnesis_core.errors import SessionArchived, SummaryNotFoundError, SummaryRevised
from mnesis_core.events import EventType
from mnesis_core.ledger import new_salt
from mnesis_core.lineage import NewSummary
from mnesis_core.text import encode_text
from sessions_app import search_index
from sessions_app import store as record_store
from sessions_app.ledger import Change
from sessions_app.queries import standing_items
from sessions_app.statements import Table

_NODES, _EDGES, _PREVIEWS = Table(SummaryNode), Table(SummaryEdge), Table(SummaryPreview)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What takes a summary's place, and what it took."""

    id: str
    summary_id: str
    source_ids: tuple[str, ...]
    """What was read for it, in order; revisions of the same change among it."""
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
    """The earlier revision whose text this is."""


def record_summary(
    record: Change, run_id: str, summary: NewSummary, *, fence: int, source_type: str, source_ids: list[str]
) -> str:
    """Write a summary with its edges and swap it into the context for its sources; returns its id.

    :raises TakenOver: somebody else has the compaction, or it has ended.
    :raises ContextChanged: a source is not in the context any more.
    """
    require_run(record, run_id, fence=fence)
    node = _NODES.row(
        salt=new_salt(),
        session_id=record.session_id,
        run_id=run_id,
        attempt=fence,
        created_at=record.now,
        **asdict(summary) | {"text": encode_text(summary.text)},
    )
    _write_node(record, node, source_ids, run_id=run_id)
    record_store.swap_context_items(record, removed_ids=source_ids, summary_id=node.id)
    _write_edges(record, node, source_ids, source_type=source_type)
    is_condensed = source_type == "summary"
    if is_condensed and SummaryNode.objects.filter(id__in=source_ids, freshness=Freshness.STALE).exists():
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
    for revision in revisions:
        _revise(record, revision)
    _mark_freshness(record, because=revisions[-1].id)


def _revise(record: Change, revision: Revision) -> None:
    nodes = SummaryNode.objects.filter(session_id=record.session_id)
    old = nodes.filter(id=revision.summary_id).first()
    if old is None:
        raise SummaryNotFoundError(summary_id=revision.summary_id)
    # An earlier text comes back with the sources of then, revised or not.
    read = revision.source_ids if old.kind == "condensed" and not revision.restores_id else ()
    if revised := nodes.filter(id__in=[old.id, *read], superseded_seq__isnull=False).first():
        raise SummaryRevised(summary_id=revised.id)
    columns = asdict(revision) | {"text": encode_text(revision.text)}
    source_ids, summary_id = columns.pop("source_ids"), columns.pop("summary_id")
    node = _NODES.row(
        salt=new_salt(),
        session_id=record.session_id,
        revises_id=old.id,
        created_at=record.now,
        **{name: getattr(old, name) for name in ("kind", "depth", "first_seq", "last_seq", "message_count")},
        **columns,
    )
    _write_node(record, node, source_ids, revises=summary_id)
    _write_edges(record, node, source_ids, source_type="message" if old.kind == "leaf" else "summary", of_revision=True)
    record.update(_NODES, {"superseded_seq": record.next_seq}, id=old.id, salt=old.salt)
    record.publish(EventType.SUMMARY_SUPERSEDED, summary_id=old.id, by=node.id)
    if standing_items(record.session_id, [old.id]):
        record_store.swap_context_items(record, removed_ids=[old.id], summary_id=node.id)


def record_preview(record: Change, preview: Revision, *, batch_id: str) -> None:
    """Keep what a summary would say in a revision; nothing else changes.

    :raises SessionArchived: the session is archived.
    """
    if record.archived:
        raise SessionArchived(session_id=record.session_id)
    columns = asdict(preview) | {"text": encode_text(preview.text), "source_ids": list(preview.source_ids)}
    del columns["restores_id"]
    row = _PREVIEWS.row(
        salt=new_salt(), session_id=record.session_id, batch_id=batch_id, created_at=record.now, **columns
    )
    record.insert(_PREVIEWS, row)
    record.publish(
        EventType.SUMMARY_PREVIEWED,
        preview_id=row.id,
        summary_id=row.summary_id,
        batch_id=batch_id,
        level=row.level,
    )


def _write_edges(record: Change, node: Any, source_ids: Sequence[str], **values: Any) -> None:
    edges = [
        _EDGES.row(node_id=node.id, position=position, source_id=source_id, **values)
        for position, source_id in enumerate(source_ids)
    ]
    record.insert(_EDGES, *edges)


def _write_node(record: Change, node: Any, source_ids: Sequence[str], **why: str) -> None:
    """A new summary with its event, and its words for the search."""
    record.insert(_NODES, node)
    record.publish(
        EventType.SUMMARY_CREATED,
        summary_id=node.id,
        kind=node.kind,
        level=node.level,
        first_seq=node.first_seq,
        last_seq=node.last_seq,
        source_ids=list(source_ids),
        **why,
    )
    search_index.add_row(record, "summaries", node)


def _mark_freshness(record: Change, *, because: str) -> None:
    """Bring the marks up to what the graph says now."""
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
