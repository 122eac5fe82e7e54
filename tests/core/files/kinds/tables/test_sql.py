"""What is said of SQL."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import sql
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def test_tables_columns_and_inserted_rows_are_told(source: MakeSource) -> None:
    data = b"""-- a dump; of (things)
CREATE TABLE people (id integer NOT NULL, name varchar(20) DEFAULT 'a,b', price numeric(10,2), PRIMARY KEY (id));
INSERT INTO people VALUES (1,'it''s; (x)',2), (2,'b',3);
INSERT INTO people (id, name) VALUES (3,'c');
/* INSERT INTO people VALUES (9); */
CREATE INDEX i ON people (name);
"""
    assert sql.explore(source("a.sql", data)).lines == [
        "4 statements, 1 table, 3 inserted rows",
        "Other statements: CREATE INDEX ×1",
        "people (3 rows): id integer, name varchar(20), price numeric(10,2)",
    ]


def test_rows_of_a_copy_are_counted(source: MakeSource) -> None:
    data = b"COPY public.u (id, t) FROM stdin;\n1\tit's\n2\t(;\n\\.\nSET x = 1;\n"
    assert sql.explore(source("a.sql", data)).lines == [
        "2 statements, 1 table, 2 inserted rows",
        "Other statements: SET ×1",
        "public.u (2 rows)",
    ]


@pytest.mark.parametrize(
    ("dump", "rows"),
    [
        (rb"-- MySQL dump" + b"\n" + rb"INSERT INTO t VALUES ('it\'s; ('),(2);", 2),
        (rb"INSERT INTO t VALUES ('C:\'),(2),(3);", 3),
    ],
)
def test_a_backslash_means_what_it_means_in_that_database(source: MakeSource, dump: bytes, rows: int) -> None:
    assert sql.explore(source("a.sql", dump)).lines[0] == f"1 statement, 1 table, {rows} inserted rows"


def test_semicolons_in_a_function_end_no_statement(source: MakeSource) -> None:
    data = b"CREATE FUNCTION f() RETURNS int AS $body$\nbegin; return '; end;\n$body$ LANGUAGE plpgsql;\nSELECT 1;\n"
    assert sql.explore(source("a.sql", data)).lines[:2] == [
        "2 statements, 0 tables, 0 inserted rows",
        "Other statements: CREATE FUNCTION ×1, SELECT ×1",
    ]


@pytest.mark.parametrize("data", [b"", b"-- only this", b"'", b"/* " * 300_000])
def test_what_has_no_statement_is_unreadable(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable, match="no SQL statement"):
        sql.explore(source("a.sql", data))
