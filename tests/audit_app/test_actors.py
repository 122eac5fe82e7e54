"""Who acted, where the record is shown and proven, and when it goes elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django_q.models import OrmQ

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from audit_app.tasks import run_import
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions, lines_of
from audit_app.transfer.move import move_database
from mnesis_core.actor import Actor, ActorKind
from sessions_app.models import DirectoryEntry, Event, Person, Session, Turn
from sessions_app.record import session_store
from sessions_app.record.actor import SYSTEM, acting_as
from sessions_app.record.change import change
from sessions_app.record.organisation_store import ref_of
from tests.audit_app.conftest import NewDatabase
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.cast import make_user
from tests.support.record.talks import exchange, new_session
from tests.support.record.tampered import as_if_never_here, chain_again, write_body

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
HOSTILE = {"kind": "user", "ref": "<b>\u202eAda", "request": "req_\x00", "for": ["x"]}


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def as_user(user: User) -> Any:
    return acting_as(Actor(kind=ActorKind.USER, ref=ref_of(user.pk), via="page", request="req_ada-asked"))


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def session_id(ada: User) -> str:
    with as_user(ada):
        id = new_session(ada)
        exchange(id, "How high is the tide?", "Four metres.")
    return id


def rows(client: Client, session_id: str, **wanted: Any) -> str:
    page = client.get(f"/sessions/{session_id}/inspect/ledger/", wanted)
    assert page.status_code == 200
    return page.content.decode()


# Shown


def test_the_owner_reads_you_and_the_pseudonyms_of_others(ada: User, session_id: str) -> None:
    bob = make_user("bob-the-keeper")
    with as_user(bob), change(session_id) as record:
        session_store.update_session(record, title="Tides")
    page = rows(browser(ada), session_id)
    assert '<span class="small soft">you</span>' in page
    assert ref_of(bob.pk) in page
    assert "keeper" not in page
    entry = rows(browser(ada), session_id, seq=1)
    assert "req_ada-asked" in entry
    assert "via page" in entry


def test_staff_read_the_names_of_accounts(ada: User, session_id: str) -> None:
    page = rows(browser(User.objects.create_superuser("root")), session_id)
    assert '<span class="small soft">ada</span>' in page
    assert ref_of(ada.pk) not in page


def test_the_admin_names_who_acted(ada: User, session_id: str) -> None:
    client = browser(User.objects.create_superuser("root"))
    listed = client.get("/admin/sessions_app/event/", {"session": session_id}).content.decode()
    assert listed.count('<td class="field-by">ada</td>') == Event.objects.filter(session_id=session_id).count()
    first = Event.objects.get(session_id=session_id, seq=1)
    assert "req_ada-asked" in client.get(f"/admin/sessions_app/event/{first.pk}/change/").content.decode()


def test_programs_read_it_with_each_event(ada: User, session_id: str) -> None:
    [first, *_] = browser(ada).get(f"/api/sessions/{session_id}/events").json()["items"]
    assert first["data"]["actor"] == {
        **{"kind": "user", "ref": ref_of(ada.pk), "via": "page", "request": "req_ada-asked"}
    }


@pytest.mark.parametrize("actor", [HOSTILE, "ada", 7, None, [{}], {"kind": "user", "ref": "a" * 100_000}])
def test_an_actor_that_is_none_is_shown_as_nobody(ada: User, session_id: str, unguarded: None, actor: Any) -> None:
    entry = Event.objects.get(session_id=session_id, seq=2)
    write_body(entry, json.loads(entry.body) | {"actor": actor})
    shown = rows(browser(ada), session_id, seq=2)
    assert "<dt>By</dt>" not in shown
    assert "<b>\u202e" not in shown
    root = browser(User.objects.create_superuser("root"))
    listed = root.get("/admin/sessions_app/event/", {"session": session_id}).content.decode()
    assert listed.count('<td class="field-by">ada</td>') == Event.objects.filter(session_id=session_id).count() - 1


# Proven, and carried elsewhere


def test_entries_with_and_without_an_actor_are_one_chain(ada: User, session_id: str, unguarded: None) -> None:
    assert verify_session(session_id).ok
    first = Event.objects.get(session_id=session_id, seq=1)
    write_body(first, {name: value for name, value in json.loads(first.body).items() if name != "actor"})
    chain_again(session_id, head=True)
    assert not verify_session(session_id, alone=True).problems


def test_a_changed_actor_is_found(ada: User, session_id: str, unguarded: None) -> None:
    entry = Event.objects.get(session_id=session_id, seq=2)
    write_body(entry, json.loads(entry.body) | {"actor": {"kind": "system"}})
    assert [problem.kind for problem in verify_session(session_id).problems] == ["chain"]


def test_a_changed_actor_of_a_turn_is_found(ada: User, session_id: str, unguarded: None) -> None:
    plain(Turn).filter(session_id=session_id).update(actor='{"kind":"system"}')
    assert {problem.kind for problem in verify_session(session_id).problems} == {"row"}


def test_the_directory_says_who_made_and_deleted_a_session(ada: User, session_id: str) -> None:
    with as_user(ada):
        lifecycle.delete_session(session_id, owner_id=ada.pk)
    with acting_as(SYSTEM):
        new_session(ada)
        session_store.record_heads()
    told = [(entry.type, json.loads(entry.body)["actor"]["kind"]) for entry in DirectoryEntry.objects.order_by("seq")]
    assert told[:2] == [("session.created", "user"), ("session.deleted", "user")]
    assert {kind for _, kind in told[2:]} == {"system"}


def test_an_export_has_no_people_and_comes_back_as_it_was(ada: User, session_id: str, tmp_path: Path) -> None:
    lines = list(export_session(session_id))
    assert not any(b'"people"' in line for line in lines)
    assert any(ref_of(ada.pk).encode() in line for line in lines)
    file = tmp_path / "talk.jsonl"
    file.write_bytes(b"".join(lines))
    as_if_never_here(session_id)
    bob = make_user("bob")
    with as_user(bob):
        [done] = import_sessions(partial(lines_of, partial(file.open, "rb")), owner_id=bob.pk)
    assert done.imported
    entry = DirectoryEntry.objects.filter(type="session.imported").latest("seq")
    assert json.loads(entry.body)["actor"]["ref"] == ref_of(bob.pk)
    assert json.loads(Event.objects.get(session_id=session_id, seq=1).body)["actor"]["ref"] == ref_of(ada.pk)
    assert verify_session(session_id).ok


def test_a_worker_imports_for_who_asked(ada: User, tmp_path: Path, settings: Any) -> None:
    settings.MNESIS = settings.MNESIS | {"UPLOAD_FOLDER": tmp_path / "uploads"}
    talk = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello"}]}
    file = SimpleUploadedFile("talk.json", json.dumps(talk).encode())
    sent = browser(ada).post("/api/sessions/import", {"file": [file]})
    assert sent.status_code == 202
    [task] = OrmQ.objects.all()
    run_import(*task.args())
    [session] = Session.objects.all()
    told = {event.body[:300]: json.loads(event.body)["actor"] for event in Event.objects.filter(session=session)}
    worker = {"kind": "worker", "ref": "import", "via": "worker", "for": ref_of(ada.pk)}
    assert all(actor == worker | {"request": sent.headers["X-Request-Id"]} for actor in told.values())


@pytest.mark.slow
def test_a_move_carries_people(
    ada: User, session_id: str, new_database: NewDatabase, connected: Callable[[str], str]
) -> None:
    there = connected(new_database(connection.vendor))
    assert move_database("default", there).ok
    assert Person._base_manager.using(there).get().ref == ref_of(ada.pk)
