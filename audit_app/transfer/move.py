"""Copy everything from one database into another, row by row as it is, and prove that it arrived.

The source is locked against writing meanwhile. Rows are inserted in the order of foreign keys, each batch in a
transaction, so an interrupted move continues where it stopped. All guards stay in place, as they permit inserts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

from audit_app.proof.ledger import chain_heads
from audit_app.tables import (
    LEFT_BEHIND,
    Dealt,
    Table,
    batches,
    carried_tables,
    deal_on,
    dealt_by_migrate,
    insert_rows,
    renumbered,
    row_characters,
    same_row,
)
from mnesis_core.errors import Conflict, InvalidRequest, NotReady, SessionBusy
from sessions_app.search import index

LOCK_SECONDS = 20  # how long a move waits for writers of the source; SQLite waits as long, by its settings
MOVER = 7_663_911  # the advisory lock that a move holds on both databases; no other lock has its number

Progress = Callable[[str, str, int, int], None]
"""The stage (``copied``, ``compared``, ``indexed``), the table, rows done, rows in all."""


@dataclass(slots=True, kw_only=True)
class MoveReport:
    source: str
    target: str
    # For each table, the number of rows (rows) and how many this run inserted (copied).
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    sessions: int = 0
    entries: int = 0
    # Broken or different chains: session, seq, kind, detail.
    problems: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def copied(self) -> int:
        return sum(table["copied"] for table in self.tables.values())

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {"ok": self.ok, **values, "left_behind": LEFT_BEHIND}


def move_database(
    source: str, target: str, *, progress: Progress = lambda stage, table, done, total: None
) -> MoveReport:
    """Copy everything from one database to another; both are aliases in ``django.db.connections``.

    :raises SessionBusy: turns or compactions are running in the source.
    :raises Conflict: a process writes to the source, or the target holds something else.
    :raises InvalidRequest: both are one database, or a row cannot be stored in the target.
    :raises NotReady: the source lacks migrations.
    """
    report = MoveReport(source=name_of(source), target=name_of(target))
    with _alone(source, target), _locked(source):
        _refuse_unfit(source, target)
        call_command("migrate", database=target, verbosity=0, interactive=False)
        tables, dealt = carried_tables(), dealt_by_migrate(source, target)
        for table in tables:
            for key in _different_keys(table, dealt, source=source, target=target):
                raise Conflict(
                    f"The target's {table.name} {key!r} is not what the source has: it holds another "
                    "record, or the source was used since an earlier move. Begin again with an empty database.",
                    table=table.name,
                )
        for table in tables:
            report.tables[table.name] = _copy(table, dealt, source=source, target=target, progress=progress)
        deal_on(tables, using=target)
        for table in tables:
            total, there = table.count(source), table.count(target)
            if there != total:
                words = f"{table.name} has {total} rows in the source and {there} in the target."
                raise Conflict(words, table=table.name)
            for key in _different_keys(table, dealt, source=source, target=target, progress=progress):
                raise Conflict(f"{table.name} {key!r} is not equal on both sides.", table=table.name)
        _compare_chains(report, source=source, target=target)
    index.rebuild(lambda done, total: progress("indexed", "sessions", done, total), using=target)
    return report


def name_of(alias: str) -> str:
    """Return a database's URL without its password."""
    values = connections[alias].settings_dict
    if connections[alias].vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    return f"postgresql://{values['HOST'] or 'localhost'}:{values['PORT'] or 5432}/{values['NAME']}"


@contextmanager
def _alone(source: str, target: str) -> Iterator[None]:
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
    executor = MigrationExecutor(connections[source])
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise NotReady("The source lacks migrations. Run 'manage.py migrate' on it first.")
    try:
        # SQLite's transactions are IMMEDIATE: they begin with the one lock there is.
        with transaction.atomic(using=source):
            if not _is_sqlite(source):
                names = ", ".join(f'"{table.name}"' for table in carried_tables())
                with connections[source].cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {LOCK_SECONDS * 1_000:.0f}")
                    cursor.execute(f"LOCK TABLE {names} IN EXCLUSIVE MODE")
            yield
    except OperationalError as error:
        raise Conflict(
            f"Another process is writing to {name_of(source)}. Stop the site, then move. ({error})"
        ) from error


def _refuse_unfit(source: str, target: str) -> None:
    """:raises SessionBusy: work is running in the source.
    :raises Conflict: the target holds sessions that the source does not, or another site.
    """
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
    tables = set(connections[target].introspection.table_names())
    if "django_migrations" in tables and "sessions" not in tables:
        raise Conflict(f"{name_of(target)} holds the tables of another site. Name an empty database with --to.")
    if "sessions" not in tables:
        return
    there = _rows(target, "sessions_app", "Session").values_list("id", flat=True).iterator()
    for ids in batches(there, len):
        known = set(_rows(source, "sessions_app", "Session").filter(id__in=ids).values_list("id", flat=True))
        if set(ids) - known:
            raise Conflict(f"{name_of(target)} holds another record. Name an empty database with --to.")


def _different_keys(
    table: Table, dealt: Dealt, *, source: str, target: str, progress: Progress = lambda stage, table, done, total: None
) -> Iterator[Any]:
    """Yield the keys of the target's rows that the source lacks or has otherwise."""
    done, total = 0, table.count(target)
    for rows in batches(table.read(table.query(target).order_by("pk")), row_characters):
        found = table.read(table.query(source).filter(pk__in=[row[table.key] for row in rows]))
        wanted = {row[table.key]: renumbered(table, row, dealt) for row in found}
        for row in rows:
            key = row[table.key]
            if key not in wanted or not same_row(table, wanted[key], row):
                yield key
        done += len(rows)
        progress("compared", table.name, done, total)


def _copy(table: Table, dealt: Dealt, *, source: str, target: str, progress: Progress) -> dict[str, int]:
    total, there = table.count(source), table.count(target)
    done = copied = 0
    # Foreign keys are checked at the commit, so a table that points at itself needs one transaction.
    with transaction.atomic(using=target) if table.points_at_itself else nullcontext():
        for rows in batches(table.read(table.query(source).order_by("pk")), row_characters) if there < total else ():
            missing = rows
            if there:
                query = table.query(target).filter(pk__in=[row[table.key] for row in rows])
                copied_before = set(query.values_list("pk", flat=True))
                missing = [row for row in rows if row[table.key] not in copied_before]
            numbered = [renumbered(table, row, dealt) for row in missing]
            try:
                with transaction.atomic(using=target):
                    insert_rows(table.name, table.fields, numbered, using=target)
            except (DataError, IntegrityError, ValueError) as error:
                first, last = numbered[0][table.key], numbered[-1][table.key]
                words = f"The target refuses a row of {table.name} between {first!r} and {last!r}: {error}"
                raise InvalidRequest(words, table=table.name) from error
            done, copied = done + len(rows), copied + len(missing)
            progress("copied", table.name, done, total)
    return {"rows": total, "copied": copied}


def _compare_chains(report: MoveReport, *, source: str, target: str) -> None:
    ours, theirs = ({head.session_id: head for head in chain_heads(using=alias)} for alias in (source, target))
    named = _rows(source, "sessions_app", "Session").values_list("id", "event_seq", "head_hash")
    report.entries = sum(head.seq for head in theirs.values())

    def add(session_id: str, seq: int, kind: str, detail: str) -> None:
        report.problems.append({"session": session_id, "seq": seq, "kind": kind, "detail": detail})

    for session_id, seq, hash in named.iterator():
        report.sessions += 1
        heads = {"source": ours.get(session_id), "target": theirs.get(session_id)}
        for side, head in heads.items():
            if head is not None and head.problem:
                add(session_id, head.seq, "chain", f"{side}: {head.problem}")
            if head is not None and (head.seq, head.hash) != (seq, hash):
                add(session_id, head.seq, "head", f"{side}: the session's row names another head than its last entry")
        if heads["source"] != heads["target"]:
            add(session_id, seq, "head", "source and target end in different entries")


def _rows(alias: str, app: str, name: str) -> QuerySet[Any, Any]:
    return QuerySet(apps.get_model(app, name), using=alias)


def _is_sqlite(alias: str) -> bool:
    return connections[alias].vendor == "sqlite"


def _one_value(alias: str, sql: str, *values: Any) -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchone()[0]
