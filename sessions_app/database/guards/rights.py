"""From ``Rules`` to rights: what the site (web, workers, commands) may do to the rows of each table.

On PostgreSQL the rights become a role's grants; on SQLite an authorizer decides whenever a statement is prepared. Only
the owner of the database may do more: ``migrate`` changes the schema.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sessions_app.database.guards.triggers import guarded_models

# ruff: noqa: S608 - table names come from the catalogue, and the names of roles were checked.

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    select: bool = True
    insert: bool = True
    update: frozenset[str] | None = None  # the columns; None for all
    delete: bool = True

    def permit(self, privilege: str, column: str = "") -> bool:
        """``privilege`` is SQL's word for it; ``column`` is used for UPDATE only."""
        if privilege == "UPDATE":
            return self.update is None or column in self.update
        return {"SELECT": self.select, "INSERT": self.insert, "DELETE": self.delete}.get(privilege, False)


EVERYTHING = Rights()
READ_ONLY = Rights(insert=False, update=frozenset(), delete=False)
NOTHING = Rights(select=False, insert=False, update=frozenset(), delete=False)


def site_rights(table: str) -> Rights:
    return _site_rights().get(table, EVERYTHING)


def auditor_rights(table: str) -> Rights:
    return READ_ONLY if table in _site_rights() else NOTHING


@cache
def _site_rights() -> dict[str, Rights]:
    rights = {"django_migrations": READ_ONLY}  # only 'migrate' records which migrations were applied
    for model in guarded_models():
        columns = (field.column for field in model._meta.concrete_fields if field.name in model.rules.changeable)
        rights[model._meta.db_table] = Rights(update=frozenset(map(str, columns)), delete=model.rules.deletable)
    return rights


# PostgreSQL roles that may do no more than the rules permit: the site's, and an auditor's that only reads. The owner of
# the database makes them (``manage.py roles``). Unlike the owner, the site's role can neither drop a trigger nor truncate
# a table nor hide one behind a temporary table of the same name.
ROLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
IN_SCHEMA = "relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace"
HELD_BY_COLUMN = f"""
    SELECT relname, privilege, attname::text, has_column_privilege(%(role)s, pg_class.oid, attnum, privilege)
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped,
    unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS privilege WHERE {IN_SCHEMA}
    ORDER BY relname, privilege, attnum"""
HELD_BY_TABLE = f"""
    SELECT relname, privilege, '', has_table_privilege(%(role)s, pg_class.oid, privilege)
    FROM pg_class, unnest(ARRAY['DELETE', 'TRUNCATE', 'TRIGGER']) AS privilege WHERE {IN_SCHEMA}
    ORDER BY relname, privilege"""
TABLES = f"""
    SELECT relname, array_agg(attname::text) FROM pg_class
    JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
    WHERE {IN_SCHEMA} GROUP BY relname ORDER BY relname"""
BEYOND_TABLES = """
    SELECT 'create temporary tables, which hide those of the record'
    WHERE has_database_privilege(%(role)s, current_database(), 'TEMPORARY')
    UNION ALL SELECT 'create schemas' WHERE has_database_privilege(%(role)s, current_database(), 'CREATE')
    UNION ALL SELECT 'create tables' WHERE has_schema_privilege(%(role)s, current_schema(), 'CREATE')
    UNION ALL SELECT 'set the counter ' || relname FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace
    AND CASE relkind WHEN 'S' THEN has_sequence_privilege(%(role)s, pg_class.oid, 'UPDATE') END"""
# Whether a role, or one that it may become, owns a table or may do everything: grants do not bind it then.
UNBOUND = f"""
    SELECT EXISTS (
        SELECT FROM pg_roles WHERE pg_has_role(%(role)s, oid, 'MEMBER') AND (
            rolsuper OR rolcreaterole OR rolname IN ('pg_execute_server_program', 'pg_write_server_files')
            OR oid IN (SELECT relowner FROM pg_class WHERE {IN_SCHEMA})
        )
    )"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    name: str
    rights: Callable[[str], Rights]  # by the table's name
    reads_only: bool = False


def site_role(name: str) -> Role:
    return Role(name=name, rights=site_rights)


def auditor_role(name: str) -> Role:
    return Role(name=name, rights=auditor_rights, reads_only=True)


def configured_roles() -> list[Role]:
    roles = [site_role(settings.MNESIS["APP_ROLE"]), auditor_role(settings.MNESIS["AUDITOR_ROLE"])]
    return [role for role in roles if role.name]


def role_statements(connection: BaseDatabaseWrapper, role: Role) -> list[str]:
    """Return the SQL that creates a role, or gives an existing one exactly its rights; passwords are left to the owner."""
    [[schema, database]] = _rows(connection, "SELECT current_schema(), current_database()")
    name, grants = f'"{role.name}"', []
    # A column that does not exist yet, because migrations are half way, gets its grant once it does.
    for table, columns in _rows(connection, TABLES):
        rights = role.rights(table)
        granted = [privilege for privilege in ("SELECT", "INSERT", "DELETE") if rights.permit(privilege)]
        if rights.update is None:
            granted.append("UPDATE")
        elif changeable := rights.update.intersection(columns):
            granted.append("UPDATE (" + ", ".join(f'"{column}"' for column in sorted(changeable)) + ")")
        if granted:
            grants.append(f'GRANT {", ".join(granted)} ON "{table}" TO {name}')
    return [
        *([] if _exists(connection, role.name) else [f"CREATE ROLE {name} LOGIN"]),
        *([f"ALTER ROLE {name} SET default_transaction_read_only = on"] if role.reads_only else []),
        # Otherwise a temporary table could hide the real one.
        f'REVOKE TEMPORARY, CREATE ON DATABASE "{database}" FROM PUBLIC, {name}',
        f'REVOKE CREATE ON SCHEMA "{schema}" FROM PUBLIC, {name}',
        f'REVOKE ALL ON ALL TABLES IN SCHEMA "{schema}" FROM PUBLIC, {name}',
        f'REVOKE ALL ON ALL SEQUENCES IN SCHEMA "{schema}" FROM PUBLIC, {name}',
        f'GRANT USAGE ON SCHEMA "{schema}" TO {name}',
        *([] if role.reads_only else [f'GRANT USAGE ON ALL SEQUENCES IN SCHEMA "{schema}" TO {name}']),
        *grants,
    ]


def apply_role(connection: BaseDatabaseWrapper, role: Role) -> None:
    statements = role_statements(connection, role)
    # In one transaction, so that the role's rights are never seen to be gone.
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def grant_differences(connection: BaseDatabaseWrapper) -> list[str]:
    """Return a sentence for each right that the site's role has or lacks against what is declared.

    That role is the one that the settings name, otherwise the connected one unless it owns the tables: a site that is
    served by the owner has triggers and no grants. SQLite has no roles.
    """
    if connection.vendor != "postgresql":
        return []
    if roles := configured_roles():
        return [sentence for role in roles for sentence in role_differences(connection, role)]
    [[name, reads_only]] = _rows(connection, "SELECT current_user, current_setting('transaction_read_only') = 'on'")
    if reads_only or _is_unbound(connection, name):
        return []
    return role_differences(connection, site_role(name))


def connection_differences(connection: BaseDatabaseWrapper) -> list[str]:
    if connection.vendor != "postgresql" or not (name := settings.MNESIS["APP_ROLE"]):
        return []
    [[connected]] = _rows(connection, "SELECT current_user")
    if connected == name:
        return []
    return [f"The site is connected to its database as {connected}, not as {name}: correct DATABASE_URL."]


def role_differences(connection: BaseDatabaseWrapper, role: Role) -> list[str]:
    if not _exists(connection, role.name):
        return [f"There is no role {role.name}: 'manage.py roles' makes it."]
    if _is_unbound(connection, role.name):
        return [f"No grant binds {role.name}: it owns tables or administers the server, or may become who does."]
    sentences = []
    wrong: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for query in (HELD_BY_COLUMN, HELD_BY_TABLE):
        for table, privilege, column, held in _rows(connection, query, role=role.name):
            if held != role.rights(table).permit(privilege, column):
                wrong[table, privilege, held].append(column)
    for (table, privilege, held), columns in wrong.items():
        listed = f" ({', '.join(columns)})" if columns[0] else ""
        verb, why = ("may", "which is not declared") if held else ("may not", "which it needs")
        sentences.append(f"{role.name} {verb} {privilege} {table}{listed}, {why}.")
    beyond = _rows(connection, BEYOND_TABLES, role=role.name)
    return [*sentences, *(f"{role.name} may {right}." for [right] in beyond)]


def restore_grants(*, using: str, **_: object) -> None:
    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    for role in configured_roles():
        if not _exists(connection, role.name):
            logger.warning("There is no role %s: 'manage.py roles' makes it.", role.name)
        elif role_differences(connection, role):
            apply_role(connection, role)


def _exists(connection: BaseDatabaseWrapper, name: str) -> bool:
    return bool(_rows(connection, "SELECT FROM pg_roles WHERE rolname = %(role)s", role=name))


def _is_unbound(connection: BaseDatabaseWrapper, name: str) -> bool:
    [[unbound]] = _rows(connection, UNBOUND, role=name)
    return bool(unbound)


def _rows(connection: BaseDatabaseWrapper, query: str, **values: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query, values or None)
        return list(cursor.fetchall())


# SQLite has no roles; each connection of the site asks an authorizer instead, whenever it prepares a statement (prepared
# ones are kept, so the cost is negligible). Everything that is not listed is refused: changing the schema, attaching
# files, temporary tables, pragmas that set something. It stops injected SQL and our own mistakes, not other programs.
WRITES = {sqlite3.SQLITE_INSERT: "INSERT", sqlite3.SQLITE_UPDATE: "UPDATE", sqlite3.SQLITE_DELETE: "DELETE"}
ALWAYS = {
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_TRANSACTION,
    sqlite3.SQLITE_SAVEPOINT,
}
# Pragmas whose argument says what to read; every other argument sets something.
READING_PRAGMAS = {
    *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"),
    *("foreign_key_list", "foreign_key_check", "integrity_check", "quick_check"),
}


class _Lifted(threading.local):  # of this thread, to which a connection belongs
    aliases: frozenset[str] = frozenset()


_lifted = _Lifted()


@contextmanager
def lifted(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Act as the owner of the database in the block: for commands that change its schema, and for tests."""
    before = _lifted.aliases
    _lifted.aliases = before | {connection.alias}
    authorize(connection)
    try:
        yield
    finally:
        _lifted.aliases = before
        authorize(connection)


def authorize(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Bind a new SQLite connection to the site's rights; PostgreSQL has roles instead."""
    if connection.vendor != "sqlite" or connection.connection is None:
        return
    connection.connection.set_authorizer(None if connection.alias in _lifted.aliases else decide)


def decide(action: int, first: str | None, second: str | None, *_: Any) -> int:
    """Answer SQLite: ``first`` is the table or pragma, ``second`` the column or the pragma's argument."""
    if action in ALWAYS:
        permitted = True
    elif action == sqlite3.SQLITE_PRAGMA:
        # An empty argument is one: it would switch foreign keys off. Django says ON if it said OFF before.
        permitted = second is None or first in READING_PRAGMAS or (first, second) == ("foreign_keys", "ON")
    elif first == "sqlite_master":
        # A virtual table (the search index) declares its columns by an UPDATE when a connection first uses it.
        # SQLite itself refuses every other UPDATE of the schema, as long as PRAGMA writable_schema is off.
        permitted = action == sqlite3.SQLITE_UPDATE
    else:
        rights = READ_ONLY if str(first).startswith("sqlite_") else site_rights(str(first))
        permitted = action in WRITES and rights.permit(WRITES[action], second or "")
    return sqlite3.SQLITE_OK if permitted else sqlite3.SQLITE_DENY
