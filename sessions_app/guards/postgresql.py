"""Guards on PostgreSQL (``triggers.Dialect``)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import JSONField

from sessions_app.guards.rules import (
    Column,
    Guard,
    Model,
    TriggerSpec,
    literal,
    quoted,
    removal_refusal,
    update_refusals,
)

BODY = "BEGIN RAISE EXCEPTION USING ERRCODE = 'restrict_violation', MESSAGE = TG_ARGV[0]; END"
_PRINTED = re.compile(r'"|::\w+')
PREPARATION = f"CREATE OR REPLACE FUNCTION guard_refuse() RETURNS trigger LANGUAGE plpgsql AS $${BODY}$$"

# The condition is in WHEN, so that a permitted update never enters plpgsql; one function for all of them only raises.
FOREIGN = """
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


def refusals(connection: BaseDatabaseWrapper, model: Model) -> Iterator[TriggerSpec]:
    yield from update_refusals(model, _changed)
    yield from removal_refusal(model, "DELETE")
    yield from removal_refusal(model, "TRUNCATE")


def guard(table: str, refusal: TriggerSpec) -> Guard:
    name = f"guard_{table}_{refusal.rule}"
    scope = "STATEMENT" if refusal.event == "TRUNCATE" else "ROW"
    when = f" WHEN ({refusal.condition})" if refusal.condition else ""
    trigger = f'CREATE TRIGGER "{name}" BEFORE {refusal.event} ON "{table}" FOR EACH {scope}{when}'
    return _enable(name, table, f"{trigger} EXECUTE FUNCTION guard_refuse({literal(refusal.words)})")


def installed(cursor: CursorWrapper) -> list[Guard]:
    """Return the installed guards; one that is switched off or calls another function lacks a statement."""
    cursor.execute(
        "SELECT tgname, relname, pg_get_triggerdef(pg_trigger.oid, true), tgenabled = 'A' AND prosrc = %s"
        " FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid"
        " WHERE starts_with(tgname, 'guard_') AND NOT tgisinternal AND pg_table_is_visible(tgrelid)",
        [BODY],
    )
    return [
        _enable(name, table, trigger) if effective else Guard(name=name, table=table, sql=trigger)
        for name, table, trigger, effective in cursor.fetchall()
    ]


def same(found: Guard, declared: Guard) -> bool:
    # PostgreSQL changes case, quotes and casts when it stores a definition.
    return _PRINTED.sub("", found.sql.lower()) == _PRINTED.sub("", declared.sql.lower())


def drop(guard: Guard) -> str:
    return f'DROP TRIGGER "{guard.name}" ON "{guard.table}"'


def foreign(cursor: CursorWrapper, tables: Collection[str]) -> list[str]:
    cursor.execute(FOREIGN, [[*tables]])
    return [sentence for [sentence] in cursor.fetchall()]


def _enable(name: str, table: str, trigger: str) -> Guard:
    # ENABLE ALWAYS, because session_replication_role = replica would switch ordinary triggers off.
    return Guard(name=name, table=table, sql=f'{trigger}; ALTER TABLE "{table}" ENABLE ALWAYS TRIGGER "{name}"')


def _changed(field: Column) -> str:
    # Compared as text, because jsonb takes 1 and 1.0 for equal although they were written differently.
    cast = "::text" if isinstance(field, JSONField) else ""
    return f"OLD.{quoted(field)}{cast} IS DISTINCT FROM NEW.{quoted(field)}{cast}"
