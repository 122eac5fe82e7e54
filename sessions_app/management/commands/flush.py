"""``manage.py flush``, for test databases only."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import flush
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sessions_app.database.guards.rights import lifted
from sessions_app.database.guards.triggers import dialect_of

TEST_NAMES = re.compile(r"(.*/)?test[_.][^/]*|:memory:|file:memorydb_.*")
# Tables that migrating fills. They stay, so that nothing has to be migrated again between two tests.
FROM_MIGRATIONS = {"django_migrations", "django_content_type", "auth_permission"}


def is_test_database(name: str) -> bool:
    """Return whether Django's test runner uses this name: ``test_…``, ``test.sqlite3``, or one in memory."""
    return TEST_NAMES.fullmatch(name) is not None


class Command(flush.Command):
    def handle(self, **options: Any) -> None:
        """:raises CommandError: the database is not a test's."""
        connection = connections[options["database"]]
        name = str(connection.settings_dict["NAME"])
        if not is_test_database(name):
            raise CommandError(f"{name} holds a record, which is never emptied. Only a test database can be flushed.")
        # One transaction: the guards are never seen to be off. Foreign keys are checked at its end.
        with lifted(connection), transaction.atomic(using=connection.alias):
            empty(connection, filled_tables(connection))


def filled_tables(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the tables that have rows: most are empty, and emptying a table is slow."""
    tables = sorted(set(connection.introspection.django_table_names(only_existing=True)) - FROM_MIGRATIONS)
    with connection.cursor() as cursor:
        questions = (f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in tables)  # noqa: S608
        cursor.execute(" UNION ALL ".join(questions))
        return [table for (table,) in cursor.fetchall()]


def empty(connection: BaseDatabaseWrapper, tables: list[str]) -> None:
    """Delete every row of some tables, with the guards against deletion off in between."""
    dialect = dialect_of(connection)
    with connection.cursor() as cursor:
        guards = [guard for guard in dialect.installed(cursor) if guard.table in tables and guard.rule == "delete"]
        removals = [f"DELETE FROM {table}" for table in tables]  # noqa: S608
        # PostgreSQL makes no trigger on a table whose foreign keys are still to be checked.
        checks = ["SET CONSTRAINTS ALL IMMEDIATE"] if connection.vendor == "postgresql" else []
        for statement in [*map(dialect.drop, guards), *removals, *checks, *(guard.sql for guard in guards)]:
            cursor.execute(statement)
