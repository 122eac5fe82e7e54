"""The site's directory: sessions that are gone, cut off, unknown or given away are named, though nothing of them is left."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, connections
from django.utils import timezone

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_all, verify_session
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from mnesis_core.errors import DuplicateIDError
from mnesis_core.events import GENESIS, canonical_body, entry_hash
from sessions_app.database.group_commit import at_end, durable_transaction
from sessions_app.models import DirectoryEntry, Event, Session
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.organisation_store import add_organisation, default_id
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.cast import make_user
from tests.support.people.organisations import put_into
from tests.support.proof.second_opinion import all_problems, problems_of
from tests.support.record.inspected import add_session, add_turn
from tests.support.record.tampered import as_if_never_here, chain_again, erase
from tests.support.sites.databases import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]


@pytest.fixture
def alice() -> User:
    return make_user("alice")


def told() -> list[tuple[str, str, int]]:
    return list(DirectoryEntry.objects.order_by("seq").values_list("type", "session_id", "entries"))


def problems() -> list[tuple[str, str]]:
    """Sessions and kinds; the guards are away in these tests. The second verifier finds the same."""
    found = verify_all(jobs=1).problems
    assert set(problems_of(found)) == all_problems()
    return [(one.session, one.kind) for one in found if one.kind != "guard"]


def talk(owner: User, turns: int = 2) -> str:
    session_id = add_session(owner)
    for number in range(turns):
        add_turn(session_id, f"Question {number}")
    return session_id


def cut(session_id: str, after: int) -> None:
    """The end of a session with its rows and its head: as it was once."""
    last = Event.objects.get(session_id=session_id, seq=after)
    plain(Event).filter(session_id=session_id, seq__gt=after).delete()
    plain(Session).filter(pk=session_id).update(event_seq=after, head_hash=last.hash)


@pytest.mark.both_databases
def test_a_session_that_comes_and_goes_is_told_of(alice: User) -> None:
    session_id = add_session(alice)
    lifecycle.delete_session(session_id, owner_id=alice.pk)
    last = Session.objects.get(pk=session_id).event_seq
    assert told() == [("session.created", session_id, 1), ("session.deleted", session_id, last)]
    body = json.loads(DirectoryEntry.objects.latest("seq").body)
    assert body.keys() == {"session_id", "owner_id", "organisation", "entries", "head", "at", "actor", "v"}
    assert problems() == []


def test_a_session_that_was_taken_away_whole_is_named(alice: User, unguarded: None) -> None:
    session_id, other = talk(alice), talk(alice)
    erase(session_id)
    assert problems() == [(session_id, "missing")]
    assert verify_session(other).ok


def test_an_entry_of_the_directory_that_was_taken_away_too_is_named(alice: User, unguarded: None) -> None:
    session_id = talk(alice)
    talk(alice)
    erase(session_id)
    plain(DirectoryEntry).filter(session_id=session_id).delete()
    assert problems() == [("", "chain")]


def test_an_entry_of_the_directory_that_was_changed_is_named(alice: User, unguarded: None) -> None:
    session_id = talk(alice)
    entry = DirectoryEntry.objects.get()
    for values in (
        {"body": entry.body.replace('"entries":1', '"entries":2')},
        {"body": "[]"},
        {"type": "session.recorded"},
        {"entries": 2},
        {"created_at": timezone.now() + timedelta(days=1)},
        {"session_id": "sess_other"},
    ):
        plain(DirectoryEntry).filter(pk=1).update(**values)
        assert problems(), values
        plain(DirectoryEntry).filter(pk=1).update(
            body=entry.body, type=entry.type, entries=1, created_at=entry.created_at, session_id=session_id
        )
    assert problems() == []


def test_a_session_that_the_directory_does_not_tell_of_is_named(alice: User, unguarded: None) -> None:
    session_id = talk(alice)
    plain(DirectoryEntry).delete()
    assert problems() == [(session_id, "unexplained")]


def test_a_cut_below_what_was_recorded_is_named(alice: User, unguarded: None) -> None:
    session_id = add_session(alice)
    before = Session.objects.get().event_seq
    with change(session_id) as record:
        session_store.update_session(record, title="Tides")
    assert session_store.record_heads() == 1
    plain(Session).update(title="")  # as it was then
    cut(session_id, before)
    assert (session_id, "head") in problems()


def test_hashes_made_anew_are_not_what_was_recorded(alice: User, unguarded: None) -> None:
    session_id = talk(alice)
    session_store.record_heads()
    event = Event.objects.get(session_id=session_id, seq=3)
    plain(Event).filter(pk=event.pk).update(type="session.updated")
    chain_again(session_id, head=True)
    assert (session_id, "head") in problems()


def test_owners_that_were_swapped_are_named(alice: User, unguarded: None) -> None:
    bob = make_user("bob")
    one, other = talk(alice), talk(bob)
    plain(Session).filter(pk=one).update(owner=bob)
    plain(Session).filter(pk=other).update(owner=alice)
    assert {(one, "owner"), (other, "owner")} <= set(problems())
    with pytest.raises(CommandError, match="not as it was written"):
        call_command("verify", one, "--json")


@pytest.mark.both_databases
def test_a_session_that_was_given_to_another_organisation_is_named(alice: User, unguarded: None) -> None:
    session_id = talk(alice)
    plain(Session).update(organisation_id=add_organisation("other").id)
    assert problems() == [(session_id, "owner")]


def test_a_session_of_before_belongs_to_the_sites_own_organisation(alice: User, unguarded: None) -> None:
    session_id = talk(alice)
    body = json.loads(DirectoryEntry.objects.get().body)
    del body["organisation"]
    text = canonical_body(body)
    hash = entry_hash(prev_hash=GENESIS, seq=1, type="session.created", body=text)
    plain(DirectoryEntry).update(body=text, hash=hash)
    assert problems() == []
    plain(Session).update(organisation_id=add_organisation("other").id)
    assert problems() == [(session_id, "owner")]


def test_an_imported_session_is_in_the_importers_organisation_and_no_problem(alice: User) -> None:
    session_id = talk(alice)
    lines = list(export_session(session_id))
    as_if_never_here(session_id)
    other = put_into("other", alice.pk)
    import_sessions(lambda: lines, owner_id=alice.pk)
    assert Session.objects.get().organisation_id == other
    first = json.loads(Event.objects.get(session_id=session_id, seq=1).body)
    assert first["organisation"] == default_id()
    report = verify_all(jobs=1)
    assert (report.problems, report.moved) == ([], [session_id])
    put_into("default", alice.pk)
    with pytest.raises(DuplicateIDError):
        import_sessions(lambda: lines, owner_id=alice.pk)


def test_an_imported_session_is_the_importers_and_no_problem(alice: User) -> None:
    session_id = talk(alice)
    lines = list(export_session(session_id))
    as_if_never_here(session_id)
    bob = make_user("bob")
    import_sessions(lambda: lines, owner_id=bob.pk)
    assert told()[-1] == ("session.imported", session_id, Session.objects.get(pk=session_id).event_seq)
    report = verify_all(jobs=1)
    assert (report.problems, report.moved) == ([], [session_id])


def test_heads_are_recorded_once_and_only_of_what_went_on(alice: User) -> None:
    one, other = talk(alice), talk(alice)
    assert session_store.record_heads() == 2
    assert session_store.record_heads() == 0
    began = timezone.now()
    add_turn(one, "And then?")
    assert session_store.record_heads(since=began) == 1
    assert told()[-1] == ("session.recorded", one, Session.objects.get(pk=one).event_seq)
    assert problems() == []
    assert Session.objects.get(pk=other).event_seq in [entries for _, id, entries in told() if id == other]


def test_a_process_records_now_and_then(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = session_store.Recorder()
    session_id = talk(alice)
    recorder.look()
    assert [type for type, *_ in told()] == ["session.created"]
    monkeypatch.setattr(session_store, "RECORD_SECONDS", 0)
    recorder.look()
    add_turn(session_id, "And then?")
    recorder.look()
    assert [type for type, *_ in told()] == ["session.created", "session.recorded", "session.recorded"]


def test_a_turn_does_not_write_the_directory(alice: User) -> None:
    session_id = add_session(alice)
    before = told()
    add_turn(session_id, "What about the tides?")
    assert told() == before


@pytest.mark.both_databases
def test_what_is_done_at_the_end_is_done_last_and_not_for_what_was_taken_back() -> None:
    done: list[str] = []

    def fail() -> None:
        with durable_transaction():
            at_end(lambda: done.append("taken back"))
            raise ZeroDivisionError

    with durable_transaction():
        with durable_transaction():
            at_end(lambda: done.append("inner"))
        with pytest.raises(ZeroDivisionError):
            fail()
        done.append("outer")
    at_end(lambda: done.append("at once"))
    assert done == ["outer", "inner", "at once"]


@pytest.mark.slow
@pytest.mark.both_databases
def test_sessions_that_come_and_go_at_once_are_one_chain_and_nobody_waits_for_ever(alice: User) -> None:
    parents = [add_session(alice) for _ in range(4)]

    def work(number: int) -> None:
        try:
            for _ in range(5):
                # As a sub-agent is launched: a session within the change of another one.
                with change(parents[number % 4]) as record:
                    child_id = session_store.create_session(owner=alice, model="demo", parent_id=record.session_id)
                    session_store.update_session(record, title="Tides")
                session_store.record_heads()
                lifecycle.delete_session(child_id, owner_id=alice.pk)
            if number < 4:
                lifecycle.delete_session(parents[number], owner_id=alice.pk)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert [seq for (seq,) in DirectoryEntry.objects.order_by("seq").values_list("seq")] == list(
        range(1, len(told()) + 1)
    )
    assert problems() == []


@pytest.mark.both_databases
def test_a_trigger_that_nobody_declared_is_named(alice: User) -> None:
    sql = "CREATE TRIGGER mine BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END"
    if connection.vendor == "postgresql":
        execute("CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        sql = "CREATE TRIGGER mine BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION mine()"
    execute(sql)
    try:
        [problem] = verify_all(jobs=1).problems
    finally:
        execute(*["DROP FUNCTION mine CASCADE"] if connection.vendor == "postgresql" else ["DROP TRIGGER mine"])
    assert (problem.kind, problem.session) == ("guard", "")
    assert "mine" in problem.detail


@pytest.mark.both_databases
def test_the_directory_is_written_once(alice: User) -> None:
    add_session(alice)
    for statement in ("UPDATE directory_entries SET entries = 7", "DELETE FROM directory_entries"):
        with pytest.raises(IntegrityError), connection.cursor() as cursor:
            cursor.execute(statement)
