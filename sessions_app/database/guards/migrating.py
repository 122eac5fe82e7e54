"""The safeguards of ``migrate``: it runs alone, never undoes the record and never refills a lost database."""

from __future__ import annotations

import fcntl
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import Migration
from django.db.migrations.recorder import MigrationRecorder

from sessions_app.database.guards.known_databases import emptied, remember
from sessions_app.database.guards.triggers import guarded_models

logger = logging.getLogger(__name__)

WAY_OUT = (
    "The record is never taken back. To return to an earlier version, restore a backup made with it; "
    "to get rid of the record, drop the database with the database's own tools."
)
# Held while a PostgreSQL database is migrated. Each advisory lock of the site has its own number.
MIGRATION_LOCK = 7_663_913
NOTICE_AFTER_SECONDS = 1.0
POLL_INTERVAL_SECONDS = 0.1
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def record_apps() -> frozenset[str]:
    """Return the apps that hold tables of the record, and those that its rows refer to (accounts)."""
    models = guarded_models()
    referred = (field.related_model for model in models for field in model._meta.concrete_fields if field.is_relation)
    return frozenset(model._meta.app_label for model in [*models, *referred] if not isinstance(model, str | None))


def unapplied(plan: Iterable[tuple[Migration, bool]], apps: Collection[str]) -> list[str]:
    steps = [migration for migration, backwards in plan if backwards]
    return [f"{migration.app_label}.{migration.name}" for migration in steps if migration.app_label in apps]


def refuse_to_unapply(*, plan: Iterable[tuple[Migration, bool]] = (), **_: Any) -> None:
    """:raises CommandError: the plan goes backwards over a table of the record, faked or not."""
    if names := unapplied(plan, record_apps()):
        more = f" and {len(names) - 1} more migrations" if len(names) > 1 else ""
        raise CommandError(f"This would undo {names[0]}{more}, and with it tables of the record. {WAY_OUT}")


@contextmanager
def one_at_a_time(connection: BaseDatabaseWrapper, say: Callable[[str], object]) -> Iterator[None]:
    """Wait until no other process migrates this database, and keep others out. The lock of a process that dies is freed."""
    with _lock(connection) as acquire:
        noticed, started = False, time.monotonic()
        while not acquire():
            if not noticed and time.monotonic() - started > NOTICE_AFTER_SECONDS:
                say(f"Waiting for another process that migrates {connection.settings_dict['NAME']}.")
                noticed = True
            time.sleep(POLL_INTERVAL_SECONDS)
        yield


@contextmanager
def known(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Refuse to fill the site's own database if its record was lost, and remember that it holds one.

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
        logger.warning("The loss of this database would not be noticed: %s", error)


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
def _lock(connection: BaseDatabaseWrapper) -> Iterator[Callable[[], bool]]:
    if connection.vendor == "sqlite":
        # The file is never removed: a process waiting for a removed one and one that creates a new one would both enter.
        with Path(f"{connection.settings_dict['NAME']}.lock").open("a") as file:

            def try_file_lock() -> bool:
                with suppress(BlockingIOError):
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                return False

            yield try_file_lock
        return
    # A separate connection, because the transaction of the migrations may fail, and not one of a pool, whose
    # sessions outlive this process.
    own = connection.copy()
    own.settings_dict["OPTIONS"].pop("pool", None)

    def try_advisory_lock() -> bool:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [MIGRATION_LOCK])
        return bool(cursor.fetchone()[0])

    try:
        with own.cursor() as cursor:
            yield try_advisory_lock
    finally:
        own.close()


def _is_migrated(connection: BaseDatabaseWrapper) -> bool:
    return MigrationRecorder.Migration._meta.db_table in connection.introspection.table_names()
