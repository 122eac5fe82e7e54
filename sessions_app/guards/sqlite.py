"""Guards on SQLite (``triggers.Dialect``).

``OR REPLACE`` deletes conflicting rows without firing their delete triggers, so there is a guard before the insert
(and before an update, for keys that may change) that looks for such rows.
"""
# ruff: noqa: S608 - the names in these statements come from the models.

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import UniqueConstraint

from sessions_app.guards.rules import Guard, Model, TriggerSpec, literal, quoted, removal_refusal, update_refusals

PREPARATION = "SELECT 1"
FOREIGN = """
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


def refusals(connection: BaseDatabaseWrapper, model: Model) -> Iterator[TriggerSpec]:
    table, keys = model._meta.db_table, list(_keys(connection, model))
    # Never UPDATE OF column: that fires when a column is only mentioned, and a full save mentions all of them.
    yield from update_refusals(model, lambda field: f"OLD.{quoted(field)} IS NOT NEW.{quoted(field)}")
    yield from removal_refusal(model, "DELETE")
    yield TriggerSpec(
        rule="rowid",
        event="UPDATE",
        condition="OLD.rowid IS NOT NEW.rowid",
        words=f"{table}: {model._meta.pk.column} and rowid never change after the insert",
    )
    words = f"{table}: a row with this key is there already, and a row is never replaced"
    taken = [_taken(table, f"{same} AND rowid <> OLD.rowid", condition) for same, condition in keys]
    yield TriggerSpec(rule="replace", event="UPDATE", condition=" OR ".join(taken), words=words)
    # An insert may choose its rowid too. If it does not, NEW.rowid is -1 at this point, which no row has.
    taken = [_taken(table, same, condition) for same, condition in [("rowid = NEW.rowid", ""), *keys]]
    yield TriggerSpec(rule="insert", event="INSERT", condition=" OR ".join(taken), words=words)
    # A row with rowid -1 would block every later insert. A chosen -1 can only be recognised after the insert.
    yield TriggerSpec(
        rule="negative",
        event="INSERT",
        moment="AFTER",
        condition="NEW.rowid < 0",
        words=f"{table}: a rowid is never negative",
    )


def guard(table: str, refusal: TriggerSpec) -> Guard:
    name = f"guard_{table}_{refusal.rule}"
    when = f" WHEN {refusal.condition}" if refusal.condition else ""
    trigger = f'CREATE TRIGGER "{name}" {refusal.moment} {refusal.event} ON "{table}"{when}'
    return Guard(name=name, table=table, sql=f"{trigger} BEGIN SELECT RAISE(ABORT, {literal(refusal.words)}); END")


def installed(cursor: CursorWrapper) -> list[Guard]:
    cursor.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'guard_*'")
    return [Guard(name=name, table=table, sql=sql) for name, table, sql in cursor.fetchall()]


def same(found: Guard, declared: Guard) -> bool:
    return found == declared  # SQLite keeps the text of a trigger as it was given


def drop(guard: Guard) -> str:
    return f'DROP TRIGGER "{guard.name}"'


def foreign(cursor: CursorWrapper, tables: Collection[str]) -> list[str]:
    cursor.execute(FOREIGN, [])  # in lower case: SQLite ignores the case of a table's name
    return [f"{table}{sentence}" for table, sentence in cursor.fetchall() if table in tables]


def _keys(connection: BaseDatabaseWrapper, model: Model) -> Iterator[tuple[str, str]]:
    """Yield each key of the table: when a row has the same key as NEW, and the condition of a partial key."""
    for field in model._meta.concrete_fields:
        if field.unique:
            yield _same(model, [field.name]), ""
    for names in model._meta.unique_together:
        yield _same(model, names), ""
    for constraint in model._meta.constraints:
        if isinstance(constraint, UniqueConstraint):
            condition = constraint._get_condition_sql(model, connection.schema_editor())  # type: ignore[attr-defined]
            yield _same(model, constraint.fields), condition or ""


def _same(model: Model, key: Sequence[str]) -> str:
    columns = [quoted(field) for field in model._meta.concrete_fields if field.name in key]
    return " AND ".join(f"{column} = NEW.{column}" for column in columns)


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
