"""Reads for the inspector: everything that was recorded, including deleted sessions, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import (
    BigIntegerField,
    Case,
    Exists,
    F,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from mnesis_core.compaction.dag import Span, runs_of
from mnesis_core.ledger import MAX_INTEGER
from mnesis_core.llm.tokens import MESSAGE_FRAMING
from mnesis_core.records import ContextItemRecord
from mnesis_core.text import excerpt
from sessions_app.database.fields import Head
from sessions_app.models import ContextItem, Event, Message, MessagePart, Session

PREVIEW_CHARACTERS = 400
NOW = MAX_INTEGER  # later than any event
# Parts that are in no prompt: thoughts, and imported records that are not part of the conversation.
_UNSENT = ("reasoning", "data")
_COLUMNS = ("item_type", "item_id", "position", "added_seq", "removed_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeading:
    id: str
    title: str
    event_seq: int
    message_seq: int
    turn_seq: int

    @property
    def name(self) -> str:
        """Return the title on one visible line, or the id of a session without one."""
        return excerpt(self.title, 80) or self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHeading:
    id: int
    seq: int
    type: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePreview:
    id: str
    seq: int
    role: str
    tokens: int
    text: str  # how it begins


def load_heading(session_id: str) -> SessionHeading | None:
    row = Session.objects.filter(id=session_id).only("title", "event_seq", "message_seq", "turn_seq").first()
    if row is None:
        return None
    return SessionHeading(
        id=row.id,
        title=row.title,
        event_seq=row.event_seq,
        message_seq=row.message_seq,
        turn_seq=row.turn_seq,
    )


def load_event_heading(session_id: str, seq: int) -> EventHeading | None:
    row = Event.objects.filter(session_id=session_id, seq=seq).values("id", "seq", "type", "created_at").first()
    return None if row is None else EventHeading(**row)


def count_context(session_id: str, *, at: int) -> int:
    return _context(session_id, at).count()


def load_context_page(session_id: str, *, at: int, offset: int, limit: int) -> list[ContextItemRecord]:
    return _items(_context(session_id, at).order_by("position")[offset : offset + limit])


def load_context_summaries(session_id: str, *, at: int) -> list[str]:
    return list(_context(session_id, at).filter(item_type="summary").values_list("item_id", flat=True))


def load_context_spans(session_id: str, *, at: int) -> tuple[Span, ...]:
    """Return the runs of neighbouring messages that were themselves in the context as of event ``at``."""
    items = _context(session_id, at).filter(item_type="message")
    rows = Message.objects.filter(session_id=session_id, id__in=items.values("item_id"))
    return runs_of(list(rows.values_list("seq", flat=True)))


def load_stay(session_id: str, item_id: str) -> ContextItemRecord | None:
    """Return when a message or summary came into the context and left it; ``None`` if it never was in it."""
    return next(iter(_items(ContextItem.objects.filter(session_id=session_id, item_id=item_id))), None)


def spans_out_of_context(session_id: str, *, first: int, last: int | None) -> tuple[Span, ...]:
    """Return the runs of messages between two of them that have left the context; up to the newest if ``last`` is ``None``."""
    # Every change of the page repeats this: one index lookup per message, not a scan of all that ever left.
    left = ContextItem.objects.filter(session_id=session_id, item_id=OuterRef("pk"), removed_seq__isnull=False)
    rows = Message.objects.filter(Exists(left), session_id=session_id, seq__gte=first)
    if last is not None:
        rows = rows.filter(seq__lte=last)
    return runs_of(list(rows.values_list("seq", flat=True)))


def id_of_message(session_id: str, seq: int) -> str | None:
    return Message.objects.filter(session_id=session_id, seq=seq).values_list("id", flat=True).first()


def sum_message_tokens(session_id: str, *, at: int) -> int:
    """Return the estimated tokens of the messages in the context as of event ``at``, as far as models receive them."""
    messages = _context(session_id, at).filter(item_type="message")
    parts = MessagePart.objects.filter(message_id__in=messages.values("item_id")).exclude(part_type__in=_UNSENT)
    total: int = parts.aggregate(total=Sum(_tokens(at)))["total"] or 0
    return total + MESSAGE_FRAMING * messages.count()


def load_context_added(session_id: str, *, at: int, limit: int) -> tuple[int, list[ContextItemRecord]]:
    """Return the number of items that event ``at`` added to the context, and the first of them."""
    rows = ContextItem.objects.filter(session_id=session_id, added_seq=at)
    return rows.count(), _items(rows.order_by("position")[:limit])


def load_context_removed(session_id: str, *, at: int, limit: int) -> tuple[int, list[ContextItemRecord]]:
    """Return the number of items that event ``at`` removed from the context, and the first of them."""
    rows = ContextItem.objects.filter(session_id=session_id, removed_seq=at)
    return rows.count(), _items(rows.order_by("position")[:limit])


def context_changes_beside(session_id: str, *, at: int) -> tuple[int | None, int | None]:
    """Return the nearest events before and after ``at`` that changed the context."""
    rows = ContextItem.objects.filter(session_id=session_id)
    before = rows.aggregate(
        added=Max("added_seq", filter=Q(added_seq__lt=at)), removed=Max("removed_seq", filter=Q(removed_seq__lt=at))
    )
    after = rows.aggregate(
        added=Min("added_seq", filter=Q(added_seq__gt=at)), removed=Min("removed_seq", filter=Q(removed_seq__gt=at))
    )
    return (
        max((seq for seq in before.values() if seq is not None), default=None),
        min((seq for seq in after.values() if seq is not None), default=None),
    )


def preview_messages(ids: Sequence[str], *, at: int) -> dict[str, MessagePreview]:
    """Return a preview of each message, with its estimated tokens as of event ``at``, in two queries per page."""
    wanted = list(ids)
    # The first part with text; the type only decides between parts of one message.
    first = MessagePart.objects.filter(message=OuterRef("pk"), part_type="text").order_by("part_index")
    any_part = MessagePart.objects.filter(message=OuterRef("pk")).order_by("part_index")
    start = Head("content", PREVIEW_CHARACTERS)
    rows = Message.objects.filter(id__in=wanted).annotate(
        spoken=Subquery(first.annotate(start=start).values("start")[:1]),
        other=Subquery(any_part.annotate(start=start).values("start")[:1]),
        tool=Subquery(any_part.filter(part_type="tool").values("tool_name")[:1]),
    )
    sent = MessagePart.objects.filter(message_id__in=wanted).exclude(part_type__in=_UNSENT)
    sums = sent.values("message_id").annotate(tokens=Sum(_tokens(at)))
    tokens = {row["message_id"]: row["tokens"] for row in sums}
    found = rows.values("id", "seq", "role", "spoken", "other", "tool")
    return {row["id"]: _preview(row, tokens.get(row["id"], 0)) for row in found}


def _preview(row: dict[str, Any], tokens: int) -> MessagePreview:
    text = row["spoken"] or (f"[tool {row['tool']}]" if row["tool"] else row["other"]) or ""
    return MessagePreview(id=row["id"], seq=row["seq"], role=row["role"], tokens=tokens + MESSAGE_FRAMING, text=text)


def _context(session_id: str, at: int) -> QuerySet[Any]:
    still_there = Q(removed_seq__isnull=True) | Q(removed_seq__gt=at)
    return ContextItem.objects.filter(still_there, session_id=session_id, added_seq__lte=at)


def _items(rows: QuerySet[Any]) -> list[ContextItemRecord]:
    return [ContextItemRecord(**dict(zip(_COLUMNS, values, strict=True))) for values in rows.values_list(*_COLUMNS)]


def _tokens(at: int) -> Any:
    # A tombstone's marker is a handful of tokens, which this leaves out.
    nothing = Value(0, output_field=BigIntegerField())
    output = Case(When(compacted_seq__lte=at, then=nothing), default=Coalesce("output_token_estimate", nothing))
    return F("token_estimate") + output
