"""SQLite databases: tables with columns and row counts, indexes, views. Read only; nothing of its own is run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_TABLES = 60
# Calls of the progress handler, each after ``STEP`` instructions, for all statements together.
COUNT_STEPS = 20_000
STEP = 10_000
_SCHEMA = "SELECT type, name, tbl_name, substr(sql, 1, 200) FROM sqlite_schema LIMIT 5000"


class _Budget:
    def __init__(self) -> None:
        self.left = COUNT_STEPS

    def take(self) -> bool:
        self.left -= 1
        return self.left < 0


def explore(source: Source) -> Findings:
    try:
        with _opened(source) as connection:
            rows = connection.execute(_SCHEMA).fetchall()
            tables = [
                (name, sql or "") for type_, name, _, sql in rows if type_ == "table" and not name.startswith("sqlite_")
            ]
            lines = [f"{counted(len(tables), 'table')}: {listed(name for name, _ in tables)}"]
            uncounted = 0
            for name, sql in tables[:MOST_TABLES]:
                count = None if sql.upper().startswith("CREATE VIRTUAL") else _rows(connection, name)
                uncounted += count is None
                rows_of_it = "rows not counted" if count is None else counted(count, "row")
                lines.append(f"{shown(name)} ({rows_of_it}): {_columns(connection, name, sql)}")
            lines += [
                f"{counted(len(names), one)}: {listed(names)}"
                for type_, one in (("view", "view"), ("trigger", "trigger"))
                if (names := [name for kind, name, *_ in rows if kind == type_])
            ]
            indexes = [f"{name} on {table}" for kind, name, table, sql in rows if kind == "index" and sql]
            if indexes:
                lines.append(f"{counted(len(indexes), 'index', 'indexes')}: {listed(indexes)}")
            left_out = max(0, len(tables) - MOST_TABLES)
            covered = "all of it" if not left_out else f"{MOST_TABLES} of {len(tables):,} tables"
            return Findings(
                lines=lines,
                covered=covered + (f"; rows of {counted(uncounted, 'table')} not counted" if uncounted else ""),
            )
    except sqlite3.Error as error:
        raise Unreadable(f"not a readable SQLite database: {shown(str(error))}") from None


@contextmanager
def _opened(source: Source) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"{source.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 16_777_216)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_progress_handler(_Budget().take, STEP)
        yield connection
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, table: str) -> int | None:
    # Counting may take too long, or the table may be broken.
    try:
        return int(connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0])  # noqa: S608
    except sqlite3.Error:
        return None


def _columns(connection: sqlite3.Connection, table: str, sql: str) -> str:
    # A virtual table is not asked, since its module would run.
    if sql.upper().startswith("CREATE VIRTUAL"):
        return shown(sql, characters=120)
    try:
        found = connection.execute(f"PRAGMA table_xinfo({_quoted(table)})").fetchmany(300)
    except sqlite3.Error as error:
        return shown(str(error))
    return listed(f"{name} {type_}".strip() + (" key" if key else "") for _, name, type_, _, _, key, _ in found)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
