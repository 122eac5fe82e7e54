"""Reads of the active context: now, or as it was."""

from __future__ import annotations

from django.db.models import Q

from mnesis_core.record import (
    ContextItemRecord,
)
from sessions_app.models import ContextItem, MessagePart


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


def tombstoned_after(session_id: str, at: int) -> set[str]:
    """Parts that were not tombstones yet as of event ``at``."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", compacted_seq__gt=at)
    return set(rows.values_list("id", flat=True))
