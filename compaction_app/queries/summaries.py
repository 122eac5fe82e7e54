"""Reads of summaries, and of previews of them."""
# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

from django.db import connection
from django.db.models import Q

from compaction_app.models import SummaryEdge, SummaryNode, SummaryPreview
from mnesis_core.dag import SummaryEntry
from mnesis_core.errors import PreviewNotFoundError, SummaryNotFoundError
from mnesis_core.file_ids import find_file_ids
from mnesis_core.graph import Graph, Node
from mnesis_core.lineage import SummaryRecord
from mnesis_core.revision import PreviewRecord
from mnesis_core.text import decode_text, encode_text
from sessions_app.queries import newest_summary
from sessions_app.statements import fetch

_ENTRY = ("id", "kind", "depth", "level", "text", "token_count", "first_seq", "last_seq", "message_count")
"""Columns of a summary as it stands in a context."""

_OTHERWISE = ("text", "revises", "restores", "source_ids")
"""What a summary's record has by another name, or in another form, than its row."""
_SUMMARY_COLUMNS = [field.name for field in fields(SummaryRecord) if field.name not in _OTHERWISE]
_PREVIEW_COLUMNS = [field.name for field in fields(PreviewRecord) if field.name not in ("depth", "text", "source_ids")]
_NODE_COLUMNS = [field.name for field in fields(Node) if field.name != "sources"]


def load_summary(summary_id: str, *, session_id: str | None = None, owner_id: int | None = None) -> SummaryRecord:
    """One summary of a session, or of one person's sessions.

    :raises SummaryNotFoundError: there is no such summary there.
    """
    rows = SummaryNode.objects.filter(id=encode_text(summary_id))
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    if owner_id is not None:
        rows = rows.filter(session__owner_id=owner_id, session__deleted_at__isnull=True)
    row = rows.first()
    if row is None:
        raise SummaryNotFoundError(summary_id=summary_id)
    return _summary(row, _sources(node_id=row.id)[row.id])


def load_summaries(ids: Sequence[str], *, session_id: str) -> list[SummaryRecord]:
    """Some summaries of a session in the order of ``ids``; two queries.

    :raises SummaryNotFoundError: one of them is not in the session.
    """
    found = SummaryNode.objects.filter(session_id=session_id).in_bulk(list(ids))
    missing = next((id for id in ids if id not in found), None)
    if missing is not None:
        raise SummaryNotFoundError(summary_id=missing)
    sources = _sources(node_id__in=list(found))
    return [_summary(found[id], sources[id]) for id in ids]


def load_previews(
    preview_id: str, *, session_id: str | None = None, owner_id: int | None = None
) -> list[PreviewRecord]:
    """The previews that are applied with this one, each after those that it was made from; it is the last.

    :raises PreviewNotFoundError: there is no such preview there, or it is a part of another one.
    """
    rows = SummaryPreview.objects.filter(batch_id=encode_text(preview_id)).select_related("summary")
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    if owner_id is not None:
        rows = rows.filter(session__owner_id=owner_id, session__deleted_at__isnull=True)
    found = [_preview(row) for row in rows.order_by("summary__depth", "created_at", "id")]
    if not any(preview.id == preview_id for preview in found):
        raise PreviewNotFoundError(preview_id=preview_id)
    return found


def applied_with(summary_id: str, *, session_id: str) -> set[str]:
    """The ids of all that were previewed together with this summary, itself among them; none if it was no preview."""
    rows = SummaryPreview.objects.filter(batch_id=summary_id, session_id=session_id)
    return set(rows.values_list("id", flat=True))


def load_graph(session_id: str) -> Graph:
    """Every summary of a session without its text, to be walked; two queries."""
    rows = list(SummaryNode.objects.filter(session_id=session_id).order_by("created_at", "id").values(*_NODE_COLUMNS))
    sources: dict[str, list[str]] = defaultdict(list)
    for node_id, source_id in _edges_above(session_id, [row["id"] for row in rows if row["kind"] == "condensed"]):
        sources[node_id].append(source_id)
    return Graph(Node(**row, sources=tuple(sources[row["id"]])) for row in rows)


def _edges_above(session_id: str, condensed: list[str]) -> list[tuple[str, str]]:
    # Not joined on PostgreSQL: before it has counted thousands of new rows, it looks through all edges for each node.
    among, values = (
        ("= ANY(%s)", condensed)
        if connection.vendor == "postgresql"
        else ("IN (SELECT id FROM summary_nodes WHERE session_id = %s AND kind = 'condensed')", session_id)
    )
    sql = f"SELECT node_id, source_id FROM summary_edges WHERE node_id {among} ORDER BY node_id, position"
    return [(str(node_id), str(source_id)) for node_id, source_id in fetch(sql, [values])]


def summarised_sessions() -> list[str]:
    """Every session that has a summary, those that were deleted left out."""
    rows = SummaryNode.objects.filter(session__deleted_at__isnull=True)
    return list(rows.order_by("session_id").values_list("session_id", flat=True).distinct())


def leaf_of_message(message_id: str, *, session_id: str) -> str | None:
    """The id of a leaf that stands for a message, if one does; there may be newer revisions of it."""
    edges = SummaryEdge.objects.filter(source_id=message_id, source_type="message", node__session_id=session_id)
    return edges.values_list("node_id", flat=True).first()


def messages_of_slices(session_id: str, slices: Sequence[tuple[str, int, int]]) -> list[str]:
    """The ids of the messages of neighbouring leaves, in order; one query.

    A slice is a leaf with its first position and the one after its last; between the first and the last slice leaves
    are whole.
    """
    places = {leaf_id: place for place, (leaf_id, _, _) in enumerate(slices)}
    wanted = Q(node_id__in=[leaf_id for leaf_id, _, _ in slices[1:-1]])
    for leaf_id, first, end in {*slices[:1], *slices[-1:]}:
        wanted |= Q(node_id=leaf_id, position__gte=first, position__lt=end)
    edges = SummaryEdge.objects.filter(wanted, node__session_id=session_id)
    found = edges.values_list("node_id", "position", "source_id")
    return [id for _, _, id in sorted((places[node_id], position, id) for node_id, position, id in found)]


def messages_of_leaves(session_id: str) -> dict[str, list[str]]:
    """The ids of the messages of every leaf of a session, in order; as many rows as messages were summarised."""
    edges = SummaryEdge.objects.filter(node__session_id=session_id, node__kind="leaf")
    found: dict[str, list[str]] = defaultdict(list)
    for node_id, source_id in edges.order_by("node_id", "position").values_list("node_id", "source_id").iterator():
        found[node_id].append(source_id)
    return found


def last_summary(session_id: str) -> SummaryRecord | None:
    """The newest summary of a session, by the ledger; ``None`` when nothing was summarised yet."""
    summary_id = newest_summary(session_id)
    return None if summary_id is None else load_summary(summary_id, session_id=session_id)


def list_summaries(session_id: str) -> list[SummaryRecord]:
    """Every summary of a session, in the order they were made; two queries."""
    sources = _sources(node__session_id=session_id)
    rows = SummaryNode.objects.filter(session_id=session_id).order_by("created_at", "id")
    return [_summary(row, sources[row.id]) for row in rows]


def load_summary_entries(positions: dict[str, int], *, session_id: str) -> list[SummaryEntry]:
    """Summaries of a session as they stand in a context, from their ids and positions; one query, none for none.

    :raises SummaryNotFoundError: one of them is not there.
    """
    if not positions:
        return []
    places = ", ".join(["%s"] * len(positions))
    rows = fetch(
        f"SELECT {', '.join(_ENTRY)} FROM summary_nodes WHERE session_id = %s AND id IN ({places})",
        [session_id, *positions],
    )
    if len(rows) < len(positions):
        raise SummaryNotFoundError(summary_id=next(iter(positions.keys() - {row[0] for row in rows})))
    return [_entry(positions[row[0]], row) for row in rows]


def load_preview_entries(positions: dict[str, int], *, session_id: str) -> list[SummaryEntry]:
    """Previews of a session as the summaries that others are made from; those that are none are left out; one query."""
    rows = SummaryPreview.objects.filter(id__in=list(positions), session_id=session_id)
    own = ("id", "level", "text", "token_count")
    return [
        _entry(positions[row[0]], row)
        for row in rows.values_list(*(name if name in own else f"summary__{name}" for name in _ENTRY))
    ]


def covering_summaries(session_id: str, message_seqs: Sequence[int]) -> dict[int, str]:
    """For each message, the leaf that stands for it in its newest revision, where there is one."""
    if not message_seqs:
        return {}
    rows = SummaryNode.objects.filter(
        session_id=session_id,
        kind="leaf",
        superseded_seq__isnull=True,
        last_seq__gte=min(message_seqs),
        first_seq__lte=max(message_seqs),
    )
    spans = list(rows.values_list("first_seq", "last_seq", "id"))
    return {seq: id for seq in message_seqs for first, last, id in spans if first <= seq <= last}


def leaves_of_messages(message_ids: Collection[str]) -> dict[str, str]:
    """For each of these messages, of whatever session, the leaf that stands for it in its newest revision; one query."""
    if not message_ids:
        return {}
    edges = SummaryEdge.objects.filter(
        source_id__in=list(message_ids), source_type="message", node__superseded_seq__isnull=True
    )
    return dict(edges.values_list("source_id", "node_id"))


def _entry(position: int, row: tuple[Any, ...]) -> SummaryEntry:
    values = dict(zip(_ENTRY, row, strict=True))
    text = decode_text(values.pop("text"))
    return SummaryEntry(position=position, text=text, file_ids=find_file_ids(text), **values)


def _preview(row: SummaryPreview) -> PreviewRecord:
    values = {name: getattr(row, name) for name in _PREVIEW_COLUMNS}
    return PreviewRecord(
        **values, depth=row.summary.depth, text=decode_text(row.text), source_ids=tuple(row.source_ids)
    )


def _sources(**where: Any) -> dict[str, list[tuple[str, str]]]:
    """What each of these summaries stands for, in order: (type, id)."""
    edges = SummaryEdge.objects.filter(**where).order_by("node_id", "position")
    sources: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for summary_id, type, id in edges.values_list("node_id", "source_type", "source_id"):
        sources[summary_id].append((type, id))
    return sources


def _summary(row: SummaryNode, sources: list[tuple[str, str]]) -> SummaryRecord:
    values = {name: getattr(row, name) for name in _SUMMARY_COLUMNS}
    return SummaryRecord(
        **values, text=decode_text(row.text), revises=row.revises_id, restores=row.restores_id, source_ids=sources
    )
