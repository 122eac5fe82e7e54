"""The rows behind the outline of the DAG: the newest summaries of a session with what each stands for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from django.db.models import F, Q

from compaction_app.admin.outline import Node
from compaction_app.models import SummaryEdge, SummaryNode
from mnesis_core.graph import Span, runs_of
from sessions_app.admin.facts import record_url
from sessions_app.inspect_queries import seqs_of_messages

BATCH = 1000
"""SQLite allows 32,766 variables in one statement."""
_COLUMNS = ("id", "kind", "depth", "level", "first_seq", "last_seq", "token_count", "superseded_seq", "freshness")
_MORE = ("message_count", "revises_id")


def load_nodes(session_id: str, *, active: Collection[str], limit: int) -> list[Node]:
    """The newest summaries of a session, in the order of the messages they stand for."""
    newest = SummaryNode.objects.filter(session_id=session_id).order_by("-created_at", "-id")
    chosen = newest.values(*_COLUMNS, *_MORE)[:limit]
    rows = sorted(chosen, key=lambda row: (row["first_seq"], row["depth"], row["id"]))
    summaries, spans = _sources(session_id, {row["id"] for row in rows})
    later = {row["revises_id"]: row["id"] for row in rows if row["revises_id"]}
    nodes = []
    for row in rows:
        # What was revised stands for the same as its revision; drawn twice, that would hide the rest behind lines.
        is_newest = row["id"] not in later
        under = [_newest(id, later) for id in summaries[row["id"]]] if is_newest else []
        nodes.append(_node(row, active, under, spans.get(row["id"], _whole(row)) if is_newest else ()))
    return nodes


def _whole(row: dict[str, Any]) -> tuple[Span, ...]:
    return () if row["kind"] == "condensed" else ((row["first_seq"], row["last_seq"]),)


def _newest(id: str, later: dict[str, str]) -> str:
    seen = {id}
    while id in later and later[id] not in seen:
        id = later[id]
        seen.add(id)
    return id


def _node(row: dict[str, Any], active: Collection[str], sources: list[str], spans: tuple[Span, ...]) -> Node:
    return Node(
        **{name: row[name] for name in _COLUMNS},
        url=record_url(SummaryNode, row["id"]),
        is_active=row["id"] in active,
        summary_ids=(*sources, *([row["revises_id"]] if row["revises_id"] else [])),
        spans=spans,
    )


def _sources(session_id: str, ids: Collection[str]) -> tuple[dict[str, list[str]], dict[str, tuple[Span, ...]]]:
    # A leaf without a gap says itself which messages it stands for: a hundred thousand edges stay unread.
    has_gap = Q(node__message_count__lt=F("node__last_seq") - F("node__first_seq") + 1)
    edges = SummaryEdge.objects.filter(Q(node__kind="condensed") | has_gap, node__session_id=session_id)
    summaries: dict[str, list[str]] = defaultdict(list)
    messages: dict[str, list[str]] = defaultdict(list)
    for node_id, source_type, source_id in edges.order_by("node_id", "position").values_list(
        "node_id", "source_type", "source_id"
    ):
        if node_id in ids:
            (summaries if source_type == "summary" else messages)[node_id].append(source_id)
    seqs = _seqs([source for sources in messages.values() for source in sources])
    return summaries, {node: runs_of([seqs[id] for id in sources if id in seqs]) for node, sources in messages.items()}


def _seqs(ids: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(ids), BATCH):
        found |= seqs_of_messages(ids[start : start + BATCH])
    return found
