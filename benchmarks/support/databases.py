"""New databases of every available kind, and plain connections to them as durable as Django's own."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from django.db import connection

from sessions_app.database.threads import connection_arguments
from tests.everything import find_postgres
from tests.support.sites.databases import site_database


def kinds() -> list[str]:
    """Return the kinds of database available here."""
    return ["sqlite", "postgresql"] if find_postgres() else ["sqlite"]


@contextmanager
def fresh_environment(kind: str) -> Iterator[dict[str, str]]:
    """Yield the environment for a process with a new, empty database, which is dropped at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="mnesis-benchmark-") as directory:
        os.environ["DATABASE_URL"] = find_postgres() if kind == "postgresql" else ""
        with site_database("mnesis_benchmark") as database:
            shared = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
            own = {"MNESIS_DATA_DIR": directory, "REDIS_URL": "", "MNESIS_PRIVATE_ADDRESSES": "127.0.0.1"}
            yield shared | database | own


class Plain:
    """SQL through the database's own driver, with ``?`` as placeholder on both. The caller manages transactions."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.is_sqlite = isinstance(raw, sqlite3.Connection)
        self._begin = "BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN"
        self.lock = "" if self.is_sqlite else " FOR UPDATE"

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        found: list[tuple[Any, ...]] = self._raw.execute(self._own(sql), values).fetchall()
        return found

    def names(self, table: str) -> list[str]:
        """Return the columns of a table."""
        return [column[0] for column in self._raw.execute(f"SELECT * FROM {table} LIMIT 0").description]

    def execute(self, sql: str, *values: Any) -> None:
        """Execute a statement that returns no rows."""
        self._raw.execute(self._own(sql), values)

    def insert(self, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        """Insert rows into a table, in the fastest way the driver has."""
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        self._raw.cursor().executemany(self._own(sql), rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Wrap a block in one durable transaction."""
        self._raw.execute(self._begin)
        yield
        self._raw.execute("COMMIT")

    def _own(self, sql: str) -> str:
        return sql if self.is_sqlite else sql.replace("?", "%s")


@contextmanager
def plain_connection() -> Iterator[Plain]:
    """Open a second connection to Django's database, as durable as Django's own."""
    settings = connection.settings_dict
    if connection.vendor == "postgresql":
        with psycopg.connect(**connection_arguments(), autocommit=True) as raw:
            yield Plain(raw)
        return
    with closing(sqlite3.connect(settings["NAME"], isolation_level=None)) as raw:
        raw.executescript(f"PRAGMA foreign_keys=ON;{settings['OPTIONS']['init_command']}")
        yield Plain(raw)
