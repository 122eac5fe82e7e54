"""The only writer of events: one change of one session is one transaction, one lock, one stretch of the chain.

    with change(session_id) as record:
        turn_id = store.start_turn(record, …)
        store.append_message(record, …)

Rows and events commit together or not at all. Whoever follows the session is told after the commit; that
word may be lost, the ledger cannot (decision 28).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from mnesis_core.errors import SessionNotFoundError
from mnesis_core.events import EventType
from mnesis_core.ledger import canonical_body, entry_hash
from sessions_app import live
from sessions_app.models import Event
from sessions_app.statements import Table

_EVENTS = Table(Event)
_LOCK = (
    "SELECT event_seq, head_hash, message_seq, turn_seq, archived_at FROM sessions WHERE id = %s AND deleted_at IS NULL"
)
_UPDATE_HEAD = (
    "UPDATE sessions SET event_seq = %s, head_hash = %s, message_seq = %s, turn_seq = %s, updated_at = %s WHERE id = %s"
)


@dataclass(slots=True, kw_only=True)
class Change:
    """One session under its row lock. Hands out sequence numbers and collects events."""

    session_id: str
    now: datetime
    cursor: CursorWrapper
    """Of the transaction, for plain SQL."""
    event_seq: int
    head_hash: str
    message_seq: int
    turn_seq: int
    archived: bool
    entries: list[SimpleNamespace] = field(default_factory=list)

    def publish(self, type: EventType, /, **body: Any) -> int:
        """Add an event; returns its ``seq``. The body holds ids and commitments, never content."""
        self.event_seq += 1
        text = canonical_body(body)
        prev_hash = self.head_hash
        self.head_hash = entry_hash(prev_hash=prev_hash, seq=self.event_seq, type=type.value, body=text)
        entry = _EVENTS.row(
            session_id=self.session_id,
            seq=self.event_seq,
            type=type.value,
            body=text,
            prev_hash=prev_hash,
            hash=self.head_hash,
            created_at=self.now,
        )
        self.entries.append(entry)
        return self.event_seq

    @property
    def next_seq(self) -> int:
        """The ``seq`` that the next event will have."""
        return self.event_seq + 1

    def next_message_seq(self) -> int:
        """Take the next place among the session's messages."""
        self.message_seq += 1
        return self.message_seq

    def next_turn_seq(self) -> int:
        """Take the next place among the session's turns."""
        self.turn_seq += 1
        return self.turn_seq


@contextmanager
def change(session_id: str, *, now: datetime | None = None) -> Iterator[Change]:
    """Lock a session, let the block write rows and publish events, then write the events and the new head.

    :raises SessionNotFoundError: there is no such session, or it was deleted.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        record = _lock(cursor, session_id, now or timezone.now())
        yield record
        if record.entries:
            _write(record)
            transaction.on_commit(lambda: live.wake(session_id))


def _lock(cursor: CursorWrapper, session_id: str, now: datetime) -> Change:
    # SQLite knows no FOR UPDATE; its transactions are IMMEDIATE, so the whole database is ours already.
    row_lock = " FOR UPDATE" if connection.features.has_select_for_update else ""
    cursor.execute(_LOCK + row_lock, [session_id])
    head = cursor.fetchone()
    if head is None:
        raise SessionNotFoundError(session_id=session_id)
    event_seq, head_hash, message_seq, turn_seq, archived_at = head
    return Change(
        session_id=session_id,
        now=now,
        cursor=cursor,
        event_seq=event_seq,
        head_hash=head_hash,
        message_seq=message_seq,
        turn_seq=turn_seq,
        archived=archived_at is not None,
    )


def _write(record: Change) -> None:
    now = connection.ops.adapt_datetimefield_value(record.now)
    head = (record.event_seq, record.head_hash, record.message_seq, record.turn_seq, now, record.session_id)
    _EVENTS.insert(record.cursor, *record.entries)
    record.cursor.execute(_UPDATE_HEAD, head)
    live.announce(record.session_id)
