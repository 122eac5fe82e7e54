"""Guards on SQLite.

Never ``UPDATE OF column``: that fires when a column is only mentioned, and a full save mentions them all. And
``OR REPLACE`` deletes the rows that are in the way without firing their delete triggers, so there is a guard
before the insert (and before an update, for keys that may change) that looks for such rows.
"""
# ruff: noqa: S608 - the names in these statements are the models' own, nobody else's.

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import UniqueConstraint

from sessions_app.guards.rules import Guard, Model, Refusal, literal, quoted, removal_refusal, update_refusals

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
"""A table and what is to be said of it. SQLite does not tell small letters from capitals in a table's name."""


def refusals(connection: BaseDatabaseWrapper, model: Model) -> Iterator[Refusal]:
    """Everything that is refused for one table."""
    table, keys = model._meta.db_table, list(_keys(connection, model))
    yield from update_refusals(model, lambda field: f"OLD.{quoted(field)} IS NOT NEW.{quoted(field)}")
    yield from removal_refusal(model, "DELETE")
    yield Refusal(
        rule="rowid",
        event="UPDATE",
        condition="OLD.rowid IS NOT NEW.rowid",
        words=f"{table}: {model._meta.pk.column} and rowid never change after the insert",
    )
    words = f"{table}: a row with this key is there already, and a row is never replaced"
    taken = [_taken(table, f"{same} AND rowid <> OLD.rowid", condition) for same, condition in keys]
    yield Refusal(rule="replace", event="UPDATE", condition=" OR ".join(taken), words=words)
    # An insert may choose its rowid too. Where it does not, NEW.rowid is -1 at this point, which no row has.
    taken = [_taken(table, same, condition) for same, condition in [("rowid = NEW.rowid", ""), *keys]]
    yield Refusal(rule="insert", event="INSERT", condition=" OR ".join(taken), words=words)
    # So that none has it: it would stand in the way of every later insert. Only afterwards a chosen -1 can be told.
    yield Refusal(
        rule="negative",
        event="INSERT",
        moment="AFTER",
        condition="NEW.rowid < 0",
        words=f"{table}: a rowid is never negative",
    )


def guard(table: str, refusal: Refusal) -> Guard:
    """The trigger for one refusal."""
    name = f"guard_{table}_{refusal.rule}"
    when = f" WHEN {refusal.condition}" if refusal.condition else ""
    trigger = f'CREATE TRIGGER "{name}" {refusal.moment} {refusal.event} ON "{table}"{when}'
    return Guard(name=name, table=table, sql=f"{trigger} BEGIN SELECT RAISE(ABORT, {literal(refusal.words)}); END")


def installed(cursor: CursorWrapper) -> list[Guard]:
    """The guards that the database has."""
    cursor.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'guard_*'")
    return [Guard(name=name, table=table, sql=sql) for name, table, sql in cursor.fetchall()]


def same(found: Guard, declared: Guard) -> bool:
    """Whether an installed guard is the declared one; SQLite keeps the text of a trigger as it was given."""
    return found == declared


def drop(guard: Guard) -> str:
    """The statement that drops a guard."""
    return f'DROP TRIGGER "{guard.name}"'


def foreign(cursor: CursorWrapper, tables: Collection[str]) -> list[str]:
    """What acts on these tables, or stands in their place, and is neither a guard nor declared: sentences."""
    cursor.execute(FOREIGN, [])
    return [f"{table}{said}" for table, said in cursor.fetchall() if table in tables]


def _keys(connection: BaseDatabaseWrapper, model: Model) -> Iterator[tuple[str, str]]:
    """Each key of the table: when a row has the same key as NEW, and the condition of a partial key."""
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
    """A row that ``OR REPLACE`` would delete; with a partial key both rows have to meet its condition."""
    if not condition:
        return f'EXISTS (SELECT 1 FROM "{table}" WHERE {same})'
    # As a subquery, NEW can be asked in the very words of the key.
    columns = dict.fromkeys(re.findall(r'"\w+"', condition))
    new = ", ".join(f"NEW.{column} AS {column}" for column in columns)
    return (
        f'EXISTS (SELECT 1 FROM "{table}" WHERE {same} AND {condition})'
        f" AND EXISTS (SELECT 1 FROM (SELECT {new}) WHERE {condition})"
    )
