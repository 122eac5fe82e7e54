"""What the database can no longer read of itself: broken pages, invalid texts, missing tables.

Any query of a damaged database may fail in any way: SQLite follows a broken page wherever it leads, so a number may
come as a text and a row without its columns. So each question is asked by itself, and an error is an answer.
"""
# ruff: noqa: S608 - the names in these statements come from the models.

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, connections
from django.db.models import Field
from django.db.models.query import QuerySet

from audit_app.tables import SessionTable, session_tables
from mnesis_core.text import excerpt
from sessions_app.database.fast_sql import fetch
from sessions_app.guards.triggers import guarded_models

# A damaged SQLite may answer with bytes that its driver cannot decode: a ValueError.
DAMAGED = (DatabaseError, ValueError)
# Rows of a session's table, and findings of SQLite's own check.
MOST_NAMED = 50
ROWS_AT_ONCE = 200
LONGEST_REASON = 200


def reason_of(error: Exception) -> str:
    """Say why something cannot be read, without any text of the session."""
    words = str(error)
    if isinstance(error, UnicodeError):
        return "texts that are not UTF-8"
    if "decode to UTF-8" in words:  # the driver's message goes on with the text itself
        return "a text that is not UTF-8"
    if isinstance(error, DatabaseError):
        return excerpt(words.partition("\n")[0], LONGEST_REASON) or type(error).__name__
    return f"values that make no sense ({type(error).__name__})"


def is_away(using: str) -> bool:
    """Say whether the database is unreachable, which is not damage."""
    return connections[using].vendor == "postgresql" and not connections[using].is_usable()


@contextmanager
def legible(using: str) -> Iterator[None]:
    """Read texts that are not UTF-8 with their invalid bytes written as hexadecimal digits, for the length of the block."""
    raw: Any = connections[using].connection
    if not isinstance(raw, sqlite3.Connection):
        yield
        return
    usual = raw.text_factory
    raw.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
    try:
        yield
    finally:
        raw.text_factory = usual


def damage_of_database(*, using: str) -> Iterator[str]:
    """Yield tables and columns that are gone, and what SQLite finds when it checks its file."""
    for model in guarded_models():
        table = model._meta.db_table
        try:
            with connections[using].cursor() as cursor:
                cursor.execute(f"SELECT * FROM {table} LIMIT 0")
                found = {column[0] for column in cursor.description}
        except DAMAGED as error:
            yield f"{table} cannot be read: {reason_of(error)}"
        else:
            missing = sorted({str(field.column) for field in model._meta.concrete_fields} - found)
            yield from (f"{table} has no column {column}" for column in missing)
    if connections[using].vendor != "sqlite":
        return
    try:
        report = [str(words) for (words,) in fetch(f"PRAGMA integrity_check({MOST_NAMED})", using=using)]
    except DAMAGED as error:
        yield f"SQLite cannot look through its file: {reason_of(error)}"
        return
    # One value may hold several findings, a line each.
    for line in (line for words in report for line in words.splitlines()):
        if line != "ok" and not line.startswith("***"):
            yield f"SQLite says of its file: {excerpt(line, LONGEST_REASON)}"


def sessions_there(*, using: str) -> tuple[list[str], str]:
    """Return the ids of all sessions, and why the list may be incomplete: then it comes from the tables that name sessions."""
    try:
        return _ids("SELECT id FROM sessions", using), ""
    except DAMAGED as error:
        found: set[str] = set()
        for table in ("events", "turns", "messages", "directory_entries"):
            try:
                found.update(_ids(f"SELECT DISTINCT session_id FROM {table}", using))
            except DAMAGED:
                continue  # damage_of_database names it
        return sorted(found), f"the list of sessions cannot be read: {reason_of(error)}"


def _ids(sql: str, using: str) -> list[str]:
    return sorted({id for (id,) in fetch(sql, using=using) if type(id) is str})


def unreadable_of_session(session_id: str, *, using: str) -> Iterator[str]:
    """Yield the tables, rows and columns of a session that cannot be read: at most ``MOST_NAMED`` rows of each table."""
    for table in session_tables().values():
        rows = table.rows(session_id).using(using)
        if error := _error_of(rows, table.table.fields):
            yield from _unreadable_rows(table, rows) or [f"{table.table.name}: {reason_of(error)}"]


def _unreadable_rows(table: SessionTable, rows: QuerySet[Any, Any]) -> list[str]:
    try:
        keys = list(rows.order_by().values_list("pk", flat=True))
    except Exception:
        return []
    found: list[str] = []
    for start in range(0, len(keys), ROWS_AT_ONCE):
        some = keys[start : start + ROWS_AT_ONCE]
        if not _error_of(rows.filter(pk__in=some), table.table.fields):
            continue
        for key in some:
            row = rows.filter(pk=key)
            if error := _error_of(row, table.table.fields):
                columns = " ".join(str(field.column) for field in table.table.fields if _error_of(row, [field]))
                found.append(f"{table.table.name} {key} {columns}".rstrip() + f": {reason_of(error)}")
        if len(found) >= MOST_NAMED:
            return [*found[:MOST_NAMED], f"{table.table.name}: there may be more"]
    return found


def _error_of(rows: QuerySet[Any, Any], fields: Sequence[Field[Any, Any]]) -> Exception | None:
    try:
        for _ in rows.order_by().values_list(*(field.attname for field in fields)).iterator(chunk_size=ROWS_AT_ONCE):
            pass
    except Exception as error:
        return error
    return None
