"""Triggers made from each model's ``Rules``, so that the database itself refuses what the rules do not permit.

The path is ``Rules`` -> ``Guard`` (a trigger). On both databases:

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
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.utils.translation import gettext_noop

from mnesis_core.errors import fill
from sessions_app.database.guards.rules import AppendOnlyModel, literal

# ruff: noqa: S608 - the names in these statements come from the models.

Column: TypeAlias = "models.Field[Any, Any]"
Model: TypeAlias = type[AppendOnlyModel]
logger = logging.getLogger(__name__)

_SQLITE_FOREIGN = """
    SELECT lower(tbl_name), ' has a trigger that is not declared: ' || name || '.'
    FROM main.sqlite_master WHERE type = 'trigger' AND NOT name GLOB 'guard_*'
    UNION ALL SELECT lower(tbl_name), ' has a temporary trigger that is not declared: ' || name || '.'
    FROM temp.sqlite_master WHERE type = 'trigger'
    UNION ALL SELECT lower(name), ' is hidden by a temporary ' || type || '.'
    FROM temp.sqlite_master WHERE type IN ('table', 'view')
    UNION ALL SELECT lower(name), ' is not the table that was made: it is a view or a virtual table.'
    FROM main.sqlite_master WHERE type = 'view' OR (type = 'table' AND sql LIKE 'CREATE VIRTUAL%%')
    UNION ALL SELECT lower(made.name), '.' || held.name || ' is a generated column, which is not declared.'
    FROM main.sqlite_master AS made, pragma_table_xinfo(made.name) AS held
    WHERE made.type = 'table' AND held.hidden IN (2, 3)
    ORDER BY 1, 2"""
_POSTGRESQL_FOREIGN = """
    WITH held AS (SELECT * FROM pg_class WHERE relname = ANY(%s) AND pg_table_is_visible(oid))
    SELECT relname || ' has a trigger that is not declared: ' || tgname || '.'
    FROM held JOIN pg_trigger ON tgrelid = held.oid WHERE NOT tgisinternal AND NOT starts_with(tgname, 'guard_')
    UNION SELECT relname || ' does not enforce ' || conname || ': triggers of this foreign key are switched off.'
    FROM held JOIN pg_trigger ON tgrelid = held.oid JOIN pg_constraint ON pg_constraint.oid = tgconstraint
    WHERE tgisinternal AND tgenabled NOT IN ('O', 'A')
    UNION SELECT relname || ' has a rule that is not declared: ' || rulename || '.'
    FROM held JOIN pg_rewrite ON ev_class = held.oid WHERE rulename <> '_RETURN'
    UNION SELECT relname || ' has row-level security, which may hide rows or refuse them.'
    FROM held WHERE relrowsecurity OR relforcerowsecurity
    UNION SELECT relname || ' has a policy that is not declared: ' || polname || '.'
    FROM held JOIN pg_policy ON polrelid = held.oid
    UNION SELECT relname || ' is hidden by a temporary table or view.' FROM held WHERE relpersistence = 't'
    UNION SELECT relname || ' is not the table that was made: it is a view, or a table of another kind.'
    FROM held WHERE relkind <> 'r'
    UNION SELECT relname || ' shows the rows of another table as its own: ' || inhrelid::regclass || '.'
    FROM held JOIN pg_inherits ON inhparent = held.oid
    UNION SELECT relname || ' shows its rows in another table: ' || inhparent::regclass || '.'
    FROM held JOIN pg_inherits ON inhrelid = held.oid
    UNION SELECT relname || '.' || attname || ' is a generated column, which is not declared.'
    FROM held JOIN pg_attribute ON attrelid = held.oid WHERE attgenerated <> '' AND NOT attisdropped
    UNION SELECT 'The database has an event trigger that is not declared: ' || evtname || '.'
    FROM pg_event_trigger WHERE evtenabled <> 'D' AND NOT EXISTS (
        SELECT FROM pg_depend WHERE classid = 'pg_event_trigger'::regclass AND objid = pg_event_trigger.oid AND deptype = 'e'
    )
    ORDER BY 1"""
_RAISE = "BEGIN RAISE EXCEPTION USING ERRCODE = 'restrict_violation', MESSAGE = TG_ARGV[0]; END"
_PRINTED = re.compile(r'"|::\w+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    name: str
    table: str
    sql: str

    @property
    def rule(self) -> str:
        return self.name.removeprefix(f"guard_{self.table}_")


class Dialect(ABC):
    """How one database refuses, and what it says of its triggers."""

    preparation: Sequence[str] = ()  # statements to run before the first trigger is made
    removals: Sequence[str] = ("DELETE",)

    def declared(self, connection: BaseDatabaseWrapper, model: Model) -> Iterator[Guard]:
        """Yield a guard for each thing that the rules of one table do not permit.

        :raises FieldDoesNotExist: a rule names a column that the model does not have.
        """
        table, rules, fields = model._meta.db_table, model.rules, model._meta.concrete_fields
        ruled = [model._meta.get_field(name) for name in rules.changeable]
        frozen = [field for field in fields if field not in ruled]
        condition = " OR ".join(self.changed(field) for field in frozen)
        yield self.guard(table, "frozen", "UPDATE", condition, f"{_listed(frozen)} never change after the insert")
        once = [field for field in fields if field.name in rules.once]
        if once:
            condition = " OR ".join(f"OLD.{_quoted(field)} IS NOT NULL AND {self.changed(field)}" for field in once)
            yield self.guard(
                table, "once", "UPDATE", condition, f"{_listed(once)} are set once and then keep their value"
            )
        for column in fields:
            if column.name not in rules.steps:
                continue
            state, steps = _quoted(column), rules.steps[column.name]
            listed = " OR ".join(f"OLD.{state} = {literal(old)} AND NEW.{state} = {literal(new)}" for old, new in steps)
            permitted = ", from ".join(f"{old} to {new}" for old, new in steps)
            # IS NOT TRUE: with a NULL on either side the list is neither true nor false, and NOT would let it pass.
            condition = f"{self.changed(column)} AND ({listed}) IS NOT TRUE"
            rule = str(column.column)
            yield self.guard(table, rule, "UPDATE", condition, f"{rule} goes only from {permitted}")
        for event in () if rules.deletable else self.removals:
            yield self.guard(table, event.lower(), event, "", "a row is part of the record and is never deleted")

    @abstractmethod
    def changed(self, field: Column) -> str:
        """Return the SQL for "this column changes"."""

    @abstractmethod
    def guard(self, table: str, rule: str, event: str, condition: str, words: str) -> Guard:
        """Return the trigger that refuses an event in these words.

        :param rule: the end of the trigger's name
        :param event: UPDATE, DELETE, INSERT or TRUNCATE; with ``AFTER`` in front it is refused when it has happened
        :param condition: SQL over the rows OLD and NEW; empty for always
        """

    @abstractmethod
    def installed(self, cursor: CursorWrapper) -> list[Guard]:
        """Return the installed guards; one that has no effect lacks a part of its declaration."""

    @abstractmethod
    def same(self, found: Guard, declared: Guard) -> bool: ...

    @abstractmethod
    def drop(self, guard: Guard) -> str:
        """Return the statement that drops a guard."""

    @abstractmethod
    def foreign(self, cursor: CursorWrapper, tables: Collection[str]) -> list[str]:
        """Return a sentence for each undeclared thing that acts on these tables or stands in their place."""


class Sqlite(Dialect):
    """Triggers of SQLite.

    ``OR REPLACE`` deletes conflicting rows without firing their delete triggers, so there is a guard before the insert
    (and before an update, for keys that may change) that looks for such rows.
    """

    def declared(self, connection: BaseDatabaseWrapper, model: Model) -> Iterator[Guard]:
        yield from super().declared(connection, model)
        table, fields = model._meta.db_table, model._meta.concrete_fields
        named: list[tuple[Sequence[str], str]] = [([field.name], "") for field in fields if field.unique]
        named += [(names, "") for names in model._meta.unique_together]
        for constraint in model._meta.constraints:
            if isinstance(constraint, models.UniqueConstraint):
                condition = constraint._get_condition_sql(model, connection.schema_editor())  # type: ignore[attr-defined]
                named.append((constraint.fields, condition or ""))
        # Of each key: when a row has the same as NEW, and the condition of a partial key.
        keys = [
            (
                " AND ".join(f"{_quoted(field)} = NEW.{_quoted(field)}" for field in fields if field.name in names),
                condition,
            )
            for names, condition in named
        ]
        words = f"{model._meta.pk.column} and rowid never change after the insert"
        yield self.guard(table, "rowid", "UPDATE", "OLD.rowid IS NOT NEW.rowid", words)
        words = "a row with this key is there already, and a row is never replaced"
        taken = [_taken(table, f"{same} AND rowid <> OLD.rowid", condition) for same, condition in keys]
        yield self.guard(table, "replace", "UPDATE", " OR ".join(taken), words)
        # An insert may choose its rowid too. If it does not, NEW.rowid is -1 at this point, which no row has.
        taken = [_taken(table, same, condition) for same, condition in [("rowid = NEW.rowid", ""), *keys]]
        yield self.guard(table, "insert", "INSERT", " OR ".join(taken), words)
        # A row with rowid -1 would block every later insert. A chosen -1 can only be recognised after the insert.
        yield self.guard(table, "negative", "AFTER INSERT", "NEW.rowid < 0", "a rowid is never negative")

    def changed(self, field: Column) -> str:
        # Never UPDATE OF column: that fires when a column is only mentioned, and a full save mentions all of them.
        return f"OLD.{_quoted(field)} IS NOT NEW.{_quoted(field)}"

    def guard(self, table: str, rule: str, event: str, condition: str, words: str) -> Guard:
        name = f"guard_{table}_{rule}"
        when = f" WHEN {condition}" if condition else ""
        moment = event if event.startswith("AFTER ") else f"BEFORE {event}"
        refusal = f"BEGIN SELECT RAISE(ABORT, {literal(f'{table}: {words}')}); END"
        return Guard(name=name, table=table, sql=f'CREATE TRIGGER "{name}" {moment} ON "{table}"{when} {refusal}')

    def installed(self, cursor: CursorWrapper) -> list[Guard]:
        cursor.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'guard_*'")
        return [Guard(name=name, table=table, sql=sql) for name, table, sql in cursor.fetchall()]

    def same(self, found: Guard, declared: Guard) -> bool:
        return found == declared  # SQLite keeps the text of a trigger as it was given

    def drop(self, guard: Guard) -> str:
        return f'DROP TRIGGER "{guard.name}"'

    def foreign(self, cursor: CursorWrapper, tables: Collection[str]) -> list[str]:
        cursor.execute(_SQLITE_FOREIGN, [])  # in lower case: SQLite ignores the case of a table's name
        return [f"{table}{sentence}" for table, sentence in cursor.fetchall() if table in tables]


def _taken(table: str, same: str, condition: str) -> str:
    """Match a row that ``OR REPLACE`` would delete; with a partial key both rows have to meet its condition."""
    if not condition:
        return f'EXISTS (SELECT 1 FROM "{table}" WHERE {same})'
    # A subquery over NEW lets the condition be used as it is written.
    columns = dict.fromkeys(re.findall(r'"\w+"', condition))
    new = ", ".join(f"NEW.{column} AS {column}" for column in columns)
    return (
        f'EXISTS (SELECT 1 FROM "{table}" WHERE {same} AND {condition})'
        f" AND EXISTS (SELECT 1 FROM (SELECT {new}) WHERE {condition})"
    )


class Postgresql(Dialect):
    """Triggers of PostgreSQL.

    The condition is in WHEN, so that a permitted update never enters plpgsql; one function for all of them only raises.
    """

    preparation = (f"CREATE OR REPLACE FUNCTION guard_refuse() RETURNS trigger LANGUAGE plpgsql AS $${_RAISE}$$",)
    removals = ("DELETE", "TRUNCATE")

    def changed(self, field: Column) -> str:
        # Compared as text, because jsonb takes 1 and 1.0 for equal although they were written differently.
        cast = "::text" if isinstance(field, models.JSONField) else ""
        return f"OLD.{_quoted(field)}{cast} IS DISTINCT FROM NEW.{_quoted(field)}{cast}"

    def guard(self, table: str, rule: str, event: str, condition: str, words: str) -> Guard:
        name = f"guard_{table}_{rule}"
        scope = "STATEMENT" if event == "TRUNCATE" else "ROW"
        when = f" WHEN ({condition})" if condition else ""
        trigger = f'CREATE TRIGGER "{name}" BEFORE {event} ON "{table}" FOR EACH {scope}{when}'
        return self._enabled(name, table, f"{trigger} EXECUTE FUNCTION guard_refuse({literal(f'{table}: {words}')})")

    def installed(self, cursor: CursorWrapper) -> list[Guard]:
        # One that is switched off or calls another function lacks the statement that enables it.
        cursor.execute(
            "SELECT tgname, relname, pg_get_triggerdef(pg_trigger.oid, true), tgenabled = 'A' AND prosrc = %s"
            " FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid"
            " WHERE starts_with(tgname, 'guard_') AND NOT tgisinternal AND pg_table_is_visible(tgrelid)",
            [_RAISE],
        )
        return [
            self._enabled(name, table, trigger) if effective else Guard(name=name, table=table, sql=trigger)
            for name, table, trigger, effective in cursor.fetchall()
        ]

    def same(self, found: Guard, declared: Guard) -> bool:
        # PostgreSQL changes case, quotes and casts when it stores a definition.
        return _PRINTED.sub("", found.sql.lower()) == _PRINTED.sub("", declared.sql.lower())

    def drop(self, guard: Guard) -> str:
        return f'DROP TRIGGER "{guard.name}" ON "{guard.table}"'

    def foreign(self, cursor: CursorWrapper, tables: Collection[str]) -> list[str]:
        cursor.execute(_POSTGRESQL_FOREIGN, [[*tables]])
        return [sentence for [sentence] in cursor.fetchall()]

    def _enabled(self, name: str, table: str, trigger: str) -> Guard:
        # ENABLE ALWAYS, because session_replication_role = replica would switch ordinary triggers off.
        return Guard(name=name, table=table, sql=f'{trigger}; ALTER TABLE "{table}" ENABLE ALWAYS TRIGGER "{name}"')


DIALECTS: Mapping[str, Dialect] = {"sqlite": Sqlite(), "postgresql": Postgresql()}


def _quoted(field: Column) -> str:
    return f'"{field.column}"'


def _listed(fields: Iterable[Column]) -> str:
    return ", ".join(str(field.column) for field in fields)


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """:raises ImproperlyConfigured: the database is neither SQLite nor PostgreSQL."""
    if connection.vendor not in DIALECTS:
        raise ImproperlyConfigured(f"the record is guarded on SQLite and PostgreSQL, not on {connection.vendor}")
    return DIALECTS[connection.vendor]


def guarded_models() -> list[Model]:
    return [model for model in apps.get_models() if issubclass(model, AppendOnlyModel)]


def expected_guards(connection: BaseDatabaseWrapper, model: Model) -> tuple[Guard, ...]:
    return tuple(dialect_of(connection).declared(connection, model))


def install_guards(connection: BaseDatabaseWrapper, guarded: Iterable[Model]) -> None:
    """Install the triggers of these models as declared.

    Correct ones are not touched, because a change locks the table. A table that does not exist yet, or lacks a column
    because its migrations are half way, is left alone.
    """
    dialect = dialect_of(connection)
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        found, tables = dialect.installed(cursor), connection.introspection.table_names(cursor)
        statements: list[str] = []
        for model in guarded:
            there = [guard for guard in found if guard.table == model._meta.db_table]
            expected = expected_guards(connection, model)
            right = _correct_names(dialect, there, expected)
            repairs = [dialect.drop(guard) for guard in there if guard.name not in right]
            repairs += [guard.sql for guard in expected if guard.name not in right]
            if not repairs or model._meta.db_table not in tables:
                continue
            # Django's introspection would parse the table's SQL.
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(model._meta.db_table)} LIMIT 0")
            if {column[0] for column in cursor.description} >= {field.column for field in model._meta.concrete_fields}:
                statements += repairs
        for statement in statements and [*dialect.preparation, *statements]:
            cursor.execute(statement)


def remove_guards(connection: BaseDatabaseWrapper, guarded: Iterable[Model]) -> None:
    dialect = dialect_of(connection)
    tables = {model._meta.db_table for model in guarded}
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
    missing = gettext_noop("%(table)s is not guarded: %(name)s is missing.")
    different = gettext_noop("%(table)s is not guarded as declared: %(name)s differs or is switched off.")
    return [
        *(_sentence(missing, guard) for guard in expected if guard.name not in present),
        *(_sentence(different, guard) for guard in found if guard.name not in right),
    ]


def _sentence(text: str, guard: Guard) -> str:
    return fill(text, {"table": guard.table, "name": guard.name})


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
