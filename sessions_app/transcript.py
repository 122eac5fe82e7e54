"""What the session page shows of the record: messages with the beginnings of their parts, never a whole long text.

A page of fifty messages is three queries, and one more where tools launched sub-agents, and a bounded number of
characters, whatever the messages hold; the rest of a text is read piece by piece (``load_piece``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, QuerySet
from django.db.models.functions import Length, Substr

from mnesis_core.errors import MessageNotFoundError, PartNotFoundError
from mnesis_core.inbox import INBOX
from mnesis_core.messages import TextPart
from mnesis_core.record import TurnState
from mnesis_core.text import decode_text, encode_text
from sessions_app.models import Message, MessagePart
from sessions_app.queries import load_live_texts, load_turn, usage_of
from sessions_app.relatives import LAUNCHING_TOOLS, list_launched
from sessions_app.rendering import MARKDOWN_LIMIT, PIECE, LongText, render_markdown, show_invisible
from sessions_app.shown import ShownLive, ShownMessage, ShownPart
from sessions_app.shown_parts import part_heads, show_part, stretch

CHUNK = 50
"""Messages of the first paint and of every later load."""
RECORDS = 50
"""Imported records of one load."""

FIELDS = {
    "content": "content",
    "input": "tool_input",
    "output": "output",
    "error": "error_message",
    "late": "late_output",
}
"""The names that addresses use, and the columns behind them."""


def load_chunk(
    session_id: str, *, before: int | None = None, after: int | None = None, limit: int = CHUNK
) -> list[ShownMessage]:
    """Messages of a session, oldest first: the newest ones before ``before``, or the first ones after ``after``."""
    rows = _messages(session_id)
    if after is not None:
        return _shown(list(rows.filter(seq__gt=after).order_by("seq")[:limit]))
    if before is not None:
        rows = rows.filter(seq__lt=before)
    return _shown(list(rows.order_by("-seq")[:limit])[::-1])


def load_message(session_id: str, message_id: str) -> ShownMessage:
    """One message of a session, with what it says so far if it is a running answer.

    :raises MessageNotFoundError: the session has no such message.
    """
    row = _messages(session_id).filter(id=encode_text(message_id)).first()
    if row is None:
        raise MessageNotFoundError(message_id=message_id)
    shown = _shown([row])[0]
    return replace(shown, live=_said_so_far(session_id, shown)) if shown.is_running else shown


def _said_so_far(session_id: str, shown: ShownMessage) -> tuple[ShownLive, ...]:
    recorded = {part.index for part in shown.parts}
    texts = [text for text in load_live_texts(session_id) if text.message_id == shown.id]
    return tuple(
        ShownLive(index=text.part_index, html=render_markdown(text.text), length=len(text.text))
        for text in texts
        if text.part_type == TextPart.type and text.part_index not in recorded and len(text.text) <= MARKDOWN_LIMIT
    )


def load_piece(session_id: str, part_id: str, *, field: str, offset: int, length: int = PIECE) -> LongText:
    """One stretch of a part's text, from ``offset`` stored characters on.

    :raises PartNotFoundError: the session has no such part, or the part no such text.
    """
    column = FIELDS.get(field)
    rows = MessagePart.objects.filter(session_id=session_id, id=encode_text(part_id))
    row = rows.values_list(Substr(column, offset + 1, length), Length(column)).first() if column else None
    if row is None or row[0] is None:
        raise PartNotFoundError(part_id=part_id)
    return stretch(part_id, field, row[0], offset=offset, length=row[1])


def load_whole_text(session_id: str, part_id: str, *, field: str) -> str:
    """One text of a part, whole, as it was received.

    :raises PartNotFoundError: the session has no such part, or the part no such text.
    """
    column = FIELDS.get(field)
    rows = MessagePart.objects.filter(session_id=session_id, id=encode_text(part_id))
    text = rows.values_list(column, flat=True).first() if column else None
    if text is None:
        raise PartNotFoundError(part_id=part_id)
    return decode_text(text)


def load_records(session_id: str, message_id: str, *, after: int) -> list[ShownPart]:
    """Imported records kept with a message, after the part index ``after``."""
    rows = MessagePart.objects.filter(
        session_id=session_id, message_id=encode_text(message_id), part_type="data", part_index__gt=after
    )
    return [show_part(row) for row in part_heads(rows.order_by("part_index"))[:RECORDS]]


def _messages(session_id: str) -> QuerySet[Any]:
    later = Message.objects.filter(turn_id=OuterRef("turn_id"), seq__gt=OuterRef("seq"))
    rows: QuerySet[Any] = Message.objects.filter(session_id=session_id)
    shown: QuerySet[Any] = rows.select_related("turn").defer("turn__options").annotate(ends_turn=~Exists(later))
    return shown


def _shown(rows: Sequence[Any]) -> list[ShownMessage]:
    ids = [row.id for row in rows]
    all_parts = MessagePart.objects.filter(message_id__in=ids)
    asking = _asking(rows)
    heads = list(part_heads(all_parts.exclude(part_type="data").order_by("message_id", "part_index")))
    calls = [part["id"] for part in heads if part["tool_name"].lower() in LAUNCHING_TOOLS]
    launched = list_launched(rows[0].session_id, calls) if calls else {}
    parts: dict[str, list[ShownPart]] = defaultdict(list)
    for part in heads:
        shown = replace(show_part(part), asks=asking.get(part["id"], ""), launched=launched.get(part["id"], ()))
        parts[part["message_id"]].append(shown)
    counted = all_parts.filter(part_type="data").values("message_id").annotate(number=Count("id"))
    records = dict(counted.values_list("message_id", F("number")))
    return [_message(row, tuple(parts[row.id]), records.get(row.id, 0)) for row in rows]


def _asking(rows: Sequence[Any]) -> dict[str, str]:
    """By part: whose word the calls of a suspended turn wait for. A session has one such turn at the most."""
    turn_id = next((row.turn_id for row in rows if row.turn.state == TurnState.SUSPENDED), None)
    if turn_id is None:
        return {}
    turn = load_turn(turn_id, session_id=rows[0].session_id)
    return {waiting.part_id: waiting.reason.value for waiting in turn.waits_for}


def _message(row: Any, parts: tuple[ShownPart, ...], record_count: int) -> ShownMessage:
    code, message = row.error_code, row.error_message
    if code is None and row.ends_turn:
        code, message = row.turn.error_code, row.turn.error_message
    return ShownMessage(
        id=row.id,
        seq=row.seq,
        turn_id=row.turn_id,
        role=row.role,
        model=show_invisible(decode_text(row.model)),
        is_summary=row.is_summary,
        created_at=row.created_at,
        parts=parts,
        record_count=record_count,
        is_running=row.role == "assistant" and row.finalized_at is None and row.turn.state == "running",
        ending=_ending(row, code),
        error_code=code or "",
        error_message=show_invisible(decode_text(message or "")),
        usage=usage_of(row),
        is_from_inbox=row.role == "user" and row.turn.origin == INBOX,
        ends_turn=row.ends_turn and row.turn.ended_at is not None,
    )


def _ending(row: Any, error_code: str | None) -> str:
    state = row.turn.state if row.ends_turn else "completed"
    if row.outcome == "cancelled" or state == "cancelled":
        return "cancelled"
    if state in ("interrupted", "incomplete", "failed"):
        return str(state)
    if row.outcome in ("failed", "incomplete") and not row.ends_turn:
        return "passed_on"
    if row.outcome in ("broken", "incomplete", "failed"):
        return "interrupted" if row.outcome == "broken" else str(row.outcome)
    if error_code:
        return "failed"
    return "length" if row.finish_reason in ("length", "max_tokens") else ""
