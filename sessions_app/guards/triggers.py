"""Triggers made from each model's ``Rules``, so that the database itself refuses what the rules do not permit.

The path is ``Rules`` -> ``TriggerSpec`` (what is refused, in SQL and in words) -> ``Guard`` (a trigger). On both databases:

* ``frozen``: an update changes a column that no rule names, so a new column is frozen until a rule names it
* ``once``: an update changes a column that already has its one value
* one for each state column, under its name: an update makes a step that is not listed
* ``delete``: a row is deleted, and the table is not deletable

and ``truncate`` on PostgreSQL; ``insert``, ``replace``, ``rowid`` and ``negative`` on SQLite. A refusal is an ``IntegrityError``
whose text names the table, the columns and the rule. Only the owner of the database can get past it, by dropping,
disabling or adding triggers, and ``guard_differences`` reports that.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from sessions_app.guards import postgresql, sqlite
from sessions_app.guards.rules import AppendOnlyModel, Guard, Model, TriggerSpec

logger = logging.getLogger(__name__)


class Dialect(Protocol):
    """What the module of a database provides."""

    @property
    def PREPARATION(self) -> str:
        """The statement to run before the first trigger is made."""

    def refusals(self, connection: BaseDatabaseWrapper, model: Model) -> Iterator[TriggerSpec]:
        """Yield everything that is refused for one table."""

    def guard(self, table: str, refusal: TriggerSpec) -> Guard: ...

    def installed(self, cursor: CursorWrapper) -> list[Guard]: ...

    def same(self, found: Guard, declared: Guard) -> bool: ...

    def drop(self, guard: Guard) -> str:
        """Return the statement that drops a guard."""

    def foreign(self, cursor: CursorWrapper, tables: Collection[str]) -> list[str]:
        """Return a sentence for each undeclared thing that acts on these tables or stands in their place."""


DIALECTS: Mapping[str, Dialect] = {"sqlite": sqlite, "postgresql": postgresql}


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """:raises ImproperlyConfigured: the database is neither SQLite nor PostgreSQL."""
    if connection.vendor not in DIALECTS:
        raise ImproperlyConfigured(f"the record is guarded on SQLite and PostgreSQL, not on {connection.vendor}")
    return DIALECTS[connection.vendor]


def guarded_models() -> list[Model]:
    return [model for model in apps.get_models() if issubclass(model, AppendOnlyModel)]


def expected_guards(connection: BaseDatabaseWrapper, model: Model) -> tuple[Guard, ...]:
    """:raises ImproperlyConfigured: the database is neither SQLite nor PostgreSQL."""
    dialect = dialect_of(connection)
    return tuple(dialect.guard(model._meta.db_table, refusal) for refusal in dialect.refusals(connection, model))


def install_guards(connection: BaseDatabaseWrapper, models: Iterable[Model]) -> None:
    """Install the triggers of these models as declared.

    Correct ones are not touched, because a change locks the table. A table that does not exist yet, or lacks a column
    because its migrations are half way, is left alone.
    """
    dialect = dialect_of(connection)
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        found, tables = dialect.installed(cursor), connection.introspection.table_names(cursor)
        statements: list[str] = []
        for model in models:
            there = [guard for guard in found if guard.table == model._meta.db_table]
            expected = expected_guards(connection, model)
            right = _correct_names(dialect, there, expected)
            repairs = [dialect.drop(guard) for guard in there if guard.name not in right]
            repairs += [guard.sql for guard in expected if guard.name not in right]
            if repairs and model._meta.db_table in tables and _has_all_columns(connection, cursor, model):
                statements += repairs
        for statement in statements and [dialect.PREPARATION, *statements]:
            cursor.execute(statement)


def remove_guards(connection: BaseDatabaseWrapper, models: Iterable[Model]) -> None:
    dialect = dialect_of(connection)
    tables = {model._meta.db_table for model in models}
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for guard in dialect.installed(cursor):
            if guard.table in tables:
                cursor.execute(dialect.drop(guard))


def guard_differences(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence for each difference between what is installed and what is declared."""
    return [*_differences(connection), *foreign_triggers(connection)]


def foreign_triggers(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence for each undeclared thing that acts on the record's tables.

    These are triggers, rules, row-level security, views and temporary tables in the place of a table, child tables,
    generated columns, disabled foreign keys and event triggers. ``migrate`` does not touch them: they belong to their makers.
    """
    with connection.cursor() as cursor:
        return dialect_of(connection).foreign(cursor, [model._meta.db_table for model in guarded_models()])


def _differences(connection: BaseDatabaseWrapper) -> list[str]:
    dialect = dialect_of(connection)
    expected = [guard for model in guarded_models() for guard in expected_guards(connection, model)]
    with connection.cursor() as cursor:
        found = dialect.installed(cursor)
    present, right = {guard.name for guard in found}, _correct_names(dialect, found, expected)
    return [
        *(f"{guard.table} is not guarded: {guard.name} is missing." for guard in expected if guard.name not in present),
        *(
            f"{guard.table} is not guarded as declared: {guard.name} differs or is switched off."
            for guard in found
            if guard.name not in right
        ),
    ]


def lift_guards(*, using: str, plan: Iterable[tuple[Any, bool]] = (), **_: object) -> None:
    """Drop the triggers of the apps that are about to be migrated.

    PostgreSQL refuses to change the type of a column that a trigger names and SQLite to drop one; SQLite also loses the
    triggers of each table that Django rebuilds. ``restore_guards`` follows when all migrations are done. If one fails,
    the guards stay away and the site is not ready until a later ``migrate`` succeeds.
    """
    labels = {migration.app_label for migration, _backwards in plan}
    remove_guards(connections[using], [model for model in guarded_models() if model._meta.app_label in labels])


def restore_guards(*, using: str, plan: Iterable[tuple[Any, bool]] | None = None, **_: object) -> None:
    connection = connections[using]
    if plan == []:
        # Nothing was migrated, so a missing trigger was not dropped by lift_guards.
        for difference in _differences(connection):
            logger.warning("%s It is put right now.", difference)
    install_guards(connection, guarded_models())
    for sentence in foreign_triggers(connection):
        logger.warning("%s", sentence)


def _correct_names(dialect: Dialect, found: Iterable[Guard], expected: Iterable[Guard]) -> set[str]:
    declared = {guard.name: guard for guard in expected}
    return {guard.name for guard in found if guard.name in declared and dialect.same(guard, declared[guard.name])}


def _has_all_columns(connection: BaseDatabaseWrapper, cursor: CursorWrapper, model: Model) -> bool:
    # Django's introspection would parse the table's SQL.
    cursor.execute(f"SELECT * FROM {connection.ops.quote_name(model._meta.db_table)} LIMIT 0")  # noqa: S608
    return {column[0] for column in cursor.description} >= {field.column for field in model._meta.concrete_fields}
