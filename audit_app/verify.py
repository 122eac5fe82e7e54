"""Story: prove that a session's ledger is whole and that its rows are what the ledger says, in both directions.

1. Each entry follows from the one before it, without a gap, and the session's head is the last one.
2. Each commitment of an entry to a row fits the row (``sessions_app.binding``): nothing was edited or taken away.
3. There is no row, and no value that is set once, of which no entry tells: nothing was put in.
4. Context items, states and counters are what the entries come to (``mnesis_core.replay``).

What cannot be seen from inside the database (an old copy put back, everything rewritten) needs a head that was kept
outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any

import django
import orjson
from django.db import connections

from audit_app.bound_rows import BoundRows, Claim, Finding
from audit_app.chains import Entry, entry_problem
from compaction_app.projection import load_projection
from mnesis_core.errors import Conflict
from mnesis_core.events import EventType
from mnesis_core.ledger import GENESIS
from mnesis_core.replay import Difference, Projection, differences
from sessions_app.binding import time_in_sql
from sessions_app.database import snapshot
from sessions_app.guards import guard_differences

ENTRIES_AT_A_TIME = 4_000
WORTH_PROCESSES = 50_000
"""Entries: with fewer, the start of another process takes longer than they do."""
_ENTRIES = (
    "SELECT seq, type, body, prev_hash, hash, {at} FROM events WHERE session_id = %s AND seq > %s ORDER BY seq LIMIT %s"
)
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
"""What a body that somebody forged may raise."""
_HEAD = "SELECT event_seq, head_hash, salt, owner_id FROM sessions WHERE id = %s"

Progress = Callable[[int], None]
"""Entries done so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it was written."""

    session: str
    """Empty for what concerns the whole database."""
    seq: int
    """The entry that says otherwise; 0 where no entry tells of it."""
    kind: str
    """``guard``, ``chain``, ``head``, ``row``, ``missing``, ``unexplained`` or ``replay``."""
    detail: str


@dataclass(slots=True, kw_only=True)
class Report:
    """What was looked at, and what was found."""

    sessions: int = 0
    entries: int = 0
    commitments: int = 0
    unbound_sessions: int = 0
    """Begun before rows were bound to the ledger: their older rows are proven by its replay alone."""
    moved: list[str] = field(default_factory=list)
    """Sessions that belong to another account than the one that began them: imported, or given away past the guards."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    def add(self, other: Report) -> None:
        """Take in another report."""
        self.sessions += other.sessions
        self.entries += other.entries
        self.commitments += other.commitments
        self.unbound_sessions += other.unbound_sessions
        self.moved += other.moved
        self.problems += other.problems

    def as_dict(self) -> dict[str, Any]:
        """``{ok, checked, problems}`` as plain JSON values."""
        checked = asdict(self)
        return {"ok": self.ok, "problems": checked.pop("problems"), "checked": checked}


def verify_guards(*, using: str = "default") -> Report:
    """Whether the database's guards are as declared."""
    found = guard_differences(connections[using])
    return Report(problems=[Problem(session="", seq=0, kind="guard", detail=sentence) for sentence in found])


def verify_session(session_id: str, *, using: str = "default", progress: Progress = lambda done: None) -> Report:
    """Everything that the ledger of one session, which exists, can prove; it may go on meanwhile."""
    with snapshot(using=using):
        return _Verification(session_id, using).run(progress)


def verify_sessions(session_ids: Sequence[str], *, jobs: int, progress: Progress = lambda done: None) -> Report:
    """Many sessions, by several processes where that is worth their start."""
    report = verify_guards()
    if jobs > 1 and len(session_ids) > 1 and _count_entries() > WORTH_PROCESSES:
        # Not forked: a connection to a database survives no fork.
        context = get_context("spawn")
        with ProcessPoolExecutor(
            min(jobs, len(session_ids)), mp_context=context, initializer=django.setup
        ) as processes:
            for part in processes.map(verify_session, session_ids):
                report.add(part)
                progress(report.entries)
        return report
    for session_id in session_ids:
        report.add(verify_session(session_id, progress=lambda done: progress(report.entries + done)))
    return report


def _count_entries() -> int:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT SUM(event_seq) FROM sessions")
        [count] = cursor.fetchone()
        return count or 0


def replay_session(session_id: str, *, using: str = "default", at: int | None = None) -> Projection:
    """A session's context items, states and counters from its entries alone: all of them, or up to entry ``at``.

    :raises Conflict: an entry says nothing that could be understood.
    """
    projection, seq = Projection(), 0
    while entries := read_entries(session_id, seq, using=using):
        for (seq, type, body, _, _), _ in entries:
            if at is not None and seq > at:
                return projection
            try:
                projection.apply(seq, type, orjson.loads(body))
            except UNREADABLE as error:
                raise Conflict(f"entry {seq} of {session_id} cannot be read; 'manage.py verify' says more") from error
    return projection


def check_replay(session_id: str, *, using: str = "default") -> list[Difference]:
    """Where the rows are not what the entries come to."""
    with snapshot(using=using):
        rows = load_projection(session_id, using=using)
        return list(differences(replay_session(session_id, using=using), rows))


def read_entries(session_id: str, after: int, *, using: str = "default") -> list[tuple[Entry, str]]:
    """The next entries of a session's ledger with the times of their rows, some thousand at a time."""
    sql = _ENTRIES.format(at=time_in_sql("created_at", connections[using].vendor))
    with connections[using].cursor() as cursor:
        cursor.execute(sql, [session_id, after, ENTRIES_AT_A_TIME])
        return [(entry[:5], entry[5]) for entry in cursor.fetchall()]


class _Verification:
    """One session's entries followed from the first to the last."""

    def __init__(self, session_id: str, using: str) -> None:
        self.session_id = session_id
        self.using = using
        with connections[using].cursor() as cursor:
            cursor.execute(_HEAD, [session_id])
            self.head_seq, self.head_hash, salt, self.owner_id = cursor.fetchone()
        self.rows = BoundRows(session_id, salt, connections[using])
        self.projection = Projection()
        self.seq, self.hash = 0, GENESIS
        self.report = Report(sessions=1)

    def run(self, progress: Progress) -> Report:
        while entries := read_entries(self.session_id, self.seq, using=self.using):
            claims = [claim for entry, at in entries for claim in self._follow(entry, at)]
            self.report.commitments += len(claims)
            self._found(self.rows.check(claims))
            progress(self.seq)
        self._found(self._head())
        self._found(self._replay())
        if not self.report.unbound_sessions:
            self._found(self.rows.finish())
            self._found(self._untold_values())
        return self.report

    def _follow(self, entry: Entry, at: str) -> list[Claim]:
        """Take in the next entry; returns what it says of rows."""
        seq, type, body, _, hash = entry
        if words := entry_problem(self.seq, self.hash, entry):
            self._found([Finding(seq, "chain", words)])
        self.seq, self.hash = seq, hash
        self.report.entries += 1
        try:
            data = orjson.loads(body)
            self.projection.apply(seq, type, data)
            claims = [Claim.of(seq, bound) for bound in data.get("rows", ())]
        except UNREADABLE:
            self._found([Finding(seq, "chain", f"the body of entry {seq} says nothing that could be understood")])
            return []
        if at != data.get("at", at):
            self._found([Finding(seq, "row", f"events {seq} created_at")])
        if type == EventType.SESSION_CREATED:
            self.report.unbound_sessions = int(not claims)
            self.report.moved = [self.session_id] if data.get("owner_id") != self.owner_id else []
        return claims

    def _head(self) -> Iterator[Finding]:
        if outside := self.rows.count_entries() - self.report.entries:
            yield Finding(0, "chain", f"{outside} entries stand outside of the chain")
        if (self.head_seq, self.head_hash) != (self.seq, self.hash):
            yield Finding(
                self.seq, "head", f"the session names entry {self.head_seq} as its last one; the last is {self.seq}"
            )

    def _replay(self) -> Iterator[Finding]:
        for difference in differences(self.projection, load_projection(self.session_id, using=self.using)):
            yield Finding(
                0,
                "replay",
                f"{difference.what} {difference.id}: {difference.ledger} by the ledger, {difference.rows} in the rows",
            )

    def _untold_values(self) -> Iterator[Finding]:
        if not (untold := self.rows.untold()):
            return
        told: dict[tuple[str, str], set[str]] = {key: set() for key in untold}
        seq = 0
        while entries := read_entries(self.session_id, seq, using=self.using):
            seq = entries[-1][0][0]
            for claim in (claim for (_, _, body, _, _), _ in entries for claim in _claims(0, body)):
                for column in claim.columns:
                    told.get((claim.table, column), set()).add(claim.id)
        for (table, column), ids in told.items():
            for id in sorted(self.rows.holders(table, column) - ids):
                yield Finding(0, "unexplained", f"{table} {id} {column}")

    def _found(self, findings: Any) -> None:
        self.report.problems += [
            Problem(session=self.session_id, seq=seq, kind=kind, detail=detail) for seq, kind, detail in findings
        ]


def _claims(seq: int, body: str) -> list[Claim]:
    with suppress(*UNREADABLE):
        return [Claim.of(seq, bound) for bound in orjson.loads(body).get("rows", ())]
    return []
