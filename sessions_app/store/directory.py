"""The only writer of the directory: which sessions there are, whose, and how far each was at some time.

There is one chain for the whole site, so writers wait for each other. An entry is written when a session is created,
imported or deleted, as the last thing of that transaction, and by each web process every five minutes; never by a turn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from mnesis_core.events import DirectoryType
from mnesis_core.ledger import GENESIS, canonical_body, entry_hash
from sessions_app.binding import time_text
from sessions_app.group_commit import at_end, durable_transaction
from sessions_app.models import DirectoryEntry
from sessions_app.statements import Table, fetch, run

WRITER = 7_663_912
"""The advisory lock that writers take on PostgreSQL; no other lock has its number. SQLite has one writer anyway."""
RECORD_SECONDS = 300.0
"""Between two looks of a process for sessions that have gone on."""
MOST_RECORDED = 10_000
"""At one look; the next one goes on."""
ROWS_AT_ONCE = 500
SLACK = timedelta(hours=1)
"""What a session says of its last change is when that began; and a clock may have been set back meanwhile."""

_DIRECTORY = Table(DirectoryEntry)
_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_LAST = "SELECT seq, hash FROM directory_entries ORDER BY seq DESC LIMIT 1"
_SESSION = "SELECT owner_id, event_seq, head_hash FROM sessions WHERE id = %s"
# By way of the people: the index of a person's sessions by their last change is there, and another one would cost every change.
_CHANGED = f"""
    SELECT s.id, s.owner_id, s.event_seq, s.head_hash
    FROM {get_user_model()._meta.db_table} u JOIN sessions s ON s.owner_id = u.id AND s.updated_at > %s
    WHERE s.event_seq > COALESCE((
        SELECT d.entries FROM directory_entries d WHERE d.session_id = s.id ORDER BY d.seq DESC LIMIT 1), 0)
    LIMIT {MOST_RECORDED}"""  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A session as the directory tells of it."""

    session_id: str
    owner_id: int
    entries: int
    head: str


def enter(type: DirectoryType, place: Place) -> None:
    """Tell of a session, as the last thing of the transaction."""
    at_end(lambda: _append(type, [place]))


def enter_imported(session_id: str) -> None:
    """Enter a session that was brought here from elsewhere, with its owner here."""
    [(owner_id, entries, head)] = fetch(_SESSION, [session_id])
    place = Place(session_id=session_id, owner_id=owner_id, entries=entries, head=head)
    enter(DirectoryType.SESSION_IMPORTED, place)


def record_heads(*, since: datetime | None = None) -> int:
    """Tell how far sessions are that were changed since then, or ever; returns how many, ``MOST_RECORDED`` at the most."""
    earliest = datetime(1, 1, 2, tzinfo=UTC) if since is None else since - SLACK
    rows = fetch(_CHANGED, [connection.ops.adapt_datetimefield_value(earliest)])
    places = [Place(session_id=id, owner_id=owner, entries=entries, head=head) for id, owner, entries, head in rows]
    for start in range(0, len(places), ROWS_AT_ONCE):
        with durable_transaction():
            _append(DirectoryType.SESSION_RECORDED, places[start : start + ROWS_AT_ONCE])
    return len(places)


class Recorder:
    """Records heads now and then, as long as its process looks."""

    def __init__(self) -> None:
        self._looked_at = time.monotonic()  # not at once: most commands are over before the first look
        self._since: datetime | None = None

    def look(self) -> None:
        """Record what has changed, unless that was done a moment ago."""
        now, began = time.monotonic(), timezone.now()
        if now - self._looked_at < RECORD_SECONDS:
            return
        self._looked_at = now
        if record_heads(since=self._since) < MOST_RECORDED:
            self._since = began


recorder = Recorder()


def _append(type: DirectoryType, places: Sequence[Place]) -> None:
    now = timezone.now()
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            run(cursor, _LOCK, [WRITER])
        last, head = run(cursor, _LAST).fetchone() or (0, GENESIS)
        rows = []
        for seq, place in enumerate(places, last + 1):
            body = canonical_body(
                {
                    "session_id": place.session_id,
                    "owner_id": place.owner_id,
                    "entries": place.entries,
                    "head": place.head,
                    "at": time_text(now),
                }
            )
            hash = entry_hash(prev_hash=head, seq=seq, type=type.value, body=body)
            named = {"session_id": place.session_id, "type": type.value, "entries": place.entries, "body": body}
            rows.append(_DIRECTORY.row(seq=seq, **named, prev_hash=head, hash=hash, created_at=now))
            head = hash
        _DIRECTORY.insert(cursor, rows)
