"""The full-text index of each database behind one interface: words go in, entries with all wanted words come out.

The words are made in Python (``mnesis_core.search``) and neither database changes them: FTS5 divides at spaces only, and
PostgreSQL gets a tsvector, not a text. Every word begins with its owner's number, so that a common word or a prefix
costs what that person has written, not what all have; one more word names the session. Positions are left out, which
keeps the index small: what needs them is checked on the text itself, the same on both databases.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, Protocol

from django.apps import AppConfig
from django.core.checks import Error, Tags, register
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from mnesis_core.search import IndexWord
from mnesis_core.values import dataclass
from sessions_app.database.fast_sql import run

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

COLUMNS = "owner_id, session_id, kind, source_id, field, first_seq, last_seq, start"
ROWS_A_STATEMENT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """A row of ``search_entries`` and the words of its text."""

    owner_id: int
    session_id: str
    kind: str
    source_id: str
    field: str
    first_seq: int
    last_seq: int
    start: int
    words: str

    @property
    def columns(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in COLUMNS.split(", "))


def stored_words(words: Iterable[str], *, owner_id: int, session_id: str) -> str:
    """Return words as the index holds them, divided by spaces."""
    return f" {owner_id}@".join([_session_word(session_id), *words])


@lru_cache(maxsize=256)
def _session_word(session_id: str) -> str:
    # Only an accelerator: entries are also compared with the session itself.
    return "@" + "".join(char for char in session_id.lower() if char.isascii() and char.isalnum())


class Engine(Protocol):
    """One database's full-text index."""

    name: str

    @property
    def create(self) -> Sequence[str]: ...

    @property
    def drop(self) -> Sequence[str]: ...

    @property
    def clear(self) -> Sequence[str]: ...

    def insert(self, cursor: CursorWrapper, entries: Sequence[NewEntry]) -> None: ...

    def select(self, columns: str, condition: str, *, limit: int) -> str:
        """Return a SELECT of entries ``e``, newest first; its first two values are the query and an exclusive upper id."""

    def fetch(self, cursor: CursorWrapper, select: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of such a SELECT, found through the index."""

    def query(self, words: Sequence[IndexWord], *, owner_id: int, session_id: str | None) -> str:
        """Return a query for entries with all words, in the index's own syntax, free of characters from a user."""

    def count_of(self, session_id: str) -> tuple[str, Sequence[Any]]:
        """Return a SELECT, with its values, that counts a session's entries whose words are in the index."""

    def is_there(self, cursor: CursorWrapper) -> bool: ...


class Sqlite:
    """FTS5 without contents; the rowid is the entry's id."""

    name = "search_words"
    create = (
        "CREATE VIRTUAL TABLE search_words USING fts5"
        "(words, content='', columnsize=0, detail=none, tokenize=\"ascii tokenchars '@'\")",
    )
    drop = ("DROP TABLE search_words",)
    clear = ("INSERT INTO search_words (search_words) VALUES ('delete-all')", "DELETE FROM search_entries")

    def insert(self, cursor: CursorWrapper, entries: Sequence[NewEntry]) -> None:
        places = ", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s)"] * len(entries))
        values = [value for entry in entries for value in entry.columns]
        done = run(cursor, f"INSERT INTO search_entries ({COLUMNS}) VALUES {places}", values)
        # This transaction locks the whole database, so the ids are consecutive.
        first = done.lastrowid - len(entries) + 1
        rows = [value for id, entry in enumerate(entries, first) for value in (id, entry.words)]
        run(cursor, "INSERT INTO search_words (rowid, words) VALUES " + ", ".join(["(%s, %s)"] * len(entries)), rows)

    def select(self, columns: str, condition: str, *, limit: int) -> str:
        # CROSS makes SQLite start with the index, which answers newest first and can stop early.
        return (
            f"SELECT {columns} FROM search_words w CROSS JOIN search_entries e ON e.id = w.rowid"
            f" WHERE w.search_words MATCH %s AND w.rowid < %s{condition} ORDER BY w.rowid DESC LIMIT {limit}"
        )

    def fetch(self, cursor: CursorWrapper, select: str, values: Sequence[Any]) -> list[Any]:
        cursor.execute(select, values)
        return list(cursor.fetchall())

    def query(self, words: Sequence[IndexWord], *, owner_id: int, session_id: str | None) -> str:
        terms = [f'"{owner_id}@{word.text}"{" *" if word.prefix else ""}' for word in words]
        return " AND ".join(terms if session_id is None else [f'"{_session_word(session_id)}"', *terms])

    def count_of(self, session_id: str) -> tuple[str, Sequence[Any]]:
        select = (
            "SELECT COUNT(*) FROM search_words w CROSS JOIN search_entries e ON e.id = w.rowid"
            " WHERE w.search_words MATCH %s AND e.session_id = %s"
        )
        return select, [f'"{_session_word(session_id)}"', session_id]

    def is_there(self, cursor: CursorWrapper) -> bool:
        cursor.execute("SELECT 1 FROM sqlite_master WHERE name = %s", [self.name])
        return cursor.fetchone() is not None


class Postgresql:
    """A tsvector without positions, with a GIN index."""

    name = "search_words"
    create = (
        "ALTER TABLE search_entries ADD COLUMN words tsvector NOT NULL",
        # New words wait in a list that every search reads: at most 1 MB of it instead of 4.
        "CREATE INDEX search_words ON search_entries USING gin (words) WITH (gin_pending_list_limit = 1024)",
    )
    drop = ("ALTER TABLE search_entries DROP COLUMN words",)
    clear = ("DELETE FROM search_entries",)

    def insert(self, cursor: CursorWrapper, entries: Sequence[NewEntry]) -> None:
        places = ", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s, %s::tsvector)"] * len(entries))
        values = [value for entry in entries for value in (*entry.columns, entry.words)]
        run(cursor, f"INSERT INTO search_entries ({COLUMNS}, words) VALUES {places}", values)

    def select(self, columns: str, condition: str, *, limit: int) -> str:
        # MATERIALIZED, because the planner would otherwise walk all owners' entries, newest first, for the limit's sake.
        return (
            f"WITH e AS MATERIALIZED (SELECT id, {COLUMNS} FROM search_entries WHERE words @@ %s::tsquery)"
            f" SELECT {columns} FROM e WHERE e.id < %s{condition} ORDER BY e.id DESC LIMIT {limit}"
        )

    def fetch(self, cursor: CursorWrapper, select: str, values: Sequence[Any]) -> list[Any]:
        # The rows are narrow and their words are stored elsewhere, so the planner underrates a sequential scan.
        with transaction.atomic(using=cursor.db.alias):
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(select, values)
            found = list(cursor.fetchall())
            cursor.execute("SET LOCAL enable_seqscan TO DEFAULT")
        return found

    def query(self, words: Sequence[IndexWord], *, owner_id: int, session_id: str | None) -> str:
        terms = [f"'{owner_id}@{word.text}'{':*' if word.prefix else ''}" for word in words]
        return " & ".join(terms if session_id is None else [f"'{_session_word(session_id)}'", *terms])

    def count_of(self, session_id: str) -> tuple[str, Sequence[Any]]:
        select = "SELECT COUNT(*) FROM search_entries WHERE session_id = %s AND words @@ %s::tsquery"
        return select, [session_id, f"'{_session_word(session_id)}'"]

    def is_there(self, cursor: CursorWrapper) -> bool:
        cursor.execute("SELECT to_regclass(%s)", [self.name])
        [found] = cursor.fetchone()
        return found is not None


ENGINES: dict[str, Engine] = {"sqlite": Sqlite(), "postgresql": Postgresql()}


def engine(database: BaseDatabaseWrapper | None = None) -> Engine:
    return ENGINES[(database or connection).vendor]


# System checks of the search.
#
# * ``mnesis.E008`` Python's SQLite was built without FTS5
# * ``mnesis.E009`` the database has no search index; asks the database, so it runs with ``--database default`` only


def register_checks() -> None:
    register(check_fts5)
    register(check_index, Tags.database)


def check_fts5(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[Error]:
    """Run check E008."""
    return fts5_errors() if any(connections[alias].vendor == "sqlite" for alias in connections) else []


def check_index(
    app_configs: Sequence[AppConfig] | None, databases: Iterable[str] | None = None, **_: Any
) -> list[Error]:
    """Run check E009."""
    asked = [connections[alias] for alias in databases or () if connections[alias].vendor in ENGINES]
    hint = "Run manage.py migrate, then manage.py rebuild_search."
    return [Error(text, hint=hint, id="mnesis.E009") for connection in asked for text in index_differences(connection)]


def index_differences(connection: BaseDatabaseWrapper) -> list[str]:
    index = engine(connection)
    with connection.cursor() as cursor:
        return [] if index.is_there(cursor) else [f"The search index {index.name} is not there."]


def fts5_errors() -> list[Error]:
    if "fts5" in modules():
        return []
    return [
        Error(
            "This Python's SQLite has no full-text search (FTS5), which the search index is made of.",
            hint="Use a Python whose sqlite3 module was built with FTS5, or PostgreSQL.",
            id="mnesis.E008",
        )
    ]


def modules() -> set[str]:
    with closing(sqlite3.connect(":memory:")) as memory:
        return {name for (name,) in memory.execute("SELECT name FROM pragma_module_list")}
