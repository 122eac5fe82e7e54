"""Search in the record: every word that was ever said, in context or not.

A first, literal search; indexed full-text search and linear-time patterns come with the memory tools.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from mnesis_core.text import decode_text, encode_text
from sessions_app.models import Message, MessagePart

SNIPPET_CHARACTERS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One part that holds what was looked for."""

    message_id: str
    message_seq: int
    role: str
    part_id: str
    part_type: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Hits, newest first, and how much was searched."""

    hits: tuple[Hit, ...]
    messages_searched: int
    more: bool
    """True when there are more hits than were asked for."""


def search_session(session_id: str, text: str, *, limit: int = 20) -> SearchResult:
    """Find a literal text, case-insensitively, in what was said, thought, asked of tools and answered by them."""
    wanted = encode_text(text)
    rows = (
        MessagePart.objects.filter(session_id=session_id)
        .exclude(part_type="data")
        .filter(
            Q(content__icontains=wanted)
            | Q(tool_input__icontains=wanted)
            | Q(output__icontains=wanted)
            | Q(error_message__icontains=wanted)
        )
        .select_related("message")
        .order_by("-message__seq", "-part_index")[: limit + 1]
    )
    found = list(rows)
    return SearchResult(
        hits=tuple(_hit(row, wanted) for row in found[:limit]),
        messages_searched=Message.objects.filter(session_id=session_id).count(),
        more=len(found) > limit,
    )


def _hit(row: MessagePart, wanted: str) -> Hit:
    texts = (row.content, row.tool_input, row.output or "", row.error_message or "")
    text = next((text for text in texts if wanted.casefold() in text.casefold()), "")
    return Hit(
        message_id=row.message_id,
        message_seq=row.message.seq,
        role=row.message.role,
        part_id=row.id,
        part_type=row.part_type,
        snippet=_snippet(decode_text(text), text.casefold().find(wanted.casefold())),
    )


def _snippet(text: str, at: int) -> str:
    start = max(0, at - SNIPPET_CHARACTERS // 3)
    cut = text[start : start + SNIPPET_CHARACTERS]
    return ("…" if start else "") + cut + ("…" if start + SNIPPET_CHARACTERS < len(text) else "")
