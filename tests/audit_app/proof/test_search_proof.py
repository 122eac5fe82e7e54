"""The search index is compared with the record: what is missing in it, and what is in it of nothing, is named with its cure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_all, verify_session
from sessions_app.models import SearchEntry
from sessions_app.search import index
from sessions_app.search.index import engine
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.cast import make_user
from tests.support.record.inspected import add_session, add_turn
from tests.support.record.tampered import make_rich_session
from tests.support.sites.commands import printed

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True), pytest.mark.owner]


def told() -> list[tuple[str, str]]:
    """Sessions and words of what is wrong with the index; nothing else is wrong."""
    found = verify_all(jobs=1).problems
    assert {problem.kind for problem in found} <= {"search"}
    return [(problem.session, problem.detail) for problem in found]


@pytest.fixture
def mended() -> Iterator[None]:
    """What the words of every finding say helps."""
    yield
    call_command("rebuild_search")
    assert told() == []


def test_an_index_that_was_emptied_is_named(session_id: str, mended: None) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in engine().clear:
            cursor.execute(statement)
    [(session, words)] = told()
    assert session == session_id
    assert "are not in the search index" in words
    assert "rebuild_search" in words
    with pytest.raises(CommandError, match="not as it was written"):
        printed("verify", session_id)


def test_an_entry_that_was_taken_away_is_named(session_id: str, mended: None) -> None:
    other = make_rich_session(make_user("bob"))
    entry = plain(SearchEntry).filter(session_id=session_id, kind="messages").earliest("pk")
    entry.delete()
    [(session, words)] = told()
    assert session == session_id
    assert words.startswith(f"1 entries are not in the search index, the first of them messages {entry.source_id}")
    assert verify_session(other).ok


def test_an_entry_of_no_text_is_named(session_id: str, mended: None) -> None:
    change_one(session_id, "source_id = 'part_other'")
    assert ["are not in" in words for _, words in told()] == [True, False]


@pytest.mark.parametrize(
    "change", ["owner_id = owner_id + 77", "last_seq = last_seq + 1", "start = 7", "kind = 'other'"]
)
def test_an_entry_that_says_something_else_is_named(session_id: str, mended: None, change: str) -> None:
    change_one(session_id, change)
    assert told()


def test_an_entry_that_stands_twice_is_named(session_id: str, mended: None) -> None:
    with connection.cursor() as cursor:
        index.write(cursor, texts_of(session_id)[:1], owner_id=owner_of(session_id), session_id=session_id)
    assert [words.partition(";")[0] for _, words in told()] == ["entries stand twice in the search index"]


def test_entries_of_a_session_that_is_not_there_are_named(session_id: str, mended: None) -> None:
    with connection.cursor() as cursor:
        index.write(cursor, texts_of(session_id), owner_id=owner_of(session_id), session_id="sess_other")
    [(session, words)] = told()
    assert (session, "sess_other" in words) == ("", True)


def test_words_that_were_taken_away_are_named(session_id: str, mended: None) -> None:
    statement = "UPDATE search_entries SET words = ''::tsvector WHERE id = %s"
    if connection.vendor == "sqlite":
        statement = "INSERT INTO search_words (search_words) VALUES ('delete-all')"
    with connection.cursor() as cursor:
        values = [plain(SearchEntry).latest("pk").pk] if connection.vendor == "postgresql" else []
        cursor.execute(statement, values)
    assert ["the words of " in words for _, words in told()] == [True]


def test_a_deleted_session_may_be_found_or_not() -> None:
    alice: User = make_user("alice")
    session_id = add_session(alice)
    add_turn(session_id, "What about the tides?")
    lifecycle.delete_session(session_id, owner_id=alice.pk)
    assert told() == []
    call_command("rebuild_search")
    assert told() == []


def change_one(session_id: str, change: str) -> None:
    key = plain(SearchEntry).filter(session_id=session_id).latest("pk").pk
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE search_entries SET {change} WHERE id = %s", [key])


def texts_of(session_id: str) -> list[index.Text]:
    with connection.cursor() as cursor:
        found = index.texts_of_session(cursor, session_id, last_seq=100)
        return [text for texts in found for text in texts if index.is_findable(text)]


def owner_of(session_id: str) -> int:
    return int(plain(SearchEntry).filter(session_id=session_id).values_list("owner_id", flat=True)[0])
