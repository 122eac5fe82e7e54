"""Bytes that the database cannot read are named, in words and with the session, and the other sessions are looked at."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection

from audit_app.proof.verify import verify_all, verify_session
from tests.support.people.cast import make_user
from tests.support.processes.children import CHILD_SECONDS, run_child
from tests.support.record.inspected import add_session, add_turn
from tests.support.sites.commands import printed
from tests.support.sites.databases import ask, execute

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True), pytest.mark.owner]
FLIPS, SOAK_FLIPS = 40, int(os.environ.get("MNESIS_SOAK_FLIPS", "2000"))


@pytest.fixture
def other_id() -> str:
    """A session that nobody damages."""
    session_id = add_session(make_user("bob"))
    add_turn(session_id, "And the moon?")
    return session_id


def found() -> list[tuple[str, str]]:
    """Sessions and words in a database whose guards are away."""
    return [(one.session, f"{one.kind}: {one.detail}") for one in verify_all(jobs=1).problems if one.kind != "guard"]


@pytest.mark.slow
def test_a_missing_table_is_named_and_each_session_that_cannot_be_proven(session_id: str, other_id: str) -> None:
    execute("ALTER TABLE context_items RENAME TO hidden")
    try:
        words = found()
        assert any("damage: context_items cannot be read" in one for session, one in words if not session)
        assert {session for session, one in words if "damage: context_items: " in one} == {session_id, other_id}
        with pytest.raises(CommandError, match="not as it was written"):
            printed("verify", "--all", "--json")
    finally:
        execute("ALTER TABLE hidden RENAME TO context_items")
    assert found() == []


def test_a_missing_column_is_named(session_id: str, unguarded: None) -> None:
    execute("ALTER TABLE turns RENAME COLUMN error_code TO hidden")
    try:
        assert ("", "damage: turns has no column error_code") in found()
    finally:
        execute("ALTER TABLE turns RENAME COLUMN hidden TO error_code")


def test_a_missing_list_of_sessions_is_put_together_from_what_names_them(session_id: str, other_id: str) -> None:
    execute("ALTER TABLE sessions RENAME TO hidden")
    try:
        words = found()
        assert any("the list of sessions cannot be read" in one for _, one in words)
        assert {session for session, _ in words} >= {session_id, other_id}
    finally:
        execute("ALTER TABLE hidden RENAME TO sessions")


if connection.vendor == "sqlite":

    @pytest.mark.parametrize(
        ("table", "column"),
        [("events", "body"), ("message_parts", "content"), ("sessions", "title"), ("model_calls", "model")],
    )
    def test_a_text_that_is_not_utf8_is_named_with_its_row_and_nothing_of_it(
        session_id: str, other_id: str, unguarded: None, table: str, column: str
    ) -> None:
        owner = "id" if table == "sessions" else "session_id"
        [(id,)] = ask(f"SELECT MAX(id) FROM {table} WHERE {owner} = '{session_id}'")
        execute(f"UPDATE {table} SET {column} = CAST(X'73656372657420FF' AS TEXT) WHERE id = '{id}'")
        words = found()
        assert {session for session, _ in words} == {session_id}
        assert (session_id, f"damage: {table} {id} {column}: a text that is not UTF-8") in words
        assert "secret" not in str(words)
        assert verify_session(other_id).ok

    def test_the_rest_of_a_session_with_such_a_text_is_proven_all_the_same(session_id: str, unguarded: None) -> None:
        execute("UPDATE message_parts SET content = CAST(X'FF' AS TEXT) WHERE id = (SELECT MIN(id) FROM message_parts)")
        execute("UPDATE turns SET model = 'forged' WHERE id = (SELECT MAX(id) FROM turns)")
        kinds = {one.partition(" ")[0] for _, one in found()}
        assert {"damage:", "row"} & kinds
        assert any("row: turns" in one for _, one in found())

    @pytest.fixture
    def file(session_id: str, other_id: str, tmp_path: Path) -> Path:
        """A copy of the whole database, without the empty pages that the tests before have left in it."""
        path = tmp_path / "mnesis.sqlite3"
        with closing(sqlite3.connect(path)) as copy:
            connection.connection.backup(copy)
            copy.execute("VACUUM")
        return path

    def told_of(file: Path) -> Any:
        [told] = json.loads(run_child("tests.support.processes.verifies_a_file", file))
        return told

    @pytest.mark.slow
    @pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.95])
    def test_a_file_that_was_cut_off_is_told_of(file: Path, share: float) -> None:
        with file.open("r+b") as opened:
            opened.truncate(int(file.stat().st_size * share) // 4096 * 4096)
        status, problems, error = told_of(file)
        assert (status, error) == (1, "")
        assert problems

    @pytest.mark.slow
    def test_a_file_that_is_no_database_is_told_of(file: Path) -> None:
        file.write_bytes(b"garbage " * 10_000)
        status, problems, error = told_of(file)
        assert (status, error) == (1, "")
        assert problems

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [FLIPS, pytest.param(SOAK_FLIPS, marks=pytest.mark.soak)])
    def test_whatever_bytes_are_changed_what_was_said_is_as_it_was_or_somebody_is_told(
        file: Path, tmp_path: Path, count: int
    ) -> None:
        answer = run_child(
            "tests.support.processes.flips",
            file,
            tmp_path / "copy.sqlite3",
            "seed",
            count,
            seconds=CHILD_SECONDS + 10 * count,
        )
        looks = json.loads(answer)
        assert len(looks) == count
        assert [look for look in looks if look["error"] or look["status"] not in (0, 1)] == []
        assert [look for look in looks if bool(look["status"]) != bool(look["problems"])] == []
        assert [look["number"] for look in looks if look["changed"] and not look["problems"]] == []
        assert any(look["changed"] for look in looks)


if connection.vendor == "postgresql":

    @pytest.fixture
    def surgery() -> Iterator[None]:
        """What takes single versions of rows out of a table, as a broken page would."""
        execute("CREATE EXTENSION pg_surgery")
        yield
        execute("DROP EXTENSION pg_surgery")

    def test_a_long_text_whose_pages_are_gone_is_named_with_its_row(
        session_id: str, other_id: str, unguarded: None, surgery: None
    ) -> None:
        [(id,)] = ask(f"SELECT MAX(id) FROM message_parts WHERE session_id = '{session_id}'")
        execute(
            "ALTER TABLE message_parts ALTER COLUMN content SET STORAGE EXTERNAL",
            f"UPDATE message_parts SET content = repeat('secret', 9999) WHERE id = '{id}'",
        )
        [(toast,)] = ask("SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'message_parts'::regclass")
        execute(f"SELECT heap_force_kill('{toast}'::regclass, ARRAY(SELECT ctid FROM {toast}))")
        words = found()
        assert any(one.startswith(f"damage: message_parts {id} content: missing chunk") for _, one in words)
        assert "secret" not in str(words)
        assert {session for session, _ in words} == {session_id}
        execute(f"UPDATE message_parts SET content = '' WHERE id = '{id}'")

    def test_a_row_of_the_ledger_that_is_gone_from_its_page_is_named(
        session_id: str, unguarded: None, surgery: None
    ) -> None:
        places = ", ".join(f"'{place}'::tid" for (place,) in ask("SELECT ctid::text FROM events WHERE seq = 3"))
        execute(f"SELECT heap_force_kill('events'::regclass, ARRAY[{places}])")
        assert any(session == session_id and one.startswith("chain") for session, one in found())
