"""A stretch of a session's entries, followed from its first to its last: what it proves, and what it comes to.

Stretches of one session can be followed by several processes at once, each from the hash before its first entry; put
together in order, they say what one look from the first entry to the last would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
from django.db import connections

from audit_app.proof.bound_rows import Accounts, BoundRows, Finding, entry_problem
from mnesis_core.context.replay import Projection
from mnesis_core.events import EventType
from mnesis_core.ledger import GENESIS
from sessions_app.database.commitments import time_in_sql
from sessions_app.database.fast_sql import fetch

ENTRIES_AT_A_TIME = 4_000
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
"""What a body that somebody forged may raise."""

_ENTRIES = (
    "SELECT seq, type, body, prev_hash, hash, {at} FROM events"
    " WHERE session_id = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s"
)
_BEFORE = "SELECT seq, hash FROM events WHERE session_id = %s AND seq > 0 AND seq <= %s ORDER BY seq DESC LIMIT 1"
_ENDS = (
    "SELECT seq FROM (SELECT seq, ROW_NUMBER() OVER (ORDER BY seq) AS place, LEAD(seq) OVER (ORDER BY seq) AS next"
    " FROM events WHERE session_id = %s AND seq > 0) AS entries WHERE place / %s * %s = place OR next IS NULL ORDER BY seq"
)
_NO_END = 2**63 - 1

Progress = Callable[[int], None]
"""Entries done so far."""
DatedEntry = tuple[int, str, str, str, str, str]
"""seq, type, body, prev_hash, hash, and the time that its row says."""


@dataclass(slots=True)
class Stretch:
    """What following a stretch came to."""

    seq: int
    """Of its last entry."""
    hash: str
    entries: int = 0
    commitments: int = 0
    projection: Projection = field(default_factory=Projection)
    accounts: Accounts = field(default_factory=Accounts)
    findings: list[Finding] = field(default_factory=list)
    began_by: tuple[Any, ...] = ()
    """The account that began the session, where it tells of that."""
    is_unbound: bool = False
    """Whether it tells of a beginning before rows were bound to the ledger."""

    def add(self, later: Stretch) -> None:
        """Take in the next stretch."""
        self.seq, self.hash = later.seq, later.hash
        self.entries += later.entries
        self.commitments += later.commitments
        self.projection.add(later.projection)
        self.accounts.add(later.accounts)
        self.findings += later.findings
        self.began_by = self.began_by or later.began_by
        self.is_unbound = self.is_unbound or later.is_unbound


def follow(
    session_id: str,
    after: int = 0,
    upto: int = _NO_END,
    *,
    using: str = "default",
    progress: Progress = lambda seq: None,
) -> Stretch:
    """Follow the entries of a session, which exists, after one and up to another."""
    [(seq, hash), *_] = [*fetch(_BEFORE, [session_id, after], using=using), (0, GENESIS)]
    rows = BoundRows(session_id, using=using)
    stretch = Stretch(seq, hash, accounts=rows.accounts)
    while entries := read_entries(session_id, stretch.seq, upto, using=using):
        if entries[-1][0] <= stretch.seq:
            raise ValueError("the entries of a damaged table come in no order, and without an end")
        for entry in entries:
            _take(stretch, entry, rows)
        stretch.findings += rows.check()
        progress(stretch.seq)
    return stretch


def read_entries(session_id: str, after: int, upto: int = _NO_END, *, using: str = "default") -> list[DatedEntry]:
    """The next entries of a session's ledger, some thousand at a time."""
    sql = _ENTRIES.format(at=time_in_sql("created_at", connections[using].vendor))
    return cast("list[DatedEntry]", fetch(sql, [session_id, after, upto, ENTRIES_AT_A_TIME], using=using))


def stretch_ends(session_id: str, entries: int, *, using: str = "default") -> list[int]:
    """The seq of the last entry of each of a session's stretches, which are of so many entries that are there."""
    return [seq for (seq,) in fetch(_ENDS, [session_id, entries, entries], using=using)]


def _take(stretch: Stretch, entry: DatedEntry, rows: BoundRows) -> None:
    seq, type, body, _, hash, at = entry
    if words := entry_problem(stretch.seq, stretch.hash, entry[:5]):
        stretch.findings.append(Finding(seq, "chain", words))
    stretch.seq, stretch.hash = seq, hash
    stretch.entries += 1
    try:
        data = orjson.loads(body)
        stretch.projection.apply(seq, type, data)
        bound = data.get("rows", ())
        rows.take(seq, bound)
    except UNREADABLE:
        stretch.findings.append(Finding(seq, "chain", f"the body of entry {seq} says nothing that could be understood"))
        return
    stretch.commitments += len(bound)
    if at != data.get("at", at):
        stretch.findings.append(Finding(seq, "row", f"events {seq} created_at"))
    if type == EventType.SESSION_CREATED:
        stretch.is_unbound, stretch.began_by = not bound, (data.get("owner_id"),)
