"""SQLite has no roles, so each connection of ours asks here what its statements may do.

SQLite asks when it prepares a statement; prepared ones are kept, so it costs nothing to speak of. Whatever is not
listed is refused: changing the schema, attaching files, temporary tables, pragmas that set something. It binds our
own connections, no other program's: it stops injected SQL and our mistakes, not somebody who has the file.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from sessions_app.rights import READ_ONLY, Rights, site_rights

WRITES = {sqlite3.SQLITE_INSERT: "INSERT", sqlite3.SQLITE_UPDATE: "UPDATE", sqlite3.SQLITE_DELETE: "DELETE"}
ALWAYS = {
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_TRANSACTION,
    sqlite3.SQLITE_SAVEPOINT,
}
READING_PRAGMAS = {
    *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"),
    *("foreign_key_list", "foreign_key_check", "integrity_check", "quick_check"),
}
"""Those whose argument says what to read; every other argument sets something."""


class _Lifted(threading.local):
    """The databases whose authorizer is off, in this thread: a connection belongs to one."""

    aliases: frozenset[str] = frozenset()


_lifted = _Lifted()


@contextmanager
def lifted(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Act as the owner of the database for a while: for commands that change its schema, and for tests."""
    before = _lifted.aliases
    _lifted.aliases = before | {connection.alias}
    authorize(connection)
    try:
        yield
    finally:
        _lifted.aliases = before
        authorize(connection)


def authorize(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Bind a connection to the site's rights; called for each new one. PostgreSQL has roles instead."""
    if connection.vendor != "sqlite" or connection.connection is None:
        return
    connection.connection.set_authorizer(None if connection.alias in _lifted.aliases else decide)


def decide(action: int, first: str | None, second: str | None, *_: Any) -> int:
    """SQLite's question: ``first`` is the table or pragma, ``second`` the column or the pragma's argument."""
    if action in ALWAYS:
        permitted = True
    elif action == sqlite3.SQLITE_PRAGMA:
        permitted = _is_reading(str(first), second)
    else:
        permitted = action in WRITES and _rights(str(first)).permit(WRITES[action], second or "")
    return sqlite3.SQLITE_OK if permitted else sqlite3.SQLITE_DENY


def _rights(table: str) -> Rights:
    if table == "sqlite_master":
        # A virtual table (the search index) declares its columns by an UPDATE when a connection first uses it.
        # Anybody else's UPDATE of the schema is refused by SQLite itself, as long as PRAGMA writable_schema is off.
        return Rights(insert=False, delete=False)
    return READ_ONLY if table.startswith("sqlite_") else site_rights(table)


def _is_reading(pragma: str, argument: str | None) -> bool:
    # An empty argument is one: it would switch foreign keys off. Django says ON whenever it said OFF before.
    return argument is None or pragma in READING_PRAGMAS or (pragma, argument) == ("foreign_keys", "ON")
