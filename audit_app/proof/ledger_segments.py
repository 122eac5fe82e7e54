"""Segments of a session's ledger, followed from first entry to last.

Several processes can follow segments of one session at once, each from the hash before its first entry. Added up in
order, segments give the same result as one pass over all entries.
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
# Raised by forged bodies.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)

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
"""Called with the number of entries done so far."""
DatedEntry = tuple[int, str, str, str, str, str]
"""seq, type, body, prev_hash, hash, and the time in the row."""


@dataclass(slots=True)
class LedgerSegment:
    """The result of following a segment: the head it ends at, what it proves and what it comes to."""

    seq: int
    hash: str
    entries: int = 0
    commitments: int = 0
    projection: Projection = field(default_factory=Projection)
    accounts: Accounts = field(default_factory=Accounts)
    findings: list[Finding] = field(default_factory=list)
    # The account that began the session, if the segment holds its first entry.
    began_by: tuple[Any, ...] = ()
    # The session began before rows were bound to the ledger.
    is_unbound: bool = False

    def add(self, later: LedgerSegment) -> None:
        """Append the next segment of the same session."""
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
) -> LedgerSegment:
    """Follow the entries of an existing session with ``after < seq <= upto``."""
    [(seq, hash), *_] = [*fetch(_BEFORE, [session_id, after], using=using), (0, GENESIS)]
    rows = BoundRows(session_id, using=using)
    segment = LedgerSegment(seq, hash, accounts=rows.accounts)
    while entries := read_entries(session_id, segment.seq, upto, using=using):
        if entries[-1][0] <= segment.seq:
            raise ValueError("the entries of a damaged table come in no order, and without an end")
        for entry in entries:
            _take(segment, entry, rows)
        segment.findings += rows.check()
        progress(segment.seq)
    return segment


def read_entries(session_id: str, after: int, upto: int = _NO_END, *, using: str = "default") -> list[DatedEntry]:
    """Return the next ``ENTRIES_AT_A_TIME`` entries of a session's ledger."""
    sql = _ENTRIES.format(at=time_in_sql("created_at", connections[using].vendor))
    return cast("list[DatedEntry]", fetch(sql, [session_id, after, upto, ENTRIES_AT_A_TIME], using=using))


def segment_ends(session_id: str, entries: int, *, using: str = "default") -> list[int]:
    """Return the seq of the last entry of each segment, of ``entries`` existing entries each."""
    return [seq for (seq,) in fetch(_ENDS, [session_id, entries, entries], using=using)]


def _take(segment: LedgerSegment, entry: DatedEntry, rows: BoundRows) -> None:
    seq, type, body, _, hash, at = entry
    if words := entry_problem(segment.seq, segment.hash, entry[:5]):
        segment.findings.append(Finding(seq, "chain", words))
    segment.seq, segment.hash = seq, hash
    segment.entries += 1
    try:
        data = orjson.loads(body)
        segment.projection.apply(seq, type, data)
        bound = data.get("rows", ())
        rows.take(seq, bound)
    except UNREADABLE:
        segment.findings.append(Finding(seq, "chain", f"the body of entry {seq} says nothing that could be understood"))
        return
    segment.commitments += len(bound)
    if at != data.get("at", at):
        segment.findings.append(Finding(seq, "row", f"events {seq} created_at"))
    if type == EventType.SESSION_CREATED:
        segment.is_unbound, segment.began_by = not bound, (data.get("owner_id"),)
