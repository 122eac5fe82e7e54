"""What is said of SQLite databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mnesis_core.files.kinds import sql
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource

SCHEMA = """
CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO people (name) VALUES ('a'), ('b');
CREATE INDEX by_name ON people (name);
CREATE VIEW endless AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT * FROM r;
"""


def database(folder: Path, script: str) -> bytes:
    path = folder / "made.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    data = path.read_bytes()
    path.unlink()
    return data


def test_tables_columns_rows_indexes_and_views_are_told(source: MakeSource, tmp_path: Path) -> None:
    assert sql.explore_sqlite(source("a.db", database(tmp_path, SCHEMA))).lines == [
        "1 table: people",
        "people (2 rows): id INTEGER key, name TEXT",
        "1 view: endless",
        "1 index: by_name on people",
    ]


def test_counting_ends_when_it_takes_too_long(
    source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "COUNT_STEPS", 1)
    monkeypatch.setattr(sql, "STEP", 10)
    rows = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 5000) INSERT INTO t SELECT x, hex(x) FROM r;"
    data = database(tmp_path, f"CREATE TABLE t (a, b); {rows}")
    with pytest.raises(Unreadable, match="interrupted"):
        sql.explore_sqlite(source("a.db", data))


def test_a_virtual_table_is_named_and_not_asked(source: MakeSource, tmp_path: Path) -> None:
    found = sql.explore_sqlite(source("a.db", database(tmp_path, "CREATE VIRTUAL TABLE words USING fts5(text);")))
    assert "words (rows not counted): CREATE VIRTUAL TABLE words USING fts5(text)" in found.lines


def test_a_hostile_name_stays_in_its_line(source: MakeSource, tmp_path: Path) -> None:
    found = sql.explore_sqlite(source("a.db", database(tmp_path, 'CREATE TABLE "a\n\u202e""b" (x);')))
    assert found.lines[1] == 'a \ufffd"b (0 rows): x'


def test_the_file_is_not_changed(source: MakeSource, tmp_path: Path) -> None:
    file = source("a.db", database(tmp_path, "PRAGMA journal_mode = wal;" + SCHEMA))
    # What another left beside it would be taken in, and removed.
    beside = file.path.with_name(f"{file.path.name}-wal")
    beside.write_bytes(b"left by another" * 100)
    before = file.path.read_bytes()
    sql.explore_sqlite(file)
    assert (file.path.read_bytes(), beside.read_bytes()) == (before, b"left by another" * 100)
    assert {path.name for path in tmp_path.iterdir()} == {file.path.name, beside.name}


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\x00" + b"\xff" * 5_000, b"hello"])
def test_what_is_no_database_is_unreadable_or_empty(source: MakeSource, data: bytes) -> None:
    if not data:
        assert sql.explore_sqlite(source("a.db", data)).lines == ["0 tables: none"]
        return
    with pytest.raises(Unreadable, match="not a readable SQLite database"):
        sql.explore_sqlite(source("a.db", data))
