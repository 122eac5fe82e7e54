"""Story: carry everything from one database into another, row by row as it is, and prove that it arrived.

The source is locked against writing all the while, so there is one state of it. Rows are inserted in the order of
foreign keys, a batch a transaction, so a move that was cut off goes on where it stopped. No guard is lifted: they
permit inserts, and nothing else is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.db import DataError, IntegrityError, OperationalError, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models.query import QuerySet
from django.utils import timezone

from audit_app.proof.bound_rows import ChainHead, chain_heads
from audit_app.tables import (
    LEFT_BEHIND,
    Dealt,
    Row,
    Table,
    batches,
    carried_tables,
    deal_on,
    dealt_by_migrate,
    renumbered,
    same_row,
)
from mnesis_core.errors import Conflict, InvalidRequest, NotReady, SessionBusy
from sessions_app.search import index

LOCK_SECONDS = 20
"""How long the move waits for writers of the source to finish; SQLite waits as long, by its settings."""
IDS_A_QUESTION = 500
MOVER = 7_663_911
"""The advisory lock that a move holds on both databases; no other lock has its number."""

Progress = Callable[[str, str, int, int], None]
"""What is done (``copied``, ``compared``, ``indexed``), the table, rows done, rows in all."""


@dataclass(slots=True, kw_only=True)
class MoveReport:
    """What a move did and what it found at the end."""

    source: str
    target: str
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each table, how many rows it has (``rows``) and how many this run inserted (``copied``)."""
    sessions: int = 0
    entries: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)
    """Chains that are broken, or differ: session, seq, kind, detail."""

    @property
    def ok(self) -> bool:
        """Whether both sides hold the same record and every chain is whole."""
        return not self.problems

    @property
    def copied(self) -> int:
        """Rows that this run inserted."""
        return sum(table["copied"] for table in self.tables.values())

    def as_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {"ok": self.ok, **values, "left_behind": LEFT_BEHIND}


def move_database(
    source: str, target: str, *, progress: Progress = lambda stage, table, done, total: None
) -> MoveReport:
    """Carry everything from one database to another; both are names in ``django.db.connections``.

    :raises SessionBusy: turns are running in the source.
    :raises Conflict: somebody writes to the source, or the target holds something else.
    :raises InvalidRequest: both are one database, or a row cannot be stored in the target.
    :raises NotReady: the source lacks migrations.
    """
    report = MoveReport(source=name_of(source), target=name_of(target))
    with _alone(source, target), _locked(source):
        _refuse_running(source)
        _refuse_other_record(source, target)
        call_command("migrate", database=target, verbosity=0, interactive=False)
        tables, dealt = carried_tables(), dealt_by_migrate(source, target)
        for table in tables:
            _refuse_other_rows(table, dealt, source=source, target=target)
        for table in tables:
            report.tables[table.name] = _copy(table, dealt, source=source, target=target, progress=progress)
        deal_on(tables, using=target)
        for table in tables:
            _compare(table, dealt, source=source, target=target, progress=progress)
        _compare_chains(report, source=source, target=target)
    index.rebuild(lambda done, total: progress("indexed", "sessions", done, total), using=target)
    return report


def name_of(alias: str) -> str:
    """A database for people: what it is and where, without its password."""
    values = connections[alias].settings_dict
    if connections[alias].vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    return f"postgresql://{values['HOST'] or 'localhost'}:{values['PORT'] or 5432}/{values['NAME']}"


@contextmanager
def _alone(source: str, target: str) -> Iterator[None]:
    """Refuse the same database twice, and a second move at the same time."""
    files = [Path(connections[alias].settings_dict["NAME"]) for alias in (source, target) if _is_sqlite(alias)]
    if len(files) == 2 and files[1].exists() and files[0].samefile(files[1]):
        raise InvalidRequest("The target is the database that is in use. Name another one with --to.")
    servers = [alias for alias in (source, target) if not _is_sqlite(alias)]
    held = []
    try:
        for alias in servers:
            if not _one_value(alias, "SELECT pg_try_advisory_lock(%s)", MOVER):
                raise Conflict(f"{name_of(alias)} is being moved already, or source and target are one database.")
            held.append(alias)
        yield
    finally:
        for alias in held:
            _one_value(alias, "SELECT pg_advisory_unlock(%s)", MOVER)


@contextmanager
def _locked(source: str) -> Iterator[None]:
    """Let nobody write to the source; reading goes on.

    :raises NotReady: it lacks migrations.
    :raises Conflict: somebody is writing.
    """
    executor = MigrationExecutor(connections[source])
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise NotReady("The source lacks migrations. Run 'manage.py migrate' on it first.")
    try:
        with transaction.atomic(using=source):
            _lock_tables(source)
            yield
    except OperationalError as error:
        raise Conflict(f"Somebody is writing to {name_of(source)}. Stop the site, then move. ({error})") from error


def _lock_tables(source: str) -> None:
    if _is_sqlite(source):
        return  # Its transactions are IMMEDIATE: they begin with the one lock there is.
    names = ", ".join(f'"{table.name}"' for table in carried_tables())
    _run(source, f"SET LOCAL lock_timeout = {LOCK_SECONDS * 1_000:.0f}")
    _run(source, f"LOCK TABLE {names} IN EXCLUSIVE MODE")


def _refuse_running(source: str) -> None:
    """:raises SessionBusy: a turn or a compaction has not ended."""
    turns = _rows(source, "sessions_app", "Turn").filter(state="running").count()
    if turns:
        raise SessionBusy(
            f"{turns} turns are running. Stop the site, then move. If it was killed, start it once more "
            "and stop it with Ctrl-C: it closes what was left open.",
            running_turns=turns,
        )
    runs = _rows(source, "compaction_app", "CompactionRun")
    working = runs.filter(state="running", lease_expires_at__gt=timezone.now()).count()
    if working:
        raise SessionBusy(
            f"{working} compactions are running. Stop the worker, then move.", running_compactions=working
        )


def _refuse_other_record(source: str, target: str) -> None:
    """Before the target is migrated: whose tables are these?

    :raises Conflict: it holds another site's tables, or sessions that the source does not have.
    """
    tables = set(connections[target].introspection.table_names())
    if "django_migrations" in tables and "sessions" not in tables:
        raise Conflict(f"{name_of(target)} holds the tables of another site. Name an empty database with --to.")
    if "sessions" not in tables:
        return
    there = _rows(target, "sessions_app", "Session").values_list("id", flat=True).iterator()
    for ids in _in_chunks(there):
        known = set(_rows(source, "sessions_app", "Session").filter(id__in=ids).values_list("id", flat=True))
        if set(ids) - known:
            raise Conflict(f"{name_of(target)} holds another record. Name an empty database with --to.")


def _in_chunks(values: Iterator[Any]) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == IDS_A_QUESTION:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _refuse_other_rows(table: Table, dealt: Dealt, *, source: str, target: str) -> None:
    """:raises Conflict: the target has a row that the source has not, or has otherwise."""
    for rows in batches(table.read(table.query(target))):
        wanted = _by_key(table, dealt, source=source, keys=[row[table.key] for row in rows])
        for row in rows:
            if row[table.key] not in wanted or not same_row(table, wanted[row[table.key]], row):
                raise Conflict(
                    f"The target's {table.name} {row[table.key]!r} is not what the source has: it holds another "
                    "record, or the source was used since an earlier move. Begin again with an empty database.",
                    table=table.name,
                )


def _by_key(table: Table, dealt: Dealt, *, source: str, keys: Sequence[Any]) -> dict[Any, Row]:
    found = table.read(table.query(source).filter(pk__in=keys))
    return {row[table.key]: renumbered(table, row, dealt) for row in found}


def _copy(table: Table, dealt: Dealt, *, source: str, target: str, progress: Progress) -> dict[str, int]:
    """Insert what is missing, a batch a transaction."""
    total, there = table.count(source), table.count(target)
    done = copied = 0
    # Foreign keys are checked at the commit, so a table that points at itself is one transaction.
    with transaction.atomic(using=target) if table.points_at_itself else nullcontext():
        for rows in batches(table.read(table.query(source).order_by("pk"))) if there < total else ():
            missing = rows if not there else _missing(table, rows, target=target)
            _insert(table, [renumbered(table, row, dealt) for row in missing], target=target)
            done, copied = done + len(rows), copied + len(missing)
            progress("copied", table.name, done, total)
    return {"rows": total, "copied": copied}


def _missing(table: Table, rows: list[Row], *, target: str) -> list[Row]:
    keys = [row[table.key] for row in rows]
    there = set(table.query(target).filter(pk__in=keys).values_list("pk", flat=True))
    return [row for row in rows if row[table.key] not in there]


def _insert(table: Table, rows: list[Row], *, target: str) -> None:
    try:
        with transaction.atomic(using=target):
            table.insert(rows, using=target)
    except (DataError, IntegrityError, ValueError) as error:
        keys = [row[table.key] for row in rows]
        raise InvalidRequest(
            f"The target refuses a row of {table.name} between {keys[0]!r} and {keys[-1]!r}: {error}", table=table.name
        ) from error


def _compare(table: Table, dealt: Dealt, *, source: str, target: str, progress: Progress) -> None:
    """:raises Conflict: a row is missing in the target, is there too much, or is not equal."""
    total, there = table.count(source), table.count(target)
    if there != total:
        raise Conflict(f"{table.name} has {total} rows in the source and {there} in the target.", table=table.name)
    done = 0
    for rows in batches(table.read(table.query(target).order_by("pk"))):
        wanted = _by_key(table, dealt, source=source, keys=[row[table.key] for row in rows])
        for row in rows:
            if row[table.key] not in wanted or not same_row(table, wanted[row[table.key]], row):
                raise Conflict(f"{table.name} {row[table.key]!r} is not equal on both sides.", table=table.name)
        done += len(rows)
        progress("compared", table.name, done, total)


def _compare_chains(report: MoveReport, *, source: str, target: str) -> None:
    """Follow every chain on both sides and hold the heads against each other and against the sessions."""
    ours, theirs = ({head.session_id: head for head in chain_heads(using=alias)} for alias in (source, target))
    named = _rows(source, "sessions_app", "Session").values_list("id", "event_seq", "head_hash")
    report.entries = sum(head.seq for head in theirs.values())
    for session_id, seq, hash in named.iterator():
        report.sessions += 1
        report.problems += _chain_problems(session_id, (seq, hash), ours.get(session_id), theirs.get(session_id))


def _chain_problems(
    session_id: str, named: tuple[int, str], ours: ChainHead | None, theirs: ChainHead | None
) -> list[dict[str, Any]]:
    found = []
    for side, head in (("source", ours), ("target", theirs)):
        if head is not None and head.problem:
            found.append(("chain", head.seq, f"{side}: {head.problem}"))
        if head is not None and (head.seq, head.hash) != named:
            found.append(("head", head.seq, f"{side}: the session's row names another head than its last entry"))
    if ours != theirs:
        found.append(("head", named[0], "source and target end in different entries"))
    return [{"session": session_id, "seq": seq, "kind": kind, "detail": detail} for kind, seq, detail in found]


def _rows(alias: str, app: str, name: str) -> QuerySet[Any, Any]:
    return QuerySet(apps.get_model(app, name), using=alias)


def _is_sqlite(alias: str) -> bool:
    return connections[alias].vendor == "sqlite"


def _run(alias: str, sql: str, *values: Any) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, values)


def _one_value(alias: str, sql: str, *values: Any) -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchone()[0]
