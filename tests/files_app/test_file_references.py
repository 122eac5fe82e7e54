"""References to files: kept as they were found, never replaced."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from files_app.models import FileReference as Row
from files_app.queries import find_file_by_content, find_file_by_path, load_file_reference
from files_app.store import store_file_reference
from mnesis_core.errors import FileReferenceNotFoundError, ImmutableFieldError, InvalidRequest, SessionNotFoundError
from mnesis_core.records import is_id
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.search.index import rebuild
from sessions_app.search.search import Scope, search
from tests.support.people.cast import make_user
from tests.support.record.talks import exchange, new_session

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]

ONE, OTHER = "a1" * 32, "b2" * 32


def add(session_id: str, content_id: str = ONE, path: str = "/src/main.py", **values: Any) -> str:
    with change(session_id) as record:
        return store_file_reference(record, content_id=content_id, path=path, **values)


def test_a_file_comes_back_as_it_was_told(session_id):
    told = {"file_type": "python", "token_count": 812, "exploration_summary": "Two functions \x00 \ud800."}
    file_id = add(session_id, path="/nul \x00/ü.py", **told)
    found = load_file_reference(file_id, session_id=session_id)
    assert is_id(file_id)
    assert file_id.startswith("file_")
    assert (found.id, found.session_id, found.content_id, found.path) == (file_id, session_id, ONE, "/nul \x00/ü.py")
    assert {name: getattr(found, name) for name in told} == told
    assert find_file_by_content(ONE, session_id=session_id) == found
    assert find_file_by_path("/nul \x00/ü.py", session_id=session_id) == found


def test_the_same_file_again_is_the_same_reference_and_no_event(session_id):
    assert add(session_id, exploration_summary="A") == add(session_id, exploration_summary="A")
    assert [event.type for event in load_events(session_id)] == ["session.created", "file.added"]


def test_another_summary_is_another_row_and_the_newest_is_found(session_id):
    ids = [add(session_id, exploration_summary=summary) for summary in ("A", "B", "A")]
    assert len(set(ids)) == 3
    assert load_file_reference(ids[0], session_id=session_id).exploration_summary == "A"
    assert find_file_by_content(ONE, session_id=session_id).id == ids[2]


def test_the_newest_content_of_a_path_is_found(alice, session_id):
    add(session_id, ONE)
    newest = add(session_id, OTHER)
    elsewhere = add(new_session(alice), ONE)
    assert find_file_by_path("/src/main.py", session_id=session_id).id == newest
    assert find_file_by_path("/src/main.py", owner_id=alice.pk).id == elsewhere
    assert find_file_by_path("/src/other.py", owner_id=alice.pk) is None


def test_the_event_names_no_path_and_no_content(session_id):
    file_id = add(session_id, path="/home/secret", token_count=5, exploration_summary="secret words")
    data = load_events(session_id)[-1].data
    assert (data["file_id"], data["token_count"]) == (file_id, 5)
    assert "secret" not in json.dumps(data)
    assert ONE not in json.dumps(data)


def test_files_belong_to_their_session_and_owner(alice, session_id):
    file_id = add(session_id)
    bob = make_user("bob")
    his = new_session(bob)
    for scope in ({"owner_id": bob.pk}, {"session_id": his}, {"session_id": session_id, "owner_id": bob.pk}):
        with pytest.raises(FileReferenceNotFoundError):
            load_file_reference(file_id, **scope)
        assert find_file_by_content(ONE, **scope) is None
        assert find_file_by_path("/src/main.py", **scope) is None
    assert load_file_reference(file_id, owner_id=alice.pk).id == file_id
    with pytest.raises(ValueError, match="session_id or owner_id"):
        load_file_reference(file_id)


def test_files_of_a_deleted_session_are_out_of_sight_and_stay(alice, session_id):
    file_id = add(session_id)
    with change(session_id) as record:
        session_store.soft_delete_session(record)
    with pytest.raises(FileReferenceNotFoundError):
        load_file_reference(file_id, owner_id=alice.pk)
    with pytest.raises(SessionNotFoundError):
        add(session_id)
    assert Row.objects.filter(id=file_id).exists()


def test_what_an_exploration_found_can_be_searched(alice, session_id):
    exchange(session_id, "look at the file", "I did")
    file_id = add(session_id, exploration_summary="A table of high tides in Brest.")
    [hit] = search(Scope(owner_id=alice.pk, kind="files"), "tides brest").hits
    assert (hit.source_id, hit.part_type, hit.message_seq) == (file_id, "file", 2)
    assert rebuild() > 0
    assert search(Scope(owner_id=alice.pk, kind="files"), "tides brest").hits == (hit,)


def test_a_reference_never_changes(session_id):
    row = Row.objects.get(id=add(session_id))
    with pytest.raises(ImmutableFieldError):
        Row.objects.update(path="another")
    with pytest.raises(IntegrityError), transaction.atomic():
        Row.objects.update(exploration_summary="another")
    with pytest.raises(ImmutableFieldError):
        row.delete()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"content_id": "A1" * 32}, "content_id"),
        ({"content_id": ""}, "content_id"),
        ({"path": "/" + "a" * 4_096}, "path"),
        ({"path": "\x00" * 1_000}, "path"),
        ({"file_type": "x" * 65}, "file_type"),
        ({"token_count": -1}, "token_count"),
        ({"token_count": 2**53}, "token_count"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(session_id, values, field):
    with pytest.raises(InvalidRequest) as refused:
        add(session_id, **values)
    assert refused.value.details["field"] == field
    assert not Row.objects.exists()
