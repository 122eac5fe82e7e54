"""What a running answer says so far."""

from __future__ import annotations

from collections import defaultdict

from mnesis_core.record import LiveText
from mnesis_core.text import decode_text
from sessions_app import live
from sessions_app.models import StreamJournal


def load_live_texts(session_id: str) -> list[LiveText]:
    """What the running answer says so far: from this process if it runs here, else from the journal."""
    here = live.hub.texts(session_id)
    return journal_texts(session_id) if here is None else here


def journal_texts(session_id: str, *, message_id: str | None = None) -> list[LiveText]:
    """The journal's pieces put together, a text for each part."""
    rows = StreamJournal.objects.filter(session_id=session_id)
    if message_id is not None:
        rows = rows.filter(message_id=message_id)
    pieces: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for row in rows.order_by("message_id", "part_index", "offset"):
        pieces[row.message_id, row.part_index, row.part_type].append(row.text)
    return [
        LiveText(message_id=id, part_index=index, part_type=kind, text=decode_text("".join(texts)))
        for (id, index, kind), texts in pieces.items()
    ]
