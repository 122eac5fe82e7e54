"""Reads of the active context: now, or as it was."""
# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db.models import Q

from mnesis_core.dag import ContextRows, MessageEntry
from mnesis_core.record import ContextItemRecord
from sessions_app.models import ContextItem, Message, MessagePart
from sessions_app.rows import MESSAGE_COLUMNS, PART_COLUMNS, messages_of
from sessions_app.statements import fetch, select_columns

_ID, _MESSAGE_SEQ, _POSITION, _EVENT_SEQ = 0, 1, -2, -1
"""Columns of ``load_context``'s query: a message's, then a part's, then where it stands."""


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
    values: list[Any] = [session_id, session_id] if at is None else [at, session_id, session_id, at, at]
    rows = fetch(_context_query(as_of=at is not None), values)
    positions = {row[_ID]: row[_POSITION] for row in rows}
    messages = messages_of([row for row in rows if row[_MESSAGE_SEQ] is not None])
    entries = [MessageEntry(position=positions.pop(message.id), message=message) for message in messages]
    return ContextRows(messages=entries, summaries=positions, event_seq=rows[0][_EVENT_SEQ] if rows else None)


@cache
def _context_query(*, as_of: bool) -> str:
    part = select_columns(MessagePart, "p", PART_COLUMNS)
    active = "i.removed_seq IS NULL"
    if as_of:
        # An output that became a tombstone later was none then.
        part = part.replace("p.compacted_at", "CASE WHEN p.compacted_seq > %s THEN NULL ELSE p.compacted_at END")
        active = "i.added_seq <= %s AND (i.removed_seq IS NULL OR i.removed_seq > %s)"
    return (
        f"SELECT i.item_id, {select_columns(Message, 'm', MESSAGE_COLUMNS[1:])}, {part},"
        " i.position, (SELECT event_seq FROM sessions WHERE id = %s) FROM context_items i"
        " LEFT JOIN messages m ON m.id = i.item_id"
        " LEFT JOIN message_parts p ON p.message_id = m.id"
        f" WHERE i.session_id = %s AND {active} ORDER BY i.position, p.part_index"
    )


def summary_stays(session_id: str) -> list[tuple[str, int, int | None]]:
    """(id, added, removed) of every summary that has stood in a session's context: by which events it came and left."""
    rows = ContextItem.objects.filter(session_id=session_id, item_type="summary")
    return list(rows.values_list("item_id", "added_seq", "removed_seq"))


def newest_summary(session_id: str) -> str | None:
    """The id of the summary that came into the context last; it may have left it since."""
    rows = ContextItem.objects.filter(session_id=session_id, item_type="summary")
    return rows.order_by("-added_seq").values_list("item_id", flat=True).first()
