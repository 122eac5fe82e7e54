"""The actor of a change: read once, named in each entry, never missing; and the pseudonyms of accounts."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from mnesis_core.actor import Actor, ActorKind
from mnesis_core.errors import ImmutableFieldError
from sessions_app.models import Event, Person, Turn
from sessions_app.record import organisation_store, session_store
from sessions_app.record.actor import acting_as, context_of, current_actor, current_request, identified_as, serving
from sessions_app.record.change import change
from sessions_app.record.organisation_store import names_of, ref_of
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.cast import make_user
from tests.support.record.talks import exchange, new_session

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
ADA = Actor(kind=ActorKind.USER, ref="ada", via="page", request="req_1")


@pytest.fixture
def ada() -> User:
    return make_user("ada")


def told(session_id: str) -> list[dict[str, str]]:
    return [json.loads(event.body)["actor"] for event in Event.objects.filter(session_id=session_id).order_by("seq")]


def test_every_entry_of_a_change_names_its_actor_and_the_turn_keeps_it(ada: User) -> None:
    session_id = new_session(ada)
    with acting_as(ADA):
        exchange(session_id, "How high is the tide?", "Four metres.")
    first, *rest = told(session_id)
    assert first == {"kind": "system"}
    assert rest == [json.loads(ADA.text)] * len(rest)
    assert Turn.objects.get(session_id=session_id).actor == ADA.text


def test_what_nobody_asked_for_says_so_within_a_persons_change(ada: User) -> None:
    session_id = new_session(ada)
    with acting_as(ADA), change(session_id) as record:
        with record.unasked():
            session_store.update_session(record, title="Tides")
        session_store.update_session(record, title="Ebb")
    assert told(session_id)[1:] == [{"kind": "system", "for": "ada", "request": "req_1"}, json.loads(ADA.text)]


def test_an_endpoint_that_names_nobody_is_an_error_in_tests(ada: User) -> None:
    session_id = new_session(ada)
    with serving(via="api", request="req_7"), pytest.raises(RuntimeError, match="nobody acts here"), change(session_id):
        pass
    context = context_of(Actor())
    with pytest.raises(RuntimeError, match="nobody acts here"):
        context.run(current_actor)


def test_on_a_site_it_is_the_systems_and_nothing_is_lost(ada: User, settings: Settings) -> None:
    settings.MNESIS = settings.MNESIS | {"REQUIRE_ACTOR": False}
    session_id = new_session(ada)
    with serving(via="api", request="req_7"), change(session_id) as record:
        session_store.update_session(record, title="Tides")
    assert told(session_id)[-1] == {"kind": "system", "via": "api", "request": "req_7"}


def test_who_asks_is_found_out_when_it_is_needed_and_once(ada: User) -> None:
    asked: list[None] = []

    def who() -> Actor:
        asked.append(None)
        return Actor(kind=ActorKind.USER, ref="ada") if len(asked) > 1 else Actor()

    with serving(via="page", request="req_1", who=who):
        assert current_request() == "req_1"
        assert not asked
        with pytest.raises(RuntimeError):  # not signed in yet
            current_actor()
        assert current_actor() == current_actor() == ADA
        assert len(asked) == 2
        with identified_as(Actor(kind=ActorKind.KEY, ref="0123ab", for_ref="ada")):
            assert current_actor() == Actor(kind="key", ref="0123ab", for_ref="ada", via="page", request="req_1")
        assert current_actor() == ADA
    with identified_as(Actor(kind=ActorKind.COMMAND, ref="rpc")):
        assert current_request().startswith("req_")


def test_an_account_has_one_pseudonym_that_says_nothing_of_it(ada: User) -> None:
    ref = ref_of(ada.pk)
    assert len(ref) == 22
    assert Person.objects.get().user_id == ada.pk
    bob = make_user("bob")
    assert names_of([ref, ref_of(bob.pk), "nobody"]) == {ref: "ada", ref_of(bob.pk): "bob"}
    ada.email = "ada@example.org"
    ada.save()
    organisation_store._refs.clear()
    assert ref_of(ada.pk) == ref


def test_it_is_read_once(ada: User) -> None:
    with CaptureQueriesContext(
        connection,
    ) as first:
        ref_of(ada.pk)
    with CaptureQueriesContext(connection) as second:
        ref_of(ada.pk)
    assert (len(first), len(second)) == (1, 0)


def test_an_account_that_was_made_past_us_gets_one_when_it_is_needed(ada: User) -> None:
    [bob] = User.objects.bulk_create([User(username="bob")])
    assert not Person.objects.filter(user_id=bob.pk).exists()

    with transaction.atomic():
        gone = ref_of(bob.pk)
        transaction.set_rollback(True)
    assert ref_of(bob.pk) != gone
    assert ref_of(bob.pk) == Person.objects.get(user_id=bob.pk).ref


def test_processes_that_need_it_at_once_get_the_same_one() -> None:
    [bob] = User.objects.bulk_create([User(username="bob")])
    together = threading.Barrier(4)

    def need(_: int) -> str:
        together.wait(30)
        organisation_store._refs.clear()
        try:
            return ref_of(bob.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert len({*threads.map(need, range(4))}) == 1


def test_a_pseudonym_never_changes_hands(ada: User) -> None:
    bob = make_user("bob")
    rows: Any = Person.objects.filter(user_id=ada.pk)
    with pytest.raises(ImmutableFieldError):
        rows.update(user_id=bob.pk)
    for refused in (lambda: plain(Person).update(user_id=0), lambda: plain(Person).all()._raw_delete("default")):
        with pytest.raises(DatabaseError), transaction.atomic():
            refused()


def test_it_outlasts_its_account(ada: User) -> None:
    ref = ref_of(ada.pk)
    ada.delete()
    assert Person.objects.get().ref == ref
    assert names_of([ref]) == {}
