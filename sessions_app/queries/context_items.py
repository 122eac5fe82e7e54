"""Reads of the active context: now, or as it was."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from mnesis_core.record import ContextItemRecord
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


def standing_items(session_id: str, ids: Sequence[str]) -> set[str]:
    """Which of these messages and summaries stand in the context now."""
    rows = ContextItem.objects.filter(session_id=session_id, item_id__in=ids, removed_seq__isnull=True)
    return set(rows.values_list("item_id", flat=True))


def tombstoned_after(session_id: str, at: int) -> set[str]:
    """Parts that were not tombstones yet as of event ``at``."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", compacted_seq__gt=at)
    return set(rows.values_list("id", flat=True))


def newest_summary(session_id: str) -> str | None:
    """The id of the summary that came into the context last; it may have left it since."""
    rows = ContextItem.objects.filter(session_id=session_id, item_type="summary")
    return rows.order_by("-added_seq").values_list("item_id", flat=True).first()
