"""The trash: what is moved there is hidden everywhere, comes back as it was, and is deleted for good only if asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from mnesis_core.errors import (
    DeletionNotPermitted,
    DuplicateIDError,
    PeerNameTaken,
    SessionBusy,
    SessionInTrash,
    SessionNotFoundError,
)
from mnesis_core.turns.inbox import Hosting
from sessions_app.conf import site_config
from sessions_app.models import DirectoryEntry, Session
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.search.search import Scope, search
from tests.support.proof.second_opinion import all_problems
from tests.support.proof.second_verifier import problems_of_session, read_export
from tests.support.record.talks import exchange, new_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def web(alice: User, client: Client) -> Client:
    client.force_login(alice)
    return client


@pytest.fixture
def harbour(alice: User) -> str:
    session_id = new_session(alice, title="Harbour works")
    exchange(session_id, "Where is the lighthouse?", "On the pier.")
    return session_id


def titles(web: Client, query: str = "") -> list[str]:
    return [item["title"] for item in web.get(f"/api/sessions{query}").json()["items"]]


@pytest.fixture
def forbid_deleting(settings: Any, tmp_path: Path) -> Iterator[Callable[[], None]]:
    def forbid() -> None:
        file = tmp_path / "config.toml"
        file.write_text("[deletion]\npeople_may_delete = false\n")
        settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
        site_config.cache_clear()

    yield forbid
    site_config.cache_clear()


def test_a_session_in_the_trash_is_hidden_everywhere_and_comes_back(web: Client, alice: User, harbour: str) -> None:
    before = load_session(harbour)
    found = web.post(f"/api/sessions/{harbour}/trash").json()
    assert (found["trashed"], found["state"]) == (True, "trashed")
    assert titles(web) == []
    assert titles(web, "?archived=true") == []
    assert titles(web, "?trashed=true") == ["Harbour works"]
    for path in ("/", "/sessions/", "/sessions/palette/", "/sessions/sidebar/"):
        assert "Harbour works" not in web.get(path).content.decode(), path
    assert web.get(f"/sessions/states/?id={harbour}").content.decode().count(harbour) == 0
    assert list(search(Scope(owner_id=alice.pk), "lighthouse").hits) == []
    for answer in (
        web.get(f"/api/sessions/{harbour}"),
        web.get(f"/api/sessions/{harbour}/messages"),
        web.post(f"/api/sessions/{harbour}/turns", {"message": "Hello"}, content_type="application/json"),
        web.post(f"/api/sessions/{harbour}/trash"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "SESSION_IN_TRASH")
    page = web.get(f"/sessions/{harbour}/")
    assert page.status_code == 404
    assert 'href="/trash/"' in page.content.decode().split("<main", 1)[1]

    assert web.post(f"/api/sessions/{harbour}/restore").json()["trashed"] is False
    after = load_session(harbour)
    assert (after.title, after.message_seq, after.trashed_at) == (before.title, before.message_seq, None)
    assert titles(web) == ["Harbour works"]
    assert titles(web, "?trashed=true") == []
    assert len(list(search(Scope(owner_id=alice.pk), "lighthouse").hits)) == 1
    again = web.post(f"/api/sessions/{harbour}/restore")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "SESSION_NOT_FOUND")


def test_the_ledger_and_the_directory_tell_of_it(alice: User, harbour: str, tmp_path: Path) -> None:
    for act in (lifecycle.trash_session, lifecycle.restore_session, lifecycle.trash_session, lifecycle.delete_session):
        act(harbour, owner_id=alice.pk)
        assert verify_session(harbour).ok
    told = DirectoryEntry.objects.filter(session_id=harbour).order_by("seq").values_list("type", flat=True)
    assert list(told) == [f"session.{act}" for act in ("created", "deleted", "restored", "deleted", "deleted")]
    assert list(all_problems()) == []
    exported = tmp_path / "session.jsonl"
    exported.write_bytes(b"".join(export_session(harbour)))
    assert problems_of_session(read_export(exported.read_bytes().splitlines(keepends=True))[0]) == []


def test_what_is_deleted_for_good_does_not_come_back(web: Client, alice: User, harbour: str) -> None:
    web.post(f"/api/sessions/{harbour}/trash")
    assert web.delete(f"/api/sessions/{harbour}").json() == {"id": harbour, "deleted": True}
    assert titles(web, "?trashed=true") == []
    for answer in (
        web.post(f"/api/sessions/{harbour}/restore"),
        web.get(f"/api/sessions/{harbour}"),
        web.delete(f"/api/sessions/{harbour}"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "SESSION_NOT_FOUND")
    assert Session.objects.filter(id=harbour).exists()
    other = new_session(alice)
    assert web.delete(f"/api/sessions/{other}").status_code == 200
    assert web.post(f"/api/sessions/{other}/restore").status_code == 404


def test_sub_agents_go_and_come_with_their_parent(alice: User, harbour: str) -> None:
    gone = new_session(alice, title="Gone", parent_id=harbour, origin="task")
    child = new_session(alice, title="Child", parent_id=harbour, origin="task")
    grandchild = new_session(alice, title="Grandchild", parent_id=child, origin="task")
    lifecycle.trash_session(gone, owner_id=alice.pk)
    lifecycle.trash_session(harbour, owner_id=alice.pk)
    in_trash = list_sessions(owner_id=alice.pk, archived=None, trashed=True)
    assert [session.id for session in in_trash] == [harbour, gone]
    lifecycle.restore_session(harbour, owner_id=alice.pk)
    there = {session.id for session in list_sessions(owner_id=alice.pk, archived=None)}
    assert there == {harbour, child, grandchild}
    lifecycle.trash_session(harbour, owner_id=alice.pk)
    lifecycle.delete_session(harbour, owner_id=alice.pk)
    in_trash = list_sessions(owner_id=alice.pk, archived=None, trashed=True)
    assert [session.id for session in in_trash] == [gone]
    with pytest.raises(SessionNotFoundError):
        lifecycle.restore_session(child, owner_id=alice.pk)


def test_a_running_session_is_not_moved_and_neither_is_its_parent(alice: User, harbour: str) -> None:
    child = new_session(alice, parent_id=harbour, origin="task")
    with change(child) as record:
        turn_store.claim_turn(record, model="demo")
    with pytest.raises(SessionBusy):
        lifecycle.trash_session(harbour, owner_id=alice.pk)
    assert load_session(harbour, owner_id=alice.pk).trashed_at is None


def test_a_name_that_was_taken_meanwhile_is_not_taken_back(alice: User) -> None:
    first = new_session(alice, external_id="talk-1", origin="import:openai")
    host = new_session(alice, title="Host")
    with change(host) as record:
        session_store.update_session(record, hosting=Hosting(is_on=True, name="keeper"))
    for id in (first, host):
        lifecycle.trash_session(id, owner_id=alice.pk)
    new_session(alice, external_id="talk-1", origin="import:openai")
    other = new_session(alice)
    with change(other) as record:
        session_store.update_session(record, hosting=Hosting(is_on=True, name="keeper"))
    with pytest.raises(DuplicateIDError):
        lifecycle.restore_session(first, owner_id=alice.pk)
    with pytest.raises(PeerNameTaken):
        lifecycle.restore_session(host, owner_id=alice.pk)
    assert len(list_sessions(owner_id=alice.pk, archived=None, trashed=True)) == 2


def test_another_persons_trash_is_not_found(web: Client, bob: User) -> None:
    session_id = new_session(bob, title="Bob's boat")
    lifecycle.trash_session(session_id, owner_id=bob.pk)
    for answer in (
        web.get(f"/api/sessions/{session_id}"),
        web.post(f"/api/sessions/{session_id}/restore"),
        web.delete(f"/api/sessions/{session_id}"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "SESSION_NOT_FOUND")
    assert titles(web, "?trashed=true") == []
    assert "s boat" not in web.get("/trash/").content.decode().split("<main", 1)[1]
    with pytest.raises(SessionInTrash):
        load_session(session_id, owner_id=bob.pk)


def test_a_site_may_forbid_deleting(
    web: Client, alice: User, harbour: str, forbid_deleting: Callable[[], None]
) -> None:
    lifecycle.trash_session(new_session(alice, title="Before"), owner_id=alice.pk)
    assert 'data-act="trash"' in web.get(f"/sessions/{harbour}/menu/").content.decode()
    assert 'id="delete"' in web.get(f"/sessions/{harbour}/").content.decode()
    forbid_deleting()
    for answer in (web.post(f"/api/sessions/{harbour}/trash"), web.delete(f"/api/sessions/{harbour}")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "DELETION_NOT_PERMITTED")
    assert 'data-act="trash"' not in web.get(f"/sessions/{harbour}/menu/").content.decode()
    assert 'id="delete"' not in web.get(f"/sessions/{harbour}/").content.decode()
    page = web.get("/trash/").content.decode()
    assert 'data-act="restore"' in page
    assert 'data-act="delete"' not in page
    with pytest.raises(DeletionNotPermitted):
        lifecycle.delete_session(harbour, owner_id=alice.pk)


def test_the_page_lists_what_can_be_restored(web: Client, alice: User) -> None:
    assert "The trash is empty." in web.get("/trash/").content.decode()
    for number in range(51):
        lifecycle.trash_session(new_session(alice, title=f"Talk {number}"), owner_id=alice.pk)
    page = web.get("/trash/").content.decode()
    assert page.count('data-act="restore"') == 50
    [cursor] = re.findall(r'"cursor": "([^"]*)"', page)
    assert web.get(f"/trash/?cursor={cursor}").content.decode().count('data-act="restore"') == 1
    assert web.get("/trash/?cursor=nonsense").status_code == 422
