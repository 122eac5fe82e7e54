"""Organisations own sessions beside the person: each account is in one, and sees what belongs to both."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, transaction
from django.test import Client

from agents_app.queries import waiting_sessions
from agents_app.store import receive_message
from agents_app.turns import claim
from mnesis_core.errors import (
    DuplicateIDError,
    InboxMessageNotFoundError,
    InvalidRequest,
    NotFound,
    PeerNameTaken,
    SessionBusy,
    SessionNotFoundError,
    WrongOrganisation,
)
from mnesis_core.records import FORK, SUB_AGENT, TurnState
from mnesis_core.turns.inbox import Draft
from sessions_app.callers import check_key
from sessions_app.live import Viewer, check_viewer
from sessions_app.llm.limits import usage_today
from sessions_app.llm.model_store import create_key, find_key
from sessions_app.llm.spending_store import load_paid_calls
from sessions_app.models import Event, Organisation, Person, Session
from sessions_app.record import organisation_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.organisation_store import (
    add_organisation,
    default_id,
    find_organisation,
    home_of,
    list_organisations,
    move_person,
)
from sessions_app.record.session_queries import list_peers, list_sessions, load_session
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.cast import make_user
from tests.support.people.organisations import put_into
from tests.support.record.belongings import belongings, person
from tests.support.record.talks import exchange, new_session

pytestmark = pytest.mark.both_databases


@pytest.fixture
def alice(db: None) -> User:
    return make_user("alice")


def organisation_of(session_id: str) -> str:
    return str(Session.objects.values_list("organisation_id", flat=True).get(pk=session_id))


def test_every_account_is_in_the_sites_own_until_it_is_moved(alice: User) -> None:
    [bob] = User.objects.bulk_create([User(username="bob")])  # no signal tells of it
    assert home_of(alice.pk) == home_of(bob.pk) == default_id()
    assert [one.slug for one in list_organisations()] == ["default"]
    assert organisation_of(new_session(bob)) == default_id()


def test_its_first_entry_says_whose_a_session_is(alice: User) -> None:
    other = put_into("other", alice.pk)
    session_id = new_session(alice)
    body = json.loads(Event.objects.get(session_id=session_id, seq=1).body)
    assert (body["owner_id"], body["organisation"], organisation_of(session_id)) == (alice.pk, other, other)


def test_forks_and_sub_agents_stay_with_their_parent(alice: User) -> None:
    parent = new_session(alice)
    put_into("other", alice.pk)
    for origin in (FORK, SUB_AGENT):
        assert organisation_of(new_session(alice, parent_id=parent, origin=origin)) == organisation_of(parent)


def test_names_are_taken_within_an_organisation(alice: User) -> None:
    named: dict[str, Any] = {"owner": alice, "model": "demo"}
    for slug in ("default", "other"):
        put_into(slug, alice.pk)
        session_store.create_session(**named, origin="import", external_id="one")
        session_store.create_session(**named, host_mode=True, peer_name="keeper")
        with pytest.raises(DuplicateIDError):
            session_store.create_session(**named, origin="import", external_id="one")
        with pytest.raises(PeerNameTaken):
            session_store.create_session(**named, host_mode=True, peer_name="keeper")
    [peer] = list_peers(owner_id=alice.pk)
    assert organisation_of(peer.id) == home_of(alice.pk)


def test_no_message_crosses(alice: User) -> None:
    here = session_store.create_session(owner=alice, model="demo", host_mode=True, peer_name="here")
    with change(here) as record:
        letter = receive_message(record, Draft(text="Hello"))
    assert waiting_sessions(limit=9) == [here]
    put_into("other", alice.pk)
    there = session_store.create_session(owner=alice, model="demo", host_mode=True, peer_name="there")
    with pytest.raises(SessionNotFoundError):
        claim.deliver(there, owner_id=alice.pk, draft=Draft(text="Hello", sender=here, sender_turn="turn_x"))
    with pytest.raises(SessionNotFoundError):
        claim.deliver(here, owner_id=alice.pk, draft=Draft(text="Hello", sender=there, sender_turn="turn_x"))
    with pytest.raises(InboxMessageNotFoundError):
        claim.deliver(there, owner_id=alice.pk, draft=Draft(text="Hello", in_reply_to=letter))
    # What waits there begins no turn: its agent would act for somebody who has left.
    assert waiting_sessions(limit=9) == []
    assert claim.claim_waiting(here, lease_owner="x") is None
    put_into("default", alice.pk)
    assert waiting_sessions(limit=9) == [here]


def test_nobody_is_moved_while_their_turn_runs(alice: User) -> None:
    session_id = new_session(alice)
    with change(session_id) as record:
        turn = turn_store.start_turn(record, model="demo")
    other = add_organisation("other").id
    with pytest.raises(SessionBusy):
        move_person(alice.pk, other)
    assert home_of(alice.pk) == default_id()
    with change(session_id) as record:
        turn_store.finish_turn(record, turn, state=TurnState.COMPLETED)
    move_person(alice.pk, other)
    assert home_of(alice.pk) == other


def test_a_key_opens_what_it_was_made_for(alice: User) -> None:
    key = create_key(owner_id=alice.pk)
    session_id = new_session(alice)
    viewer = Viewer(owner_id=alice.pk, key_prefix=key.prefix)
    check_viewer(viewer, session_id)
    program = Client(headers={"Authorization": f"Bearer {key}", "Host": "localhost"})
    assert program.get(f"/api/sessions/{session_id}").status_code == 200
    put_into("other", alice.pk)
    with pytest.raises(WrongOrganisation):
        check_key(str(key))
    with pytest.raises(SessionNotFoundError):
        check_viewer(viewer, session_id)
    for path in ("/api/sessions", "/v1/models"):
        refused = program.get(path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "WRONG_ORGANISATION")
    with pytest.raises(SessionNotFoundError):
        check_viewer(viewer, new_session(alice))
    new = create_key(owner_id=alice.pk)
    assert check_key(str(new)).owner_id == alice.pk
    put_into("default", alice.pk)
    assert check_key(str(key)).owner_id == alice.pk
    assert (record := find_key(new.prefix)) is not None
    assert not record.is_at_home


def test_limits_are_the_accounts_and_the_bill_is_of_one_organisation(db: None) -> None:
    alice = person("alice")
    things = belongings(alice)
    shown = usage_today(alice.owner_id, limit=9)
    assert shown["items"]
    put_into("other", alice.owner_id)
    assert load_paid_calls(owner_id=alice.owner_id)
    left = usage_today(alice.owner_id, limit=9)
    assert left["items"] == []
    assert left["budget"] == shown["budget"]
    assert things


@pytest.mark.parametrize("slug", ["", "A", "a b", "-a", "a" * 64, "é"])
def test_a_slug_that_is_none_is_refused(db: None, slug: str) -> None:
    with pytest.raises(InvalidRequest):
        add_organisation(slug)


def test_the_command_adds_lists_and_moves(alice: User) -> None:
    def run(*arguments: str) -> str:
        said = StringIO()
        call_command("organisation", *arguments, stdout=said, stderr=StringIO())
        return said.getvalue()

    assert run("list") == f"default  {default_id()}\n"
    id = run("add", "harbour", "--name", "The harbour").strip()
    assert json.loads(run("list", "--json"))[1] == {
        "id": id,
        "slug": "harbour",
        "name": "The harbour",
        "created_at": json.loads(run("list", "--json"))[1]["created_at"],
    }
    run("move", "alice", "harbour")
    assert home_of(alice.pk) == id
    run("move", "alice", default_id())
    assert home_of(alice.pk) == default_id()
    for wrong, code in (
        (("add", "harbour"), "DUPLICATE_ID"),
        (("add", "Harbour"), "INVALID_REQUEST"),
        (("move", "alice", "nowhere"), "NOT_FOUND"),
        (("move", "nobody", "harbour"), "NOT_FOUND"),
    ):
        with pytest.raises(CommandError, match=code):
            run(*wrong)


def test_it_is_found_by_its_slug_or_its_id(db: None) -> None:
    one = add_organisation("harbour", name="The harbour ␛")
    assert find_organisation("harbour") == find_organisation(one.id) == one
    with pytest.raises(NotFound):
        find_organisation("␛0000")


def test_nothing_but_its_name_and_settings_changes(alice: User) -> None:
    Organisation.objects.update(name="Ours", settings={"a": 1})
    session_id = new_session(alice)
    other = add_organisation("other").id
    for refused in (
        lambda: plain(Organisation).update(slug="x"),
        lambda: plain(Organisation).all()._raw_delete("default"),
        lambda: plain(Session).filter(pk=session_id).update(organisation_id=other),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            refused()
    with pytest.raises(IntegrityError), transaction.atomic():
        plain(Organisation).create(id="org_x", slug="default", created_at=Organisation.objects.get(pk=other).created_at)
    assert Person.objects.get(user_id=alice.pk).organisation_id == default_id()


def test_administrators_see_all_of_them_and_a_filter_only_if_there_are_two(alice: User) -> None:
    sam = User.objects.create_superuser("sam")
    client = Client(headers={"Host": "localhost"})
    client.force_login(sam)
    session_id = new_session(alice, title="Tides")
    exchange(session_id, "How high?", "4 m.")
    sessions, inspect = "/admin/sessions_app/session/", f"/sessions/{session_id}/inspect/"
    assert "organisation" not in client.get(sessions).content.decode().lower()
    assert "organisation" not in client.get(f"{sessions}{session_id}/change/").content.decode().lower()
    assert "organisation" not in client.get("/admin/").content.decode().lower()
    other = put_into("other", alice.pk)
    moved = new_session(alice, title="Bells")
    assert client.get(inspect).status_code == 200
    both = client.get(sessions).content.decode()
    assert "Tides" in both
    assert "Bells" in both
    assert f"?organisation={other}" in both
    only = client.get(sessions, {"organisation": other}).content.decode()
    assert "Bells" in only
    assert "Tides" not in only
    assert "/admin/sessions_app/organisation/" in client.get("/admin/").content.decode()
    assert other in client.get(f"{sessions}{moved}/change/").content.decode()
    page = client.get(f"/admin/sessions_app/organisation/{other}/change/").content.decode()
    assert f"organisation={other}" in page
    assert [one.id for one in list_sessions(owner_id=alice.pk)] == [moved]
    with pytest.raises(SessionNotFoundError):
        load_session(session_id, owner_id=alice.pk)
    owner = Client(headers={"Host": "localhost"})
    owner.force_login(alice)
    assert owner.get(inspect).status_code == 404
    assert organisation_store.are_several()
