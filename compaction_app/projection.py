"""What the rows say of a session's compactions and summaries, to be compared with its replayed ledger."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from compaction_app.models import CompactionRun, SummaryEdge, SummaryNode
from mnesis_core.replay import Projection
from sessions_app import projection


def load_projection(session_id: str, *, using: str = "default") -> Projection:
    """Everything that can be replayed."""
    runs = CompactionRun.objects.using(using).filter(session_id=session_id)
    sources: dict[str, list[tuple[str, str]]] = defaultdict(list)
    edges = SummaryEdge.objects.using(using).filter(node__session_id=session_id).order_by("node_id", "position")
    columns = edges.values_list("node_id", "position", "source_type", "source_id", "of_revision", "node__revises_id")
    for node_id, position, kind, source_id, of_revision, revises in columns.iterator():
        place = len(sources[node_id])
        is_right = position == place and of_revision == (revises is not None)
        shown = kind if is_right else f"{kind} at {position}, not {place}; of a revision: {of_revision}"
        sources[node_id].append((shown, source_id))
    nodes = SummaryNode.objects.using(using).filter(session_id=session_id)
    states = {id: (seq, freshness) for id, seq, freshness in nodes.values_list("id", "superseded_seq", "freshness")}
    return replace(
        projection.load_projection(session_id, using=using),
        runs=dict(runs.values_list("id", "state")),
        summaries={id: tuple(sources[id]) for id in states},
        superseded={id: seq for id, (seq, _) in states.items() if seq is not None},
        freshness={id: freshness for id, (_, freshness) in states.items()},
    )
