"""Verification of sessions and of the whole database: what is not as it was written, and what can no longer be read.

Of a session it proves that each entry follows from the one before and the head is the last one; that each commitment fits
its row, and every row and value set once has an entry; that a replay gives the rows' contexts, states and counters; that
contents of files have the SHA-256 in their names; and that the directory and the search index match it. An old copy put
back, or a complete rewrite, cannot be seen from inside the database: that needs a head that was kept outside of it.

Any query of a damaged database may fail in any way: SQLite follows a broken page wherever it leads, so a number may
come as a text and a row without its columns. So each question is asked by itself, and an error is an answer.

Verifications on request run in the worker, so no page waits for them, and one at a time on the whole site, so no one
can keep the machine busy with more. A request for a session that already waits or is being verified joins that one.
"""

# ruff: noqa: S608 - the names in these statements come from the models.

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any

import orjson
from django.db import DatabaseError, connections, transaction
from django.db.models import Field
from django.db.models.query import QuerySet
from django.utils.translation import gettext_noop
from django_q.tasks import async_task

from agents_app.maps.proof import operator_differences
from agents_app.queries import load_projection
from audit_app import store
from audit_app.proof import freeze_gc, set_up_helper
from audit_app.proof.ledger import (
    UNREADABLE,
    BoundRows,
    Finding,
    LedgerSegment,
    Progress,
    directory_findings,
    findings_of_session,
    follow,
    read_entries,
    segment_ends,
)
from audit_app.store import EVERYTHING
from audit_app.tables import SessionTable, session_tables
from files_app.contents import is_whole
from files_app.queries import kept_contents, list_contents
from mnesis_core.context.fitting import OUTPUTS
from mnesis_core.context.replay import Difference, Projection, differences
from mnesis_core.errors import Conflict, FileContentNotFound, fill
from mnesis_core.events import GENESIS
from mnesis_core.text import encode_text, excerpt
from sessions_app.database.guards.triggers import guard_differences, guarded_models
from sessions_app.database.tables import fetch
from sessions_app.database.threads import give_back, snapshot
from sessions_app.record.lease import Heartbeat, new_owner
from sessions_app.search.index import search_differences, stray_entries

# A damaged SQLite may answer with bytes that its driver cannot decode: a ValueError.
DAMAGED = (DatabaseError, ValueError)
ENTRIES_PER_SEGMENT = 20_000
WORTH_PROCESSES = 50_000  # with fewer entries, starting another process takes longer than verifying them
MOST_NAMED = 50  # rows of a session's table, and findings of SQLite's own check
ROWS_AT_ONCE = 200
LONGEST_REASON = 200
TASK = "audit_app.tasks.verify"
TASK_SECONDS = 3_600  # the cluster kills a worker that takes longer: it hangs
BEAT_SECONDS = 0.5
PROBLEMS_KEPT = 200
LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 10.0  # how long verify_now waits for other verifications

Spread = Callable[..., Iterable[Any]]
"""``map``, or a parallel one that gives its results in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    session: str  # empty for what concerns the whole database
    seq: int  # the entry that says otherwise, or 0
    kind: str  # guard, chain, head, row, missing, unexplained, owner, replay, content, search or damage
    detail: str


@dataclass(slots=True, kw_only=True)
class Report:
    sessions: int = 0
    entries: int = 0
    commitments: int = 0
    first_form_entries: int = 0  # written before each entry named its form
    unbound_sessions: int = 0  # begun before rows were bound to the ledger: only a replay proves their older rows
    # Imported: the directory names another account or organisation than the one that began them.
    moved: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    heads: list[tuple[int, str]] = field(default_factory=list)  # the last entry of each session, and its hash

    @property
    def ok(self) -> bool:
        return not self.problems

    def add(self, other: Report) -> None:
        for name in self.__slots__:
            total = getattr(self, name)
            total += getattr(other, name)  # in place for a list, since lists grow long
            setattr(self, name, total)

    def as_dict(self) -> dict[str, Any]:
        checked = asdict(self)
        del checked["heads"]
        return {"ok": self.ok, "problems": checked.pop("problems"), "checked": checked}


def _database_problems(kind: str, text: str, ask: Callable[[], Iterable[str]]) -> Iterator[Problem]:
    """Yield what is found; if nothing can be asked, one problem with this text for its ``reason``."""
    try:
        yield from (Problem(session="", seq=0, kind=kind, detail=sentence) for sentence in ask())
    except Exception as error:
        if is_away("default"):
            raise
        yield Problem(session="", seq=0, kind="damage", detail=fill(text, {"reason": reason_of(error)}))


def verify_session(
    session_id: str, *, using: str = "default", progress: Progress = lambda done: None, alone: bool = False
) -> Report:
    """Verify everything that the ledger of one existing session can prove; the session may go on meanwhile.

    :param alone: check its own rows only, as the site's directory and search index do not know it yet
    """
    try:
        with snapshot(using=using):
            return _conclude(session_id, follow(session_id, using=using, progress=progress), using=using, alone=alone)
    except Exception as error:
        if connections[using].in_atomic_block or is_away(using):
            raise
        return _damaged(session_id, error, using)


def _damaged(session_id: str, error: Exception, using: str) -> Report:
    report = Report(sessions=1)
    if connections[using].vendor == "sqlite":  # only its texts can be read in another way
        with suppress(Exception), legible(using), snapshot(using=using):
            report = _conclude(session_id, follow(session_id, using=using), using=using, alone=False)
    found = list(unreadable_of_session(session_id, using=using))
    named = found or [fill(gettext_noop("it cannot be followed to its end: %(reason)s"), {"reason": reason_of(error)})]
    report.problems[:0] = [Problem(session=session_id, seq=0, kind="damage", detail=words) for words in named]
    return report


def verify_in_segments(
    session_id: str, spread: Spread = map, *, entries: int = ENTRIES_PER_SEGMENT, progress: Progress = lambda done: None
) -> Report:
    """Verify a session in segments of ``entries`` entries each, which ``spread`` may give to other processes."""
    try:
        # Other processes read later than this snapshot, but rows with an entry in it stay the same; the others are read here.
        with snapshot():
            ends = segment_ends(session_id, entries)
            whole = LedgerSegment(0, GENESIS)
            for segment in spread(partial(follow, session_id), [0, *ends], ends):
                whole.add(segment)
                progress(whole.entries)
            return _conclude(session_id, whole, using="default", alone=False)
    except BrokenExecutor:
        raise
    except Exception as error:
        if connections["default"].in_atomic_block or is_away("default"):
            raise
        return _damaged(session_id, error, "default")


def verify_sessions(session_ids: Sequence[str], *, jobs: int, progress: Progress = lambda done: None) -> Report:
    guards = _database_problems(
        "guard",
        gettext_noop("The guards cannot be compared: %(reason)s"),
        lambda: guard_differences(connections["default"]),
    )
    report = Report(problems=list(guards))
    sizes: dict[str, Any] = {}
    with suppress(*DAMAGED):  # following the sessions reports it
        sizes = dict(fetch("SELECT id, event_seq FROM sessions"))
    counts = {id: size if type(size := sizes.get(id, 0)) is int else 0 for id in session_ids}

    def show(done: int) -> None:
        progress(report.entries + done)

    if jobs > 1 and sum(counts.values()) > WORTH_PROCESSES:
        # A connection to a database does not survive a fork.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=set_up_helper) as processes:
            long = [session_id for session_id, count in counts.items() if count > 2 * ENTRIES_PER_SEGMENT]
            for session_id in long:
                report.add(verify_in_segments(session_id, processes.map, progress=show))
            for part in processes.map(verify_session, [session_id for session_id in counts if session_id not in long]):
                report.add(part)
                progress(report.entries)
        return report
    with freeze_gc():
        for session_id in session_ids:
            report.add(verify_session(session_id, progress=show))
    return report


def verify_all(*, jobs: int, progress: Progress = lambda done: None) -> Report:
    """Verify every session, deleted ones included, every session that should exist, and the database itself."""
    directory: list[Problem] = []
    try:
        # Before the sessions, which may go on meanwhile, and the directory with them.
        for session_id, finding in directory_findings(using="default"):
            directory.append(Problem(session=session_id, **finding._asdict()))
    except Exception as error:
        if is_away("default"):
            raise
        text = gettext_noop("%(table)s cannot be read to the end: %(reason)s")
        words = fill(text, {"table": "directory_entries", "reason": reason_of(error)})
        directory.append(Problem(session="", seq=0, kind="damage", detail=words))
    session_ids, why = sessions_there(using="default")
    report = verify_sessions(session_ids, jobs=jobs, progress=progress)
    report.problems[:0] = [
        *([Problem(session="", seq=0, kind="damage", detail=why)] if why else []),
        *_database_problems(
            "damage",
            gettext_noop("The tables cannot be compared: %(reason)s"),
            lambda: damage_of_database(using="default"),
        ),
        *_database_problems(
            "search",
            gettext_noop("The search index cannot be compared: %(reason)s"),
            lambda: stray_entries(using="default"),
        ),
        *directory,
    ]
    return report


def _conclude(session_id: str, whole: LedgerSegment, *, using: str, alone: bool) -> Report:
    head = "SELECT event_seq, head_hash, owner_id, organisation_id FROM sessions WHERE id = %s"
    [(seq, hash, owner_id, organisation)] = fetch(head, [session_id], using=using)
    [(entries,)] = fetch("SELECT COUNT(*) FROM events WHERE session_id = %s", [session_id], using=using)
    findings = list(whole.findings)
    if outside := entries - whole.entries:
        words = fill(gettext_noop("%(count)s entries stand outside of the chain"), {"count": str(outside)})
        findings.append(Finding(0, "chain", words))
    if (seq, hash) != (whole.seq, whole.hash):
        text = gettext_noop("the session names entry %(number)s as its last one; the last is %(last)s")
        words = fill(text, {"number": str(seq), "last": str(whole.seq)})
        findings.append(Finding(whole.seq, "head", words))
    for difference in _differences(session_id, whole.projection, using):
        text = gettext_noop("%(what)s %(id)s: %(ledger)s by the ledger, %(rows)s in the rows")
        words = fill(text, {name: str(value) for name, value in asdict(difference).items()})
        findings.append(Finding(0, "replay", words))
    findings += _content_findings(session_id, using)
    if not whole.is_unbound:
        findings += BoundRows(session_id, using=using, accounts=whole.accounts).finish()
    if not alone:
        findings += findings_of_session(session_id, using=using)
        findings += (Finding(0, "search", words) for words in search_differences(session_id, using=using))
    is_given_away = any(finding.kind == "owner" for finding in findings)
    # An entry from before organisations names none.
    is_moved = whole.began_by not in ((), (owner_id, organisation), (owner_id, None)) and not is_given_away
    return Report(
        sessions=1,
        entries=whole.entries,
        commitments=whole.commitments,
        first_form_entries=whole.first_form,
        unbound_sessions=int(whole.is_unbound),
        moved=[session_id] if is_moved else [],
        problems=[Problem(session=session_id, **finding._asdict()) for finding in findings],
        heads=[(whole.seq, whole.hash)],
    )


def _differences(session_id: str, replayed: Projection, using: str) -> Iterator[Difference]:
    yield from differences(replayed, load_projection(session_id, using=using))
    yield from operator_differences(session_id, using=using)
    yield from tree_differences(session_id, using=using)


def _content_findings(session_id: str, using: str) -> Iterator[Finding]:
    kept = kept_contents(session_id, using=using)
    for content_id, path in list_contents(session_id, using=using).items():
        about = {"id": content_id, "path": repr(path)}
        try:
            if not is_whole(content_id):
                words = fill(gettext_noop("the content %(id)s of %(path)s is another than was kept"), about)
                yield Finding(0, "content", words)
        except FileContentNotFound:
            # The content of a file that the client only named may never have been kept.
            if content_id in kept or path.startswith(OUTPUTS):
                yield Finding(0, "content", fill(gettext_noop("the content %(id)s of %(path)s is gone"), about))


def replay_session(session_id: str, *, using: str = "default", at: int | None = None) -> Projection:
    """Rebuild context items, states and counters from the entries alone: all of them, or up to entry ``at``.

    :raises Conflict: an entry cannot be understood.
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
    with snapshot(using=using):
        return list(_differences(session_id, replay_session(session_id, using=using), using))


def reason_of(error: Exception) -> str:
    """Return why something cannot be read, without any text of the session."""
    words = str(error)
    if isinstance(error, UnicodeError):
        return gettext_noop("texts that are not UTF-8")
    if "decode to UTF-8" in words:  # the driver's message goes on with the text itself
        return gettext_noop("a text that is not UTF-8")
    if isinstance(error, DatabaseError):
        return excerpt(words.partition("\n")[0], LONGEST_REASON) or type(error).__name__
    return fill(gettext_noop("values that make no sense (%(name)s)"), {"name": type(error).__name__})


def is_away(using: str) -> bool:
    """Return whether the database is unreachable, which is not damage."""
    return connections[using].vendor == "postgresql" and not connections[using].is_usable()


@contextmanager
def legible(using: str) -> Iterator[None]:
    """Within the block, read texts that are not UTF-8 with their invalid bytes written as hexadecimal digits."""
    raw: Any = connections[using].connection
    if not isinstance(raw, sqlite3.Connection):
        yield
        return
    usual = raw.text_factory
    raw.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
    try:
        yield
    finally:
        raw.text_factory = usual


def damage_of_database(*, using: str) -> Iterator[str]:
    for model in guarded_models():
        table = model._meta.db_table
        try:
            with connections[using].cursor() as cursor:
                cursor.execute(f"SELECT * FROM {table} LIMIT 0")
                found = {column[0] for column in cursor.description}
        except DAMAGED as error:
            about = {"table": table, "reason": reason_of(error)}
            yield fill(gettext_noop("%(table)s cannot be read: %(reason)s"), about)
        else:
            missing = sorted({str(field.column) for field in model._meta.concrete_fields} - found)
            text = gettext_noop("%(table)s has no column %(column)s")
            yield from (fill(text, {"table": table, "column": column}) for column in missing)
    if connections[using].vendor != "sqlite":
        return
    try:
        report = [str(words) for (words,) in fetch(f"PRAGMA integrity_check({MOST_NAMED})", using=using)]
    except DAMAGED as error:
        yield fill(gettext_noop("SQLite cannot look through its file: %(reason)s"), {"reason": reason_of(error)})
        return
    # One value may hold several findings, a line each.
    for line in (line for words in report for line in words.splitlines()):
        if line != "ok" and not line.startswith("***"):
            yield fill(gettext_noop("SQLite says of its file: %(quote)s"), {"quote": excerpt(line, LONGEST_REASON)})


def sessions_there(*, using: str) -> tuple[list[str], str]:
    """Return the ids of all sessions, and why the list may be incomplete: then it comes from the tables that name sessions."""

    def ids(sql: str) -> list[str]:
        return sorted({id for (id,) in fetch(sql, using=using) if type(id) is str})

    try:
        return ids("SELECT id FROM sessions"), ""
    except DAMAGED as error:
        found: set[str] = set()
        for table in ("events", "turns", "messages", "directory_entries"):
            try:
                found.update(ids(f"SELECT DISTINCT session_id FROM {table}"))
            except DAMAGED:
                continue  # damage_of_database names it
        text = gettext_noop("the list of sessions cannot be read: %(reason)s")
        return sorted(found), fill(text, {"reason": reason_of(error)})


def unreadable_of_session(session_id: str, *, using: str) -> Iterator[str]:
    """Yield the tables, rows and columns of a session that cannot be read: at most ``MOST_NAMED`` rows of each table."""
    for table in session_tables().values():
        rows = table.rows(session_id).using(using)
        if error := _error_of(rows, table.fields):
            yield from _unreadable_rows(table, rows) or [f"{table.name}: {reason_of(error)}"]


def _unreadable_rows(table: SessionTable, rows: QuerySet[Any, Any]) -> list[str]:
    try:
        keys = list(rows.order_by().values_list("pk", flat=True))
    except Exception:
        return []
    found: list[str] = []
    for first in range(0, len(keys), ROWS_AT_ONCE):
        some = keys[first : first + ROWS_AT_ONCE]
        if not _error_of(rows.filter(pk__in=some), table.fields):
            continue
        for key in some:
            row = rows.filter(pk=key)
            if error := _error_of(row, table.fields):
                columns = " ".join(str(field.column) for field in table.fields if _error_of(row, [field]))
                found.append(f"{table.name} {key} {columns}".rstrip() + f": {reason_of(error)}")
        if len(found) >= MOST_NAMED:
            return [*found[:MOST_NAMED], fill(gettext_noop("%(table)s: there may be more"), {"table": table.name})]
    return found


def _error_of(rows: QuerySet[Any, Any], fields: Sequence[Field[Any, Any]]) -> Exception | None:
    try:
        for _ in rows.order_by().values_list(*(field.attname for field in fields)).iterator(chunk_size=ROWS_AT_ONCE):
            pass
    except Exception as error:
        return error
    return None


def ask(session_id: str, *, entries: int) -> bool:
    """Have a worker verify an existing session, or ``EVERYTHING``; return False if that already waits or runs.

    :param entries: the number of entries there are now, for the progress bar
    """
    with transaction.atomic():
        is_new = store.ask(session_id, entries=entries)
        # The broker's queue is a table of this database, so the wake-up commits with what it is for or not at all.
        async_task(TASK, timeout=TASK_SECONDS)
    return is_new


def verify_next() -> bool:
    """Verify the session that has waited longest; return False if none waits or another one is being verified."""
    worker = new_owner()
    session_id = store.claim(worker=worker)
    if session_id is None:
        return False
    _verify(session_id, worker)
    return True


def verify_now(session_id: str, *, entries: int) -> Report:
    """Verify an existing session and return the report.

    :raises Conflict: other verifications took longer than ``PATIENCE_SECONDS``.
    """
    worker, until = new_owner(), time.monotonic() + PATIENCE_SECONDS
    store.ask(session_id, entries=entries)
    while store.claim(worker=worker, session_id=session_id) is None:
        if time.monotonic() > until:
            raise Conflict(
                gettext_noop("Another verification is running. Ask again when it has ended."), session_id=session_id
            )
        give_back()
        time.sleep(LOOK_SECONDS)
        store.ask(session_id, entries=entries)
    return _verify(session_id, worker)


def _verify(session_id: str, worker: str) -> Report:
    began, done, is_running = time.monotonic(), 0, True

    def progress(entries: int) -> None:
        nonlocal done
        done = entries

    # The thread that verifies reads one snapshot of the database, so another one renews the lease.
    heartbeat = Heartbeat(
        "a verification",
        held=lambda: [session_id] if is_running else [],
        renew=lambda _: store.renew(session_id, worker=worker, done=done),
        seconds=lambda: BEAT_SECONDS,
    )
    heartbeat.start()
    try:
        whole = session_id == EVERYTHING
        report = verify_all(jobs=1, progress=progress) if whole else verify_session(session_id, progress=progress)
    except BaseException:
        store.fail(session_id, worker=worker)
        raise
    finally:
        is_running = False
        heartbeat.stop(wait=True)
    # There is no head when the ledger cannot be read to its end, and many when everything was verified.
    seq, head_hash = report.heads[0] if len(report.heads) == 1 else (0, "")
    store.finish(
        session_id,
        worker=worker,
        duration_ms=int((time.monotonic() - began) * 1000),
        entries_done=report.entries,
        seq=seq,
        head_hash=head_hash,
        entries=report.entries,
        commitments=report.commitments,
        problem_count=len(report.problems),
        problems=[asdict(one) | {"detail": encode_text(one.detail)} for one in report.problems[:PROBLEMS_KEPT]],
        is_unbound=report.unbound_sessions > 0,
        is_moved=bool(report.moved),
        first_form_entries=report.first_form_entries,
    )
    return report


_BRANCHES = (
    "SELECT b.id, b.number, b.parent, b.after_seq, m.branch, (SELECT MIN(o.seq) FROM messages o"
    " WHERE o.session_id = b.session_id AND o.branch = b.number) FROM branches b"
    " LEFT JOIN messages m ON m.session_id = b.session_id AND m.seq = b.after_seq"
    " WHERE b.session_id = %s ORDER BY b.number"
)
_STRAY = (
    "SELECT m.id, m.branch FROM messages m WHERE m.session_id = %s AND m.branch <> 0 AND NOT EXISTS"
    " (SELECT 1 FROM branches b WHERE b.session_id = m.session_id AND b.number = m.branch)"
)
_ITEMS = (
    "SELECT i.item_id, m.branch, n.last_seq, i.branch, i.until FROM context_items i"
    " LEFT JOIN summary_nodes n ON n.id = i.item_id AND n.session_id = i.session_id"
    " LEFT JOIN messages m ON m.session_id = i.session_id AND m.seq = COALESCE(n.last_seq, i.position)"
    " WHERE i.session_id = %s AND (COALESCE(i.until, -1) <> COALESCE(n.last_seq, -1) OR i.branch <> COALESCE(m.branch, 0))"
)
_EDGES = (
    "SELECT e.node_id, n.branch, e.branch FROM summary_edges e JOIN summary_nodes n ON n.id = e.node_id"
    " WHERE n.session_id = %s AND e.branch <> n.branch"
)


def tree_differences(session_id: str, *, using: str) -> Iterator[Difference]:
    """Yield what does not agree with the messages, the summaries and the branches of a session."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return fetch(sql, [session_id], using=using)

    branches = rows(_BRANCHES)
    yield from _differences_of_branches(branches)
    expected = len(branches)
    [(made,)] = rows("SELECT branch_seq FROM sessions WHERE id = %s")
    if made != expected:
        yield Difference(what="branch_seq", id="", ledger=expected, rows=made)
    for id, branch in rows(_STRAY):
        yield Difference(what="messages.branch", id=id, ledger=None, rows=branch)
    for id, branch, last, has_branch, until in rows(_ITEMS):
        # Without branches nothing reads how far a summary reaches, and older rows do not say it.
        if made or until is not None or has_branch != (branch or 0):
            yield Difference(what="context_items.branch", id=id, ledger=(branch, last), rows=(has_branch, until))
    for id, branch, has in rows(_EDGES):
        yield Difference(what="summary_edges.branch", id=id, ledger=branch, rows=has)


def _differences_of_branches(branches: Sequence[tuple[Any, ...]]) -> Iterator[Difference]:
    for expected, (id, number, parent, after, on, first) in enumerate(branches, start=1):
        if number != expected:
            yield Difference(what="branches.number", id=id, ledger=expected, rows=number)
        if parent >= number or parent != (on if after else 0):
            yield Difference(what="branches.parent", id=id, ledger=on or 0, rows=parent)
        if first is not None and first <= after:
            yield Difference(what="branches.after_seq", id=id, ledger=f"before {first}", rows=after)
