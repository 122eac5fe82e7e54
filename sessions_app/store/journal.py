"""The stream journal: what a running answer said so far, durable every quarter of a second."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from mnesis_core.errors import Conflict
from mnesis_core.text import encode_text
from sessions_app import live
from sessions_app.ledger import change
from sessions_app.models import Message, StreamJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """More text of one part of a running answer."""

    part_index: int
    part_type: str
    offset: int
    """Characters of the part before this piece."""
    text: str


def append_journal(*, session_id: str, message_id: str, pieces: list[Piece], is_retry: bool = False) -> None:
    """Make pieces of a running answer durable.

    :param is_retry: some of them may be there: an earlier call broke off, perhaps after its commit
    :raises Conflict: the message is finalised: somebody else ended the turn while this process slept.
    """
    # Under the session's lock, so that recovery has either folded these pieces or was here first.
    with change(session_id) as record:
        if not Message.objects.filter(id=message_id, session_id=session_id, finalized_at__isnull=True).exists():
            raise Conflict("this answer has ended already, or was taken over", message_id=message_id)
        written = _written(message_id) if is_retry else frozenset()
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
                if (piece.part_index, piece.offset) not in written
            ]
        )
        live.announce(record.cursor, session_id)
        transaction.on_commit(lambda: live.wake(session_id))


def _written(message_id: str) -> frozenset[tuple[int, int]]:
    """Where pieces of a message begin."""
    return frozenset(StreamJournal.objects.filter(message_id=message_id).values_list("part_index", "offset"))


def delete_journal(*, message_id: str) -> None:
    """Forget the pieces after they were folded into parts: the one deletion there is. Call it in that transaction."""
    StreamJournal.objects.filter(message_id=message_id).delete()
