"""Unread sessions: those in which a turn has ended since their owner looked."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from mnesis_core.records import TurnState
from sessions_app.models import Event
from sessions_app.record import turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_session
from tests.support.record.talks import exchange, new_session

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def session_id(alice: User, client: Client) -> str:
    client.force_login(alice)
    return new_session(alice)


def see(client: Client, session_id: str) -> bool:
    answer = client.post(f"/api/sessions/{session_id}/seen")
    assert answer.status_code == 200, answer.content
    return bool(answer.json()["unread"])


def is_unread(client: Client, session_id: str) -> bool:
    [item] = client.get("/api/sessions").json()["items"]
    assert item["unread"] == client.get(f"/api/sessions/{session_id}").json()["unread"]
    return bool(item["unread"])


def test_a_turn_that_ends_after_the_owner_looked_makes_a_session_unread(client: Client, session_id: str) -> None:
    exchange(session_id, "Before anyone looked.", "Yes.")
    assert not is_unread(client, session_id)  # a program's sessions are not all unread
    assert not see(client, session_id)
    exchange(session_id, "And now?", "Something new.")
    assert is_unread(client, session_id)
    assert not see(client, session_id)
    assert not is_unread(client, session_id)


def test_a_running_turn_is_not_seen_before_it_ends(client: Client, session_id: str) -> None:
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
    see(client, session_id)
    assert not is_unread(client, session_id)
    with change(session_id) as record:
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    assert is_unread(client, session_id)


def test_what_was_seen_is_no_part_of_the_record_and_never_less(
    client: Client, session_id: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    exchange(session_id, "One.", "Two.")
    before = Event.objects.count()
    see(client, session_id)
    assert Event.objects.count() == before
    assert load_session(session_id).seen_turn == 1
    with django_assert_num_queries(4):
        see(client, session_id)


def test_another_persons_session_is_not_found(client: Client, session_id: str, bob: User) -> None:
    see(client, session_id)
    client.force_login(bob)
    assert client.post(f"/api/sessions/{session_id}/seen").status_code == 404
