"""Changes to the active context: rows are added and marked as removed, never deleted (decision 3)."""

from __future__ import annotations

from collections.abc import Sequence

from mnesis_core.errors import ContextChanged
from mnesis_core.events import EventType
from sessions_app.ledger import Change
from sessions_app.models import ContextItem


def swap_context_items(record: Change, *, removed_ids: Sequence[str], summary_id: str) -> int:
    """Replace items by one summary, at the place of the first of them; returns the event's ``seq``.

    :raises ContextChanged: one of them is not in the context any more, so the summary would stand for
        something that another one stands for already.
    """
    rows = ContextItem.objects.filter(session_id=record.session_id, item_id__in=removed_ids, removed_seq__isnull=True)
    positions = list(rows.values_list("position", flat=True))
    if len(positions) != len(set(removed_ids)) or not positions:
        raise ContextChanged(session_id=record.session_id)
    seq = record.publish(
        EventType.CONTEXT_CHANGED, added=[summary_id], removed=sorted(removed_ids), position=min(positions)
    )
    rows.update(removed_seq=seq)
    ContextItem.objects.create(
        session_id=record.session_id,
        item_type="summary",
        item_id=summary_id,
        position=min(positions),
        added_seq=seq,
    )
    return seq
