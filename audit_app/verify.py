"""Story: prove that a session's ledger is whole and that its rows are what the ledger says, in both directions.

1. Each entry follows from the one before it, without a gap, and the session's head is the last one.
2. Each commitment of an entry to a row fits the row (``sessions_app.binding``): nothing was edited or taken away.
3. There is no row, and no value that is set once, of which no entry tells: nothing was put in.
4. Context items, states and counters are what the entries come to (``mnesis_core.replay``).

What cannot be seen from inside the database (an old copy put back, everything rewritten) needs a head that was kept
outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from django.db import connections

from audit_app.bound_rows import BoundRows, Claim, Finding
from audit_app.chains import Entry, entry_problem
from compaction_app.projection import load_projection
from mnesis_core.events import EventType
from mnesis_core.ledger import GENESIS
from mnesis_core.replay import Projection, differences
from sessions_app.guards import guard_differences

ENTRIES_AT_A_TIME = 4_000
_ENTRIES = "SELECT seq, type, body, prev_hash, hash FROM events WHERE session_id = %s AND seq > %s ORDER BY seq LIMIT %s"
_HEAD = "SELECT event_seq, head_hash, salt FROM sessions WHERE id = %s"

Progress = Callable[[int], None]
"""Entries of the session done so far."""


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
    """Everything that one session's ledger can prove, in one look at the database: a turn may run meanwhile.

    :raises SessionNotFoundError: there is no such session.
    """
    return _Verification(session_id, using).run(progress)


class _Verification:
    """One session's entries followed from the first to the last."""

    def __init__(self, session_id: str, using: str) -> None:
        self.session_id = session_id
        self.using = using
        with connections[using].cursor() as cursor:
            cursor.execute(_HEAD, [session_id])
            self.head_seq, self.head_hash, salt = cursor.fetchone()
        self.rows = BoundRows(session_id, salt, connections[using])
        self.projection = Projection()
        self.seq, self.hash = 0, GENESIS
        self.report = Report(sessions=1)

    def run(self, progress: Progress) -> Report:
        while entries := self._read():
            claims = [claim for entry in entries for claim in self._follow(entry)]
            self.report.commitments += len(claims)
            self._found(self.rows.check(claims))
            progress(self.seq)
        self._found(self._head())
        self._found(self._replay())
        if not self.report.unbound_sessions:
            self._found(self.rows.finish())
        return self.report

    def _read(self) -> list[Entry]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(_ENTRIES, [self.session_id, self.seq, ENTRIES_AT_A_TIME])
            rows: list[Entry] = cursor.fetchall()
            return rows

    def _follow(self, entry: Entry) -> list[Claim]:
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
        except (ValueError, TypeError, KeyError, AttributeError):
            self._found([Finding(seq, "chain", f"the body of entry {seq} says nothing that could be understood")])
            return []
        if type == EventType.SESSION_CREATED and not claims:
            self.report.unbound_sessions = 1
        return claims

    def _head(self) -> Iterator[Finding]:
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

    def _found(self, findings: Any) -> None:
        self.report.problems += [
            Problem(session=self.session_id, seq=seq, kind=kind, detail=detail) for seq, kind, detail in findings
        ]
