"""The directory of sessions against the sessions: is any gone, cut off, unknown to it, or somebody else's now?

The directory is a chain of its own, so whoever takes a session away with all that is its own has to rewrite that too. What
came after its last entry about a session it cannot know: a cut there needs a head that was kept outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import orjson
from django.db import connections

from audit_app.bound_rows import Finding
from audit_app.chains import Entry, entry_problem
from mnesis_core.ledger import GENESIS
from sessions_app.binding import time_in_sql
from sessions_app.database import snapshot
from sessions_app.statements import fetch

ENTRIES_AT_A_TIME = 4_000
_ALL = "SELECT seq, type, body, prev_hash, hash, session_id, entries FROM directory_entries WHERE seq > %s ORDER BY seq LIMIT %s"
_OF_SESSION = (
    "SELECT d.seq, d.type, d.body, d.prev_hash, d.hash, d.entries, {at}, e.hash FROM directory_entries d"
    " LEFT JOIN events e ON e.session_id = d.session_id AND e.seq = d.entries WHERE d.session_id = %s ORDER BY d.seq"
)
_OWNER = "SELECT owner_id FROM sessions WHERE id = %s"


def directory_findings(*, using: str) -> Iterator[tuple[str, Finding]]:
    """What is wrong with the whole directory, and which sessions are gone that it tells of; each with its session."""
    with snapshot(using=using):
        told: dict[str, int] = {}
        seq, head = 0, GENESIS
        while rows := fetch(_ALL, [seq, ENTRIES_AT_A_TIME], using=using):
            if rows[-1][0] <= seq:
                raise ValueError("the entries of a damaged table come in no order, and without an end")
            for *entry, session_id, entries in rows:
                if words := entry_problem(seq, head, cast("Entry", tuple(entry))):
                    yield "", Finding(entry[0], "chain", f"directory_entries: {words}")
                seq, head = entry[0], entry[4]
                told[session_id] = entries
        there = {id for (id,) in fetch("SELECT id FROM sessions", using=using)}
    for session_id, entries in told.items():
        if session_id not in there:
            yield (
                session_id,
                Finding(entries, "missing", f"sessions {session_id}: gone, with {entries:,} entries or more"),
            )


def findings_of_session(session_id: str, *, using: str) -> Iterator[Finding]:
    """How an existing session differs from what the directory says."""
    sql = _OF_SESSION.format(at=time_in_sql("d.created_at", connections[using].vendor))
    rows = fetch(sql, [session_id], using=using)
    told: Any = {}
    for seq, type, body, prev_hash, hash, entries, at, found in rows:
        told = _told(body)
        if entry_problem(seq - 1, prev_hash, (seq, type, body, prev_hash, hash)):
            yield Finding(0, "chain", f"directory_entries: entry {seq} is not what was hashed")
        elif (told.get("session_id"), told.get("entries"), told.get("at")) != (session_id, entries, at):
            yield Finding(0, "row", f"directory_entries {seq}")
        elif found is None:
            yield Finding(entries, "head", f"the directory has seen entry {entries}, which is not there")
        elif found != told.get("head"):
            yield Finding(entries, "head", f"entry {entries} is another one than the directory has seen")
    if not rows:
        yield Finding(0, "unexplained", f"sessions {session_id}: the directory does not tell of it")
        return
    [(owner_id,)] = fetch(_OWNER, [session_id], using=using)
    if owner_id != told.get("owner_id"):
        words = f"it belongs to account {owner_id}, by the directory to account {told.get('owner_id')}"
        yield Finding(0, "owner", f"sessions {session_id}: {words}")


def _told(body: Any) -> Any:
    try:
        told = orjson.loads(body)
    except (ValueError, TypeError):
        return {}
    return told if isinstance(told, dict) else {}
