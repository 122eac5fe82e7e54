"""The stream journal: what a running answer said so far, durable every quarter of a second."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from mnesis_core.text import encode_text
from sessions_app import live
from sessions_app.models import StreamJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """More text of one part of a running answer."""

    part_index: int
    part_type: str
    offset: int
    """Characters of the part before this piece."""
    text: str


@transaction.atomic
def append_journal(*, session_id: str, message_id: str, pieces: list[Piece]) -> None:
    """Make pieces of a running answer durable."""
    StreamJournal.objects.bulk_create(
        [
            StreamJournal(
                session_id=session_id,
                message_id=message_id,
                part_index=piece.part_index,
                part_type=piece.part_type,
                offset=piece.offset,
                text=encode_text(piece.text),
            )
            for piece in pieces
        ]
    )
    live.announce(session_id)
    transaction.on_commit(lambda: live.wake(session_id))


def delete_journal(*, message_id: str) -> None:
    """Forget the pieces after they were folded into parts: the one deletion there is. Call it in that transaction."""
    StreamJournal.objects.filter(message_id=message_id).delete()
