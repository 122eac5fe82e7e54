"""What ``migrate`` makes sure of first: that it runs alone, never undoes the record, and fills no lost database anew."""

from __future__ import annotations

import fcntl
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.migrations import Migration
from django.db.migrations.recorder import MigrationRecorder

from sessions_app.guards.known_databases import emptied, remember
from sessions_app.guards.triggers import guarded_models

logger = logging.getLogger(__name__)

WAY_OUT = (
    "The record is never taken back. To return to an earlier version, restore a backup made with it; "
    "to get rid of the record, drop the database with the database's own tools."
)
MIGRATING = 7_663_913
"""The advisory lock held while a PostgreSQL database is migrated. Each advisory lock of the site has its own number."""
SECONDS_BEFORE_SAYING = 1.0
SECONDS_BETWEEN_LOOKS = 0.1
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def record_apps() -> frozenset[str]:
    """The apps that hold tables of the record, and those that hold what its rows refer to: accounts."""
    models = guarded_models()
    referred = (field.related_model for model in models for field in model._meta.concrete_fields if field.is_relation)
    return frozenset(model._meta.app_label for model in [*models, *referred] if not isinstance(model, str | None))


def unapplied(plan: Iterable[tuple[Migration, bool]], apps: Collection[str]) -> list[str]:
    """The migrations of some apps that a plan would undo; each step of a plan is (migration, backwards)."""
    steps = [migration for migration, backwards in plan if backwards]
    return [f"{migration.app_label}.{migration.name}" for migration in steps if migration.app_label in apps]


def refuse_to_unapply(*, plan: Iterable[tuple[Migration, bool]] = (), **_: Any) -> None:
    """Before migrations.

    :raises CommandError: the plan goes backwards over a table of the record, faked or not.
    """
    if names := unapplied(plan, record_apps()):
        more = f" and {len(names) - 1} more migrations" if len(names) > 1 else ""
        raise CommandError(f"This would undo {names[0]}{more}, and with it tables of the record. {WAY_OUT}")


@contextmanager
def one_at_a_time(connection: BaseDatabaseWrapper, say: Callable[[str], object]) -> Iterator[None]:
    """Migrate alone: wait for another process that does, and keep others waiting. A process that dies gives way."""
    with _way_in(connection) as enter:
        said, started = False, time.monotonic()
        while not enter():
            if not said and time.monotonic() - started > SECONDS_BEFORE_SAYING:
                say(f"Waiting for another process that migrates {connection.settings_dict['NAME']}.")
                said = True
            time.sleep(SECONDS_BETWEEN_LOOKS)
        yield


@contextmanager
def known(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Refuse to fill the site's own database anew where it was lost, and note down that it holds a record.

    :raises CommandError: it held a record and has no migrations now.
    """
    if connection.alias != DEFAULT_DB_ALIAS:
        yield
        return
    entry, directory = connection.settings_dict, settings.DATA_DIR
    if not _is_migrated(connection) and (sentence := emptied(entry, directory)):
        raise CommandError(sentence)
    yield
    if not _is_migrated(connection):
        return
    try:
        remember(entry, directory)
    except OSError as error:
        logger.warning("Its loss would not be noticed: %s", error)


@contextmanager
def damage_told(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """:raises CommandError: the file is no SQLite database, or it is damaged."""
    try:
        yield
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlite_errorcode", None) not in DAMAGED:
            raise
        raise CommandError(
            f"{connection.settings_dict['NAME']} is not a whole SQLite database ({error}). "
            "Put a backup in its place: docs/operations.md says how."
        ) from error


@contextmanager
def _way_in(connection: BaseDatabaseWrapper) -> Iterator[Callable[[], bool]]:
    """Yield a function that tries, without waiting, to take the lock, which is then held until the block ends."""
    if connection.vendor == "sqlite":
        # Never removed: who still waits for a removed file and who makes a new one would both be let in.
        with Path(f"{connection.settings_dict['NAME']}.lock").open("a") as file:
            yield lambda: _locked(file.fileno())
        return
    # One of its own, since that of the migrations may be in a transaction that fails; nor one of a pool, whose sessions
    # outlive us.
    own = connection.copy()
    own.settings_dict["OPTIONS"].pop("pool", None)
    try:
        with own.cursor() as cursor:
            yield lambda: _taken(cursor)
    finally:
        own.close()


def _is_migrated(connection: BaseDatabaseWrapper) -> bool:
    return MigrationRecorder.Migration._meta.db_table in connection.introspection.table_names()


def _taken(cursor: CursorWrapper) -> bool:
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [MIGRATING])
    return bool(cursor.fetchone()[0])


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
