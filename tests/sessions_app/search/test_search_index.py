"""The search index: written with the rows or not at all, the same when it is made again, and never everybody's."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import checks
from django.core.management import call_command
from django.db import connection, transaction

from mnesis_core.messages import TextPart, ToolState
from mnesis_core.search.words import parse_words, words_of
from mnesis_site.readiness import missing_parts
from sessions_app.models import SearchEntry, Session
from sessions_app.record import message_store
from sessions_app.record.change import change
from sessions_app.search import index as search_index
from sessions_app.search.index import Postgresql, engine, fts5_errors, index_differences
from sessions_app.search.search import Scope, search
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool

pytestmark = pytest.mark.both_databases

ENTRY = ("session_id", "kind", "source_id", "field", "first_seq", "last_seq", "start")


def index() -> set[tuple[Any, ...]]:
    """Every entry, and on PostgreSQL its words."""
    words = ", words::text" if isinstance(engine(), Postgresql) else ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT owner_id, {', '.join(ENTRY)}{words} FROM search_entries")
        return set(cursor.fetchall())


def test_what_is_rolled_back_is_not_found(reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "a tulip", "fine")
    before = index()
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(session_id)
    assert index() == before
    assert search(Scope(owner_id=reader.pk), "marigold").hits == ()
    exchange(session_id, "a rose", "fine")
    assert len(search(Scope(owner_id=reader.pk), "rose").hits) == 1


def _write_and_fail(session_id: str) -> None:
    with transaction.atomic():
        say(session_id, ("user", [TextPart(text="a marigold")]))
        assert len(search(Scope(owner_id=Session.objects.get(id=session_id).owner_id), "marigold").hits) == 1
        raise ZeroDivisionError


def test_an_index_that_is_made_again_is_the_same(reader: User, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        session_id = new_session(reader)
        exchange(session_id, f"marigold {name}", HOSTILE + "word " * 20_000)
        say(session_id, ("assistant", [tool(input='{"a": 1}', output=None, state=ToolState.RUNNING)]))
        part_id = search(Scope(owner_id=reader.pk, session_id=session_id), "bash").hits[0].source_id
        with change(session_id) as record:
            message_store.finish_tool(record, part_id, output="a late marigold", error=None)
    kept = index()
    found = _found(reader)
    assert len(found) == 4
    call_command("rebuild_search")
    assert index() == kept
    assert _found(reader) == found
    assert "2 sessions" in capsys.readouterr().err
    exchange(session_id, "one more marigold", "fine")
    assert len(_found(reader)) == 5


def _found(owner: User) -> set[tuple[str, str]]:
    return {(hit.source_id, hit.field) for hit in search(Scope(owner_id=owner.pk), "marigold").hits}


def test_an_index_that_was_lost_is_made_again(reader: User) -> None:
    exchange(new_session(reader), "a marigold", "fine")
    with connection.cursor() as cursor:
        for statement in engine().clear:
            cursor.execute(statement)
    assert search(Scope(owner_id=reader.pk), "marigold").hits == ()
    assert search_index.rebuild() == 1
    assert len(search(Scope(owner_id=reader.pk), "marigold").hits) == 1


def test_a_change_writes_its_index_in_one_statement_on_postgresql_and_two_on_sqlite(
    reader: User, django_assert_num_queries: Any
) -> None:
    rows = [search_index.Text(kind="tools", source_id="p", field="output", first_seq=1, last_seq=1, text="a b c")] * 5
    session_id = new_session(reader)
    with django_assert_num_queries(1 if connection.vendor == "postgresql" else 2), connection.cursor() as cursor:
        search_index.write(cursor, rows, owner_id=reader.pk, session_id=session_id)
    assert SearchEntry.objects.filter(session_id=session_id).count() == 5


def test_every_word_in_the_index_is_its_owners(reader: User) -> None:
    """So what a search for a common word, or a prefix, costs does not grow with what others write."""
    exchange(new_session(reader), "common words", "all of them")
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT unnest(tsvector_to_array(words)) FROM search_entries")
            words = {word for (word,) in cursor.fetchall()}
        else:
            query = " OR ".join(f'"{reader.pk}@{word}"' for word in ("common", "all"))
            cursor.execute("SELECT COUNT(*) FROM search_words WHERE search_words MATCH %s", [query])
            assert cursor.fetchone() == (2,)
            cursor.execute("SELECT COUNT(*) FROM search_words WHERE search_words MATCH 'common OR words OR all'")
            assert cursor.fetchone() == (0,)
            return
    assert all(word.startswith((f"{reader.pk}@", "@sess")) for word in words)


def test_the_index_is_asked_and_no_table_is_scanned(reader: User) -> None:
    query = engine().query(parse_words("common").words, owner_id=reader.pk, session_id="sess_1")
    sql = engine().select("e.id", " AND e.session_id = 'sess_1'", limit=10)
    explain = "EXPLAIN" if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN"
    with connection.cursor() as cursor:
        rows = engine().fetch(cursor, f"{explain} {sql}", [query, 2**63 - 1])
    plan = " ".join(str(row[-1]) for row in rows)
    assert "Bitmap Index Scan on search_words" in plan or "VIRTUAL TABLE INDEX" in plan
    assert "SCAN e" not in plan
    assert "Seq Scan on search_entries" not in plan


def test_an_index_that_is_missing_is_an_error_and_the_site_is_not_ready(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert index_differences(connection) == []
    monkeypatch.setattr(type(engine()), "name", "search_nothing")
    [error] = checks.run_checks(tags=["database"], databases=["default"])
    assert (error.id, "search_nothing is not there" in error.msg) == ("mnesis.E009", True)
    assert "index" in missing_parts()


def test_a_sqlite_without_fts5_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fts5_errors() == []
    monkeypatch.setattr(search_index, "modules", lambda: {"rtree"})
    [error] = fts5_errors()
    assert (error.id, "FTS5" in error.msg) == ("mnesis.E008", True)


def test_words_of_a_text_are_what_both_databases_hold() -> None:
    assert words_of("getUserName, parse_HTTPServer; ΟΔΟΣ: Café e\u0301 1e5") == {
        *("getusername", "get", "user", "name", "parse", "httpserver", "http", "server"),
        *("οδοσ", "cafe", "e", "1e5"),
    }
    assert words_of("我住A1") == {"我", "住", "我住", "a1"}
    assert words_of("\0 \ud800 🦊 … \u202e") == set()
    assert {len(word) for word in words_of("x" * 5_000)} == {64}
