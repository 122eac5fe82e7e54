"""Reads of the active context: now, or as it was."""
# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from mnesis_core.assembly.fitting import RESULT_FRAME
from mnesis_core.assembly.reading import SENT_TYPES
from mnesis_core.dag import ContextRows, MessageEntry
from mnesis_core.messages import ToolPart
from mnesis_core.pruning import MARKER_TOKENS
from mnesis_core.record import ContextItemRecord
from mnesis_core.tokens import MESSAGE_FRAMING
from sessions_app.models import ContextItem, Message, MessagePart
from sessions_app.rows import MESSAGE_COLUMNS, PART_COLUMNS, messages_of
from sessions_app.statements import fetch, select_columns

_ID, _MESSAGE_SEQ, _POSITION, _EVENT_SEQ = 0, 1, -2, -1
"""Columns of ``load_context``'s query: a message's, then a part's, then where it stands."""
_NOW = "i.removed_seq IS NULL"
_AS_OF = "i.added_seq <= %s AND (i.removed_seq IS NULL OR i.removed_seq > %s)"
_NEWEST = (
    f"{_NOW} AND i.position >= COALESCE((SELECT position FROM context_items"
    " WHERE session_id = %s AND removed_seq IS NULL ORDER BY position DESC LIMIT 1 OFFSET %s), 0)"
)
"""Conditions that say which items are read."""


def load_context_items(session_id: str, *, at: int | None = None) -> list[ContextItemRecord]:
    """The active context in order: now, or as of event ``at``."""
    rows = ContextItem.objects.filter(session_id=session_id)
    if at is None:
        rows = rows.filter(removed_seq__isnull=True)
    else:
        rows = rows.filter(Q(removed_seq__isnull=True) | Q(removed_seq__gt=at), added_seq__lte=at)
    values = rows.order_by("position").values_list("item_type", "item_id", "position", "added_seq", "removed_seq")
    return [
        ContextItemRecord(item_type=kind, item_id=id, position=position, added_seq=added, removed_seq=removed)
        for kind, id, position, added, removed in values
    ]


def replaced_items(session_id: str, ids: Sequence[str]) -> dict[str, str]:
    """For those of these messages and summaries that have left the context, the summary that took their place."""
    removed: dict[str, int] = {}
    for start in range(0, len(ids), 1000):
        rows = ContextItem.objects.filter(session_id=session_id, item_id__in=ids[start : start + 1000])
        removed |= dict(rows.exclude(removed_seq=None).values_list("item_id", "removed_seq"))
    swaps = sorted(set(removed.values()))
    came: dict[int, str] = {}
    for start in range(0, len(swaps), 1000):
        rows = ContextItem.objects.filter(session_id=session_id, added_seq__in=swaps[start : start + 1000])
        came |= dict(rows.values_list("added_seq", "item_id"))
    return {item_id: came[seq] for item_id, seq in removed.items() if seq in came}


def standing_items(session_id: str, ids: Sequence[str]) -> set[str]:
    """Which of these messages and summaries stand in the context now."""
    rows = ContextItem.objects.filter(session_id=session_id, item_id__in=ids, removed_seq__isnull=True)
    return set(rows.values_list("item_id", flat=True))


def load_context(session_id: str, *, at: int | None = None) -> ContextRows:
    """What stands in the context now, or stood there as of event ``at``: one query, whatever the history."""
    if at is None:
        return _context_rows(fetch(_context_query(_NOW), [session_id, session_id]))
    return _context_rows(fetch(_context_query(_AS_OF), [at, session_id, session_id, at, at]))


def load_newest_context(session_id: str, *, items: int) -> ContextRows:
    """So many items at the end of the context now, every summary, and how much the messages before them take.

    One query, and two more where there are older items: these may see a moment later.
    """
    rows = _context_rows(fetch(_context_query(_NEWEST), [*[session_id] * 3, items - 1]))
    if len(rows.messages) + len(rows.summaries) < items:
        return rows
    first = min([*(entry.position for entry in rows.messages[:1]), *rows.summaries.values()])
    older = ContextItem.objects.filter(session_id=session_id, removed_seq__isnull=True, position__lt=first)
    summaries = dict(older.filter(item_type="summary").values_list("item_id", "position"))
    messages = older.filter(item_type="message").values("item_id")
    return replace(rows, summaries=summaries | rows.summaries, unread_tokens=_tokens_of(messages))


def _context_rows(rows: list[tuple[Any, ...]]) -> ContextRows:
    positions = {row[_ID]: row[_POSITION] for row in rows}
    messages = messages_of([row for row in rows if row[_MESSAGE_SEQ] is not None])
    entries = [MessageEntry(position=positions.pop(message.id), message=message) for message in messages]
    return ContextRows(messages=entries, summaries=positions, event_seq=rows[0][_EVENT_SEQ] if rows else None)


def _tokens_of(messages: QuerySet[Any, Any]) -> int:
    """What a model would be sent of these messages, by the record's own estimates; no text is read for it."""
    sums = MessagePart.objects.filter(message_id__in=messages, part_type__in=SENT_TYPES).aggregate(
        parts=Count("id"),
        tokens=Sum("token_estimate", default=0),
        calls=Count("id", filter=Q(part_type=ToolPart.type)),
        results=Sum("output_token_estimate", default=0, filter=Q(compacted_at__isnull=True)),
        tombstones=Count("id", filter=Q(compacted_at__isnull=False)),
    )
    frames = MESSAGE_FRAMING * sums["parts"] + RESULT_FRAME * sums["calls"] + MARKER_TOKENS * sums["tombstones"]
    return int(sums["tokens"] + sums["results"] + frames)


@cache
def _context_query(which: str) -> str:
    part = select_columns(MessagePart, "p", PART_COLUMNS)
    if which == _AS_OF:
        # An output that became a tombstone later was none then.
        part = part.replace("p.compacted_at", "CASE WHEN p.compacted_seq > %s THEN NULL ELSE p.compacted_at END")
    return (
        f"SELECT i.item_id, {select_columns(Message, 'm', MESSAGE_COLUMNS[1:])}, {part},"
        " i.position, (SELECT event_seq FROM sessions WHERE id = %s) FROM context_items i"
        " LEFT JOIN messages m ON m.id = i.item_id"
        " LEFT JOIN message_parts p ON p.message_id = m.id"
        f" WHERE i.session_id = %s AND {which} ORDER BY i.position, p.part_index"
    )


def summary_stays(session_id: str) -> list[tuple[str, int, int | None]]:
    """(id, added, removed) of every summary that has stood in a session's context: by which events it came and left."""
    rows = ContextItem.objects.filter(session_id=session_id, item_type="summary")
    return list(rows.values_list("item_id", "added_seq", "removed_seq"))


def newest_summary(session_id: str) -> str | None:
    """The id of the summary that came into the context last; it may have left it since."""
    rows = ContextItem.objects.filter(session_id=session_id, item_type="summary")
    return rows.order_by("-added_seq").values_list("item_id", flat=True).first()
