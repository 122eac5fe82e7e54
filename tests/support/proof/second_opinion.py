"""What the second verifier finds in the database of a test, and whether ``verify`` finds the same."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.core.files.storage import storages
from django.db import connection

from audit_app.proof import verify
from sessions_app.models import DirectoryEntry, Organisation
from tests.support.proof.second_verifier import Problem, Session, problems_of_directory, problems_of_session
from tests.support.proof.second_verifier.values import sessions_of_database, tables

Raw = dict[str, list[dict[str, Any]]]
Ask = Callable[[str], tuple[list[str], Iterable[tuple[Any, ...]]]]
"""Runs a query without parameters and returns the names of its columns and its rows."""

BEYOND = ("guard", "search", "damage")
"""Kinds of what is not of the format: triggers, the search index, and pages that the database cannot read."""
PARENTS = {"operator_items": ("run_id", "operator_runs"), "summary_edges": ("node_id", "summary_nodes")}
_CONTENT = re.compile(r"the content (.*?) of ['\"]")
_DIFFERENCE = re.compile(r"(.*?): .* by the ledger, .* in the rows", re.DOTALL)


def assert_agreed(session_id: str, report: verify.Report) -> None:
    """Both verifiers name the same entries and rows of a session. What says nothing is worded by each in its own way."""
    ours = set(problems_of(report.problems))
    rows = rows_here(session_id)
    session = sessions_of_database(rows, contents_of(rows))[session_id]
    theirs = {*problems_of_session(session), *_in_directory(rows, {session_id: session})}
    if any(problem.kind == "damage" for problem in report.problems):
        assert theirs
    else:
        assert theirs == ours


def problems_of(problems: Iterable[verify.Problem]) -> list[Problem]:
    """What ``verify`` says, in the words of the format."""
    return [
        Problem(problem.session, problem.seq, problem.kind, _subject(problem))
        for problem in problems
        if problem.kind not in BEYOND
    ]


def _subject(problem: verify.Problem) -> str:
    if problem.kind == "replay":
        found = _DIFFERENCE.fullmatch(problem.detail)
        assert found
        return found[1].rstrip()
    if problem.kind == "content":
        return _CONTENT.findall(problem.detail)[0]
    if problem.kind == "head":
        return ""
    if problem.kind == "chain":
        return "directory_entries" if problem.detail.startswith("directory_entries") else ""
    return problem.detail.partition(":")[0]


def _in_directory(rows: Raw, sessions: Mapping[str, Session]) -> list[Problem]:
    found = problems_of_directory(rows["directory_entries"], sessions, organisations=_organisations())
    return [problem for problem in found if problem.session in sessions]


def all_problems() -> set[Problem]:
    """What the second verifier finds in all sessions and in the directory."""
    rows = rows_here()
    sessions = sessions_of_database(rows, contents_of(rows))
    found = {problem for session in sessions.values() for problem in problems_of_session(session)}
    return {*found, *problems_of_directory(rows["directory_entries"], sessions, organisations=_organisations())}


def _organisations() -> list[dict[str, Any]]:
    return list(Organisation.objects.values("id", "slug"))


def rows_here(session_id: str = "") -> Raw:
    """Every row of the record as the database of the test has it, or those of one session."""

    def ask(sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return [column[0] for column in cursor.description], cursor.fetchall()

    return read_rows(ask, session_id, vendor=connection.vendor, plus="+" if connection.vendor == "sqlite" else "")


ALL_TABLES = {"sqlite": "SELECT name FROM sqlite_master", "postgresql": "SELECT tablename FROM pg_tables"}


def read_rows(ask: Ask, session_id: str = "", *, vendor: str, plus: str = "") -> Raw:
    """Read the record; ``plus`` before a column keeps SQLite's driver from converting it by its declared type."""
    _, listed = ask(ALL_TABLES[vendor])
    there = {name for (name,) in listed}
    found = {}
    for name in (*tables(), DirectoryEntry._meta.db_table):
        where = f" WHERE {_condition(name, session_id)}" if session_id else ""
        if name not in there:  # It came later than this database.
            continue
        names, _ = ask(f"SELECT * FROM {name} LIMIT 0")
        columns = ", ".join(f'{plus}"{column}"' for column in names)
        _, rows = ask(f"SELECT {columns} FROM {name}{where}")
        found[name] = [{column: _plain(value) for column, value in zip(names, row, strict=True)} for row in rows]
    return found


def _condition(name: str, session_id: str) -> str:
    if name == "sessions":
        return f"id = '{session_id}'"
    if name not in PARENTS:
        return f"session_id = '{session_id}'"
    column, parent = PARENTS[name]
    return f"{column} IN (SELECT id FROM {parent} WHERE session_id = '{session_id}')"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def contents_of(rows: Raw) -> dict[str, bytes]:
    found = {}
    for id in {str(row["content_id"]) for row in rows["file_references"]}:
        with suppress(OSError, ValueError), storages["files"].open(f"{id[:2]}/{id[2:4]}/{id}", "rb") as file:
            found[id] = file.read()
    return found


def problems_of_old(directory: Path, file: Path, url: str) -> set[Problem]:
    """What the second verifier finds in a database that is not Django's: at a server's address, otherwise in SQLite's file."""
    rows = _read_server(url) if url else _read_sqlite(file)
    contents = {path.name: path.read_bytes() for path in (directory / "files").rglob("*") if path.is_file()}
    sessions = sessions_of_database(rows, contents)
    assert len(sessions) > 3
    found = {problem for session in sessions.values() for problem in problems_of_session(session)}
    return {*found, *problems_of_directory(rows["directory_entries"], sessions)}


def _read_sqlite(file: Path) -> Raw:
    database = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:

        def ask(sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
            cursor = database.execute(sql)
            return [column[0] for column in cursor.description], cursor.fetchall()

        return read_rows(ask, vendor="sqlite")
    finally:
        database.close()


def _read_server(url: str) -> Raw:
    with psycopg.connect(url) as database:
        database.adapters.register_loader("jsonb", psycopg.types.string.TextLoader)

        def ask(sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
            cursor = database.execute(sql)  # type: ignore[call-overload]
            return [column.name for column in cursor.description or ()], cursor.fetchall()

        return read_rows(ask, vendor="postgresql")
