"""What the rows say of a session's context, states and counters, to be compared with its replayed ledger."""

from __future__ import annotations

from typing import Any

from django.db.models.query import QuerySet

from mnesis_core.replay import Item, Projection
from sessions_app.models import ContextItem, MessagePart, ModelCall, Session, Turn


def load_projection(session_id: str, *, using: str = "default") -> Projection:
    """The record's own part of it; that of the compactions is theirs."""
    [counters] = Session.objects.using(using).filter(id=session_id).values_list("message_seq", "turn_seq")
    items = ContextItem.objects.using(using).filter(session_id=session_id).order_by("id")
    parts = MessagePart.objects.using(using).filter(session_id=session_id)
    return Projection(
        message_seq=counters[0],
        turn_seq=counters[1],
        items={
            id: Item(*item)
            for id, *item in items.values_list("item_id", "item_type", "position", "added_seq", "removed_seq")
        },
        turns=_pairs(Turn.objects.using(using).filter(session_id=session_id), "state"),
        calls=_pairs(ModelCall.objects.using(using).filter(session_id=session_id), "state"),
        tools=_pairs(parts.filter(tool_state__isnull=False), "tool_state"),
        tombstones=_pairs(parts.filter(compacted_seq__isnull=False), "compacted_seq"),
    )


def _pairs(rows: QuerySet[Any], column: str) -> dict[str, Any]:
    return dict(rows.values_list("id", column).iterator())
