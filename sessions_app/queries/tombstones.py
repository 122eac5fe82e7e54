"""Reads of tombstones: tool outputs that were taken out of the context. The originals stay; only their beginnings are read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Left, Length

from mnesis_core.text import decode_text, encode_text
from sessions_app.models import ContextItem, MessagePart

HEAD = 600
"""Characters of the beginnings of inputs and outputs."""
MOST_TOOLS = 200

Place = tuple[int, int, int]
"""Of a tombstone among those of its session: the event, the message's seq, the part's index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """One tool output that was taken out of the context."""

    part_id: str
    part_index: int
    message_id: str
    message_seq: int
    turn_id: str
    tool_name: str
    input: str
    """How it begins."""
    output: str
    """How the original begins."""
    characters: int
    """Of the original, as it is stored."""
    tokens: int
    """Of the original, estimated."""
    compacted_seq: int
    """The event that took it out."""
    compacted_at: datetime
    is_in_context: bool
    """Whether its message is in the context still, with a mark in place of the output."""

    @property
    def place(self) -> Place:
        """Where a page goes on after it."""
        return self.compacted_seq, self.message_seq, self.part_index


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneTally:
    """The tombstones of a session."""

    count: int
    tokens: int
    events: int
    """How often something was pruned."""


def list_tombstones(
    session_id: str, *, tool: str = "", part_id: str = "", before: Place | None = None, limit: int = 50
) -> list[Tombstone]:
    """Tombstones of a session, the newest first, after ``before``; of one tool, or the one of one part; one query."""
    rows = _tombstones(session_id)
    if tool:
        rows = rows.filter(tool_name=encode_text(tool))
    if part_id:
        rows = rows.filter(id=encode_text(part_id))
    if before is not None:
        rows = rows.filter(_older_than(*before))
    active = ContextItem.objects.filter(
        session_id=session_id, item_type="message", item_id=OuterRef("message_id"), removed_seq__isnull=True
    )
    columns = {
        "input": Left("tool_input", HEAD),
        "head": Left("output", HEAD),
        "characters": Length("output"),
        "in_context": Exists(active),
    }
    plain = ("id", "part_index", "message_id", "tool_name", "output_token_estimate", "compacted_seq", "compacted_at")
    ordered = rows.order_by("-compacted_seq", "-message__seq", "-part_index")
    return [_tombstone(row) for row in ordered.values(*plain, "message__seq", "message__turn_id", **columns)[:limit]]


def tally_tombstones(session_id: str) -> TombstoneTally:
    """How many tombstones a session has, and what they took out; one query."""
    sums = _tombstones(session_id).aggregate(
        count=Count("id"), tokens=Sum("output_token_estimate", default=0), events=Count("compacted_seq", distinct=True)
    )
    return TombstoneTally(**sums)


def tools_of_tombstones(session_id: str) -> list[str]:
    """The names of the tools whose outputs were pruned, the most frequent first."""
    rows = _tombstones(session_id).values("tool_name").annotate(uses=Count("id")).order_by("-uses", "tool_name")
    return [decode_text(row["tool_name"]) for row in rows[:MOST_TOOLS] if row["tool_name"]]


def _tombstones(session_id: str) -> QuerySet[MessagePart]:
    return MessagePart.objects.filter(session_id=session_id, part_type="tool", compacted_seq__isnull=False)


def _older_than(seq: int, message_seq: int, index: int) -> Q:
    same = Q(compacted_seq=seq)
    return (
        Q(compacted_seq__lt=seq)
        | same & Q(message__seq__lt=message_seq)
        | same & Q(message__seq=message_seq, part_index__lt=index)
    )


def _tombstone(row: dict[str, Any]) -> Tombstone:
    return Tombstone(
        part_id=row["id"],
        part_index=row["part_index"],
        message_id=row["message_id"],
        message_seq=row["message__seq"],
        turn_id=row["message__turn_id"],
        tool_name=decode_text(row["tool_name"]),
        input=decode_text(row["input"]),
        output=decode_text(row["head"] or ""),
        characters=row["characters"] or 0,
        tokens=row["output_token_estimate"] or 0,
        compacted_seq=row["compacted_seq"],
        compacted_at=row["compacted_at"],
        is_in_context=row["in_context"],
    )
