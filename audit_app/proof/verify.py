"""Story: prove that a session's ledger is whole and that its rows are what the ledger says, in both directions.

1. Each entry follows from the one before it, without a gap, and the session's head is the last one.
2. Each commitment of an entry to a row fits the row (``sessions_app.database.commitments``): nothing was edited or taken away.
3. There is no row, and no value that is set once, of which no entry tells: nothing was put in.
4. Context items, states and counters are what the entries come to (``mnesis_core.context.replay``), and what runs of operators
   say of themselves is what their tries and their input come to (``agents_app.maps.proof``).
5. Contents of files are what their names say: the SHA-256 that such a row has.
6. The site's directory tells of the session, as far as it goes and whose it is (``audit_app.proof.bound_rows``), and the
   search index has its texts and no others (``sessions_app.search.index``).

Of the whole database besides: guards, tables and pages (``audit_app.proof.damage``), and the sessions that the directory tells of
and that are gone. What the database cannot read is a problem like any other, and ends nothing.

What cannot be seen from inside the database (an old copy put back, everything rewritten) needs a head that was kept
outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any

import orjson
from django.db import connections

from agents_app.map_queries import load_projection
from agents_app.maps.proof import operator_differences
from audit_app.proof.bound_rows import BoundRows, Finding, directory_findings, findings_of_session
from audit_app.proof.damage import (
    DAMAGED,
    damage_of_database,
    is_away,
    legible,
    reason_of,
    sessions_there,
    unreadable_of_session,
)
from audit_app.proof.helper_process import little_garbage, start
from audit_app.proof.segments import UNREADABLE, Progress, Stretch, follow, read_entries, stretch_ends
from files_app.contents import is_whole
from files_app.queries import kept_contents, list_contents
from mnesis_core.context.replay import Difference, Projection, differences
from mnesis_core.context.tool_outputs import OUTPUTS
from mnesis_core.errors import Conflict, FileContentNotFound
from mnesis_core.ledger import GENESIS
from sessions_app.database.fast_sql import fetch
from sessions_app.database.threads import snapshot
from sessions_app.guards.triggers import guard_differences
from sessions_app.search.index import search_differences, stray_entries

ENTRIES_A_STRETCH = 20_000
WORTH_PROCESSES = 50_000
"""Entries: with fewer, the start of another process takes longer than they do."""
_HEAD = "SELECT event_seq, head_hash, owner_id FROM sessions WHERE id = %s"
_COUNT = "SELECT COUNT(*) FROM events WHERE session_id = %s"

Spread = Callable[..., Iterable[Any]]
"""``map``, or one that lets others do the work; the results are in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it was written."""

    session: str
    """Empty for what concerns the whole database."""
    seq: int
    """The entry that says otherwise; 0 where no entry tells of it."""
    kind: str
    """``guard``, ``chain``, ``head``, ``row``, ``missing``, ``unexplained``, ``owner``, ``replay``, ``content``, ``search``
    or ``damage``."""
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
    """Sessions that belong to another account than the one that began them, as the directory says: imported."""
    problems: list[Problem] = field(default_factory=list)
    heads: list[tuple[int, str]] = field(default_factory=list)
    """The last entry of each session and its hash."""

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
        self.heads += other.heads

    def as_dict(self) -> dict[str, Any]:
        """``{ok, checked, problems}`` as plain JSON values."""
        checked = asdict(self)
        del checked["heads"]
        return {"ok": self.ok, "problems": checked.pop("problems"), "checked": checked}


def verify_database(*, using: str = "default") -> Report:
    """What concerns no session alone and is soon asked: whether its guards are as declared, with no others beside them."""
    return Report(problems=[*_asked("guard", "The guards", lambda: guard_differences(connections[using]))])


def _asked(kind: str, what: str, ask: Callable[[], Iterable[str]]) -> Iterator[Problem]:
    """The problems of the whole database that somebody's sentences are; where nobody can say, that is one."""
    try:
        yield from (Problem(session="", seq=0, kind=kind, detail=sentence) for sentence in ask())
    except Exception as error:
        if is_away("default"):
            raise
        yield Problem(session="", seq=0, kind="damage", detail=f"{what} cannot be compared: {reason_of(error)}")


def verify_session(
    session_id: str, *, using: str = "default", progress: Progress = lambda done: None, alone: bool = False
) -> Report:
    """Everything that the ledger of one session, which exists, can prove; it may go on meanwhile.

    :param alone: by its own rows only: the site's directory and search index do not know it yet
    """
    try:
        with snapshot(using=using):
            return _conclude(session_id, follow(session_id, using=using, progress=progress), using=using, alone=alone)
    except Exception as error:
        if connections[using].in_atomic_block or is_away(using):
            raise
        return _damaged(session_id, error, using)


def _damaged(session_id: str, error: Exception, using: str) -> Report:
    """What can still be said of a session that cannot be read as it is."""
    report = Report(sessions=1)
    if connections[using].vendor == "sqlite":  # its texts are the only thing that can be read otherwise
        with suppress(Exception), legible(using), snapshot(using=using):
            report = _conclude(session_id, follow(session_id, using=using), using=using, alone=False)
    found = list(unreadable_of_session(session_id, using=using))
    named = found or [f"it cannot be followed to its end: {reason_of(error)}"]
    report.problems = [
        *(Problem(session=session_id, seq=0, kind="damage", detail=words) for words in named),
        *report.problems,
    ]
    return report


def verify_in_stretches(
    session_id: str, spread: Spread = map, *, entries: int = ENTRIES_A_STRETCH, progress: Progress = lambda done: None
) -> Report:
    """The same, of stretches of so many entries, each of which may be followed elsewhere and by other processes."""
    try:
        # They look later than this snapshot. What has an entry in it is the same then; what has none is seen here alone.
        with snapshot():
            ends = stretch_ends(session_id, entries)
            whole = Stretch(0, GENESIS)
            for stretch in spread(partial(follow, session_id), [0, *ends], ends):
                whole.add(stretch)
                progress(whole.entries)
            return _conclude(session_id, whole, using="default", alone=False)
    except BrokenExecutor:
        raise
    except Exception as error:
        if connections["default"].in_atomic_block or is_away("default"):
            raise
        return _damaged(session_id, error, "default")


def verify_sessions(session_ids: Sequence[str], *, jobs: int, progress: Progress = lambda done: None) -> Report:
    """Many sessions, or a long one, by several processes where that is worth their start."""
    report = verify_database()
    counts = _entry_counts(session_ids)
    if jobs > 1 and sum(counts.values()) > WORTH_PROCESSES:
        # Not forked: a connection to a database survives no fork.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=start) as processes:
            for part in _by_processes(counts, processes.map, lambda done: progress(report.entries + done)):
                report.add(part)
                progress(report.entries)
        return report
    with little_garbage():
        for session_id in session_ids:
            report.add(verify_session(session_id, progress=lambda done: progress(report.entries + done)))
    return report


def verify_all(*, jobs: int, progress: Progress = lambda done: None) -> Report:
    """Every session that there is, also deleted ones, every one that should be there, and the database itself."""
    directory: list[Problem] = []
    try:
        # Before the sessions: they may go on, and the directory with them.
        for session_id, (seq, kind, detail) in directory_findings(using="default"):
            directory.append(Problem(session=session_id, seq=seq, kind=kind, detail=detail))
    except Exception as error:
        if is_away("default"):
            raise
        words = f"directory_entries cannot be read to the end: {reason_of(error)}"
        directory.append(Problem(session="", seq=0, kind="damage", detail=words))
    session_ids, why = sessions_there(using="default")
    report = verify_sessions(session_ids, jobs=jobs, progress=progress)
    report.problems = [
        *([Problem(session="", seq=0, kind="damage", detail=why)] if why else []),
        *_asked("damage", "The tables", lambda: damage_of_database(using="default")),
        *_asked("search", "The search index", lambda: stray_entries(using="default")),
        *directory,
        *report.problems,
    ]
    return report


def _entry_counts(session_ids: Sequence[str]) -> dict[str, int]:
    counts: dict[str, Any] = {}
    with suppress(*DAMAGED):  # whoever follows them says so
        counts = dict(fetch("SELECT id, event_seq FROM sessions"))
    found = {session_id: counts.get(session_id, 0) for session_id in session_ids}
    return {session_id: count if type(count) is int else 0 for session_id, count in found.items()}


def _by_processes(counts: dict[str, int], spread: Spread, progress: Progress) -> Iterator[Report]:
    """Each long session by all of them, then each of the others by one."""
    long = [session_id for session_id, count in counts.items() if count > 2 * ENTRIES_A_STRETCH]
    for session_id in long:
        yield verify_in_stretches(session_id, spread, entries=ENTRIES_A_STRETCH, progress=progress)
    yield from spread(verify_session, [session_id for session_id in counts if session_id not in long])


def _conclude(session_id: str, whole: Stretch, *, using: str, alone: bool) -> Report:
    """What a whole session's entries, followed to the last, leave to be looked at."""
    [(seq, hash, owner_id)] = fetch(_HEAD, [session_id], using=using)
    [(entries,)] = fetch(_COUNT, [session_id], using=using)
    findings = [*whole.findings, *_head(whole, seq, hash, entries), *_replay(session_id, whole.projection, using)]
    findings += _contents(session_id, using)
    if not whole.is_unbound:
        findings += BoundRows(session_id, using=using, accounts=whole.accounts).finish()
    if not alone:
        findings += findings_of_session(session_id, using=using)
        findings += (Finding(0, "search", words) for words in search_differences(session_id, using=using))
    is_given_away = any(finding.kind == "owner" for finding in findings)
    is_moved = whole.began_by not in ((), (owner_id,)) and not is_given_away
    return Report(
        sessions=1,
        entries=whole.entries,
        commitments=whole.commitments,
        unbound_sessions=int(whole.is_unbound),
        moved=[session_id] if is_moved else [],
        problems=[Problem(session=session_id, seq=seq, kind=kind, detail=detail) for seq, kind, detail in findings],
        heads=[(whole.seq, whole.hash)],
    )


def _head(whole: Stretch, seq: int, hash: str, entries: int) -> Iterator[Finding]:
    if outside := entries - whole.entries:
        yield Finding(0, "chain", f"{outside} entries stand outside of the chain")
    if (seq, hash) != (whole.seq, whole.hash):
        yield Finding(whole.seq, "head", f"the session names entry {seq} as its last one; the last is {whole.seq}")


def _replay(session_id: str, replayed: Projection, using: str) -> Iterator[Finding]:
    for difference in _differences(session_id, replayed, using):
        words = f"{difference.what} {difference.id}: {difference.ledger} by the ledger, {difference.rows} in the rows"
        yield Finding(0, "replay", words)


def _differences(session_id: str, replayed: Projection, using: str) -> Iterator[Difference]:
    yield from differences(replayed, load_projection(session_id, using=using))
    yield from operator_differences(session_id, using=using)


def _contents(session_id: str, using: str) -> Iterator[Finding]:
    """The rows, which the ledger binds, name contents by their SHA-256."""
    kept = kept_contents(session_id, using=using)
    for content_id, path in list_contents(session_id, using=using).items():
        try:
            if not is_whole(content_id):
                yield Finding(0, "content", f"the content {content_id} of {path!r} is another than was kept")
        except FileContentNotFound:
            # Of a file that somebody else has told of, only this may ever have been known.
            if content_id in kept or path.startswith(OUTPUTS):
                yield Finding(0, "content", f"the content {content_id} of {path!r} is gone")


def replay_session(session_id: str, *, using: str = "default", at: int | None = None) -> Projection:
    """A session's context items, states and counters from its entries alone: all of them, or up to entry ``at``.

    :raises Conflict: an entry says nothing that could be understood.
    """
    projection, seq = Projection(), 0
    while entries := read_entries(session_id, seq, using=using):
        for seq, type, body, *_ in entries:
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
        return list(_differences(session_id, replay_session(session_id, using=using), using))
