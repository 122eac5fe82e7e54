"""The search index against the record: whether it has every text that can be found, and nothing else.

It is compared by its entries, and by the word of the session that each of them holds; the other words of an entry are not
made again. ``manage.py rebuild_search`` makes it as it should be.
"""
# ruff: noqa: S608 - the names in these statements are ours.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import connections

from sessions_app.search_engines import COLUMNS, engine
from sessions_app.search_index import is_findable, starts_of, texts_of_session
from sessions_app.statements import fetch

CURE = "'manage.py rebuild_search' makes the index again"
ENTRIES_AT_A_TIME = 4_000
_SESSION = (
    "SELECT owner_id, (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id), deleted_at IS NULL"
    " FROM sessions s WHERE id = %s"
)
"""Messages are counted: what the session says of their number may be damaged, and large."""
_FOUND = (
    f"SELECT id, {COLUMNS} FROM search_entries WHERE session_id = %s AND id > %s ORDER BY id LIMIT {ENTRIES_AT_A_TIME}"
)
_STRAYS = """
    SELECT e.session_id, COUNT(*) FROM search_entries e
    WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = e.session_id) GROUP BY e.session_id ORDER BY e.session_id"""

Columns = tuple[Any, ...]
"""The values of an entry, in the order of ``COLUMNS``."""


def search_differences(session_id: str, *, using: str) -> Iterator[str]:
    """A sentence for each way in which the index of an existing session differs from its parts."""
    [(owner_id, last_seq, is_searched)] = fetch(_SESSION, [session_id], using=using)
    # Sums of hashes: what is equal, which is nearly always so, need not be held.
    found = wanted = entries = 0
    for columns in _found(session_id, using):
        found, entries = found + hash(columns), entries + 1
    if not is_searched and not entries:
        return
    for columns in _wanted(session_id, owner_id, last_seq, using):
        wanted += hash(columns)
    if found != wanted:
        yield from _told(set(_found(session_id, using)), set(_wanted(session_id, owner_id, last_seq, using)))
    [(marked,)] = fetch(*engine(connections[using]).count_of(session_id), using=using)
    if marked != entries:
        yield f"the words of {entries - marked:,} entries of the search index are gone; {CURE}"


def stray_entries(*, using: str) -> Iterator[str]:
    """A sentence for each session of which there are entries, and which is not there."""
    for session_id, count in fetch(_STRAYS, using=using):
        yield f"{count:,} entries of the search index are of {session_id}, which is not there; {CURE}"


def _found(session_id: str, using: str) -> Iterator[Columns]:
    last = 0
    while rows := fetch(_FOUND, [session_id, last], using=using):
        yield from (tuple(columns) for _, *columns in rows)
        if rows[-1][0] <= last:
            raise ValueError("the rows of a damaged index come in no order, and without an end")
        last = rows[-1][0]


def _wanted(session_id: str, owner_id: int, last_seq: int, using: str) -> Iterator[Columns]:
    with connections[using].cursor() as cursor:
        for texts in texts_of_session(cursor, session_id, last_seq=last_seq):
            for text in filter(is_findable, texts):
                place = (text.source_id, text.field, text.first_seq, text.last_seq)
                yield from ((owner_id, session_id, text.kind, *place, start) for start in starts_of(text))


def _told(found: set[Columns], wanted: set[Columns]) -> Iterator[str]:
    for these, words in (
        (wanted - found, "are not in the search index"),
        (found - wanted, "of the search index are of no text"),
    ):
        if these:
            _, _, kind, source_id, field, *_ = min(these)
            yield f"{len(these):,} entries {words}, the first of them {kind} {source_id} {field}; {CURE}"
    if found == wanted:
        yield f"entries stand twice in the search index; {CURE}"
