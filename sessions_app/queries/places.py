"""Where parts of messages stand: in the context, or out of it and since when."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import OuterRef, QuerySet, Subquery

from mnesis_core.record import PartPlace
from mnesis_core.text import decode_text
from sessions_app.models import ContextItem, Message, MessagePart

_ITEM = ContextItem.objects.filter(session_id=OuterRef("session_id"), item_id=OuterRef("message_id"))


def places_of_parts(part_ids: Collection[str]) -> dict[str, PartPlace]:
    """The places of some parts, of whatever sessions, by id; one query."""
    if not part_ids:
        return {}
    rows = MessagePart.objects.filter(id__in=list(part_ids)).annotate(
        left_seq=Subquery(_ITEM.values("removed_seq")[:1])
    )
    placed = rows.annotate(left_turn=_turn_at("left_seq"), pruned_turn=_turn_at("compacted_seq"))
    columns = placed.values_list("id", "message__created_at", "tool_name", "left_turn", "pruned_turn")
    return {
        id: PartPlace(said_at=said_at, tool_name=decode_text(name), left_turn=left, pruned_turn=pruned)
        for id, said_at, name, left, pruned in columns
    }


def _turn_at(event_seq: str) -> Subquery:
    """The number of the turn that had the session at an event: the one whose message came into the context last."""
    newest = ContextItem.objects.filter(
        session_id=OuterRef(OuterRef("session_id")), item_type="message", added_seq__lte=OuterRef(OuterRef(event_seq))
    ).order_by("-added_seq")
    rows: QuerySet[Message] = Message.objects.filter(id=Subquery(newest.values("item_id")[:1]))
    return Subquery(rows.values("turn__seq")[:1])
