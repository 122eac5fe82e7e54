"""Triggers made from each model's ``Rules``, so that the database itself refuses what the rules do not permit.

The way is ``Rules`` -> ``Refusal`` (what, in SQL and in words) -> ``Guard`` (a trigger). On both databases:

* ``frozen``: an update changes a column that no rule names, so a new column is frozen until a rule names it
* ``once``: an update changes a column that has its one value already
* one for each state column, under its name: an update makes a step that is not listed
* ``delete``: a row goes, and the table is not deletable

and ``truncate`` on PostgreSQL; ``insert``, ``replace``, ``rowid`` and ``negative`` on SQLite. A refusal is an ``IntegrityError``
on both, and its text names the table, the columns and the rule. Only who owns the database gets past it, by taking
a trigger away, switching it off, or adding one of their own, and ``guard_differences`` names that.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any, Protocol

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from sessions_app.guards import postgresql, sqlite
from sessions_app.guards.rules import AppendOnlyModel, Guard, Model, Refusal

logger = logging.getLogger(__name__)


class Dialect(Protocol):
    """What the module of a database knows about its triggers."""

    @property
    def PREPARATION(self) -> str:
        """The statement that has to run before the first trigger is made."""

    def refusals(self, connection: BaseDatabaseWrapper, model: Model) -> Iterator[Refusal]:
        """Everything that is refused for one table."""

    def guard(self, table: str, refusal: Refusal) -> Guard:
        """The trigger for one refusal."""

    def installed(self, cursor: CursorWrapper) -> list[Guard]:
        """The guards that the database has."""

    def same(self, found: Guard, declared: Guard) -> bool:
        """Whether an installed guard is the declared one."""

    def drop(self, guard: Guard) -> str:
        """The statement that drops a guard."""

    def foreign(self, cursor: CursorWrapper, tables: Collection[str]) -> list[str]:
        """What acts on these tables, or stands in their place, and is neither a guard nor declared: sentences."""


DIALECTS: Mapping[str, Dialect] = {"sqlite": sqlite, "postgresql": postgresql}


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """The module for this database.

    :raises ImproperlyConfigured: on this database nothing would refuse.
    """
    if connection.vendor not in DIALECTS:
        raise ImproperlyConfigured(f"the record is guarded on SQLite and PostgreSQL, not on {connection.vendor}")
    return DIALECTS[connection.vendor]


def guarded_models() -> list[Model]:
    """Every model with rules, of all apps."""
    return [model for model in apps.get_models() if issubclass(model, AppendOnlyModel)]


def expected_guards(connection: BaseDatabaseWrapper, model: Model) -> tuple[Guard, ...]:
    """The triggers that a model's table must have.

    :raises ImproperlyConfigured: the database is neither SQLite nor PostgreSQL.
    """
    dialect = dialect_of(connection)
    return tuple(dialect.guard(model._meta.db_table, refusal) for refusal in dialect.refusals(connection, model))


def install_guards(connection: BaseDatabaseWrapper, models: Iterable[Model]) -> None:
    """Make the triggers of these models as declared.

    Those that are so already are not touched, since a change locks the table. A table that is not there yet, or
    lacks a column because its migrations are half way, is left alone.
    """
    dialect = dialect_of(connection)
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        found, tables = dialect.installed(cursor), connection.introspection.table_names(cursor)
        statements: list[str] = []
        for model in models:
            there = [guard for guard in found if guard.table == model._meta.db_table]
            repairs = _repairs(dialect, there, expected_guards(connection, model))
            if repairs and model._meta.db_table in tables and _has_all_columns(connection, cursor, model):
                statements += repairs
        for statement in statements and [dialect.PREPARATION, *statements]:
            cursor.execute(statement)


def remove_guards(connection: BaseDatabaseWrapper, models: Iterable[Model]) -> None:
    """Drop the triggers of these models."""
    dialect = dialect_of(connection)
    tables = {model._meta.db_table for model in models}
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for guard in dialect.installed(cursor):
            if guard.table in tables:
                cursor.execute(dialect.drop(guard))


def guard_differences(connection: BaseDatabaseWrapper) -> list[str]:
    """What is installed against what is declared: a sentence for each difference, none when all is well."""
    return [*_differences(connection), *foreign_triggers(connection)]


def foreign_triggers(connection: BaseDatabaseWrapper) -> list[str]:
    """What else acts on the record's tables and nobody declared: a sentence for each, none when all is well.

    Triggers, rules, row-level security, views and temporary tables in the place of a table, child tables, generated
    columns, foreign keys that are switched off, event triggers. ``migrate`` does not touch them: they are somebody's.
    """
    with connection.cursor() as cursor:
        return dialect_of(connection).foreign(cursor, [model._meta.db_table for model in guarded_models()])


def _differences(connection: BaseDatabaseWrapper) -> list[str]:
    dialect = dialect_of(connection)
    expected = [guard for model in guarded_models() for guard in expected_guards(connection, model)]
    with connection.cursor() as cursor:
        found = dialect.installed(cursor)
    missing = _not_in({guard.name for guard in found}, expected)
    wrong = _not_in({guard.name for guard in _right(dialect, found, expected)}, found)
    return [
        *(f"{guard.table} is not guarded: {guard.name} is missing." for guard in missing),
        *(f"{guard.table} is not guarded as declared: {guard.name} differs or is switched off." for guard in wrong),
    ]


def lift_guards(*, using: str, plan: Iterable[tuple[Any, bool]] = (), **_: object) -> None:
    """Before migrations: drop the triggers of the apps that are about to be migrated.

    PostgreSQL refuses to change the type of a column that a trigger names and SQLite to drop one; besides, SQLite
    loses the triggers of each table that Django rebuilds. ``restore_guards`` follows when all migrations are done.
    If one fails, the guards stay away and the site is not ready until a later ``migrate`` succeeds.
    """
    labels = {migration.app_label for migration, _backwards in plan}
    remove_guards(connections[using], [model for model in guarded_models() if model._meta.app_label in labels])


def restore_guards(*, using: str, plan: Iterable[tuple[Any, bool]] | None = None, **_: object) -> None:
    """After migrations: install what is not as declared."""
    connection = connections[using]
    if plan == []:
        # Nothing was migrated, so it was not lift_guards that took one away.
        for difference in _differences(connection):
            logger.warning("%s It is put right now.", difference)
    install_guards(connection, guarded_models())
    for sentence in foreign_triggers(connection):
        logger.warning("%s", sentence)


def _repairs(dialect: Dialect, found: list[Guard], expected: Iterable[Guard]) -> list[str]:
    """The statements that make one table's triggers as expected."""
    right = {guard.name for guard in _right(dialect, found, expected)}
    return [*map(dialect.drop, _not_in(right, found)), *(guard.sql for guard in _not_in(right, expected))]


def _right(dialect: Dialect, found: Iterable[Guard], expected: Iterable[Guard]) -> list[Guard]:
    declared = {guard.name: guard for guard in expected}
    return [guard for guard in found if guard.name in declared and dialect.same(guard, declared[guard.name])]


def _not_in(names: Container[str], guards: Iterable[Guard]) -> list[Guard]:
    return [guard for guard in guards if guard.name not in names]


def _has_all_columns(connection: BaseDatabaseWrapper, cursor: CursorWrapper, model: Model) -> bool:
    # Asking Django for the description of a table would parse its SQL.
    cursor.execute(f"SELECT * FROM {connection.ops.quote_name(model._meta.db_table)} LIMIT 0")  # noqa: S608
    return {column[0] for column in cursor.description} >= {field.column for field in model._meta.concrete_fields}
