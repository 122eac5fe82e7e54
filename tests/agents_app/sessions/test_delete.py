"""Sessions that are deleted: out of sight, and all there."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError

from mnesis_core.errors import SessionNotFoundError
from sessions_app.models import Message
from sessions_app.record import turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import list_sessions, load_session
from tests.support.people.cast import make_user
from tests.support.record.talks import exchange, new_session
from tests.support.sites.commands import printed


@pytest.fixture
def alice(db: None) -> User:
    return make_user("alice")


def delete(session_id: str, user: str) -> str:
    return printed("sessions", "delete", session_id, "--user", user, "--json")


def test_a_deleted_session_is_out_of_sight_and_its_rows_stay(alice):
    session_id = new_session(alice)
    exchange(session_id, "a", "b")
    assert json.loads(delete(session_id, "alice")) == {"id": session_id, "state": "deleted"}
    assert list_sessions(owner_id=alice.pk, archived=None) == []
    with pytest.raises(SessionNotFoundError):
        load_session(session_id)
    assert Message.objects.count() == 2
    with pytest.raises(CommandError, match="SESSION_NOT_FOUND"):
        delete(session_id, "alice")


def test_somebody_elses_session_is_not_found_and_a_running_one_is_busy(alice):
    make_user("bob")
    session_id = new_session(alice)
    with pytest.raises(CommandError, match="SESSION_NOT_FOUND"):
        delete(session_id, "bob")
    with change(session_id) as record:
        turn_store.start_turn(record, model="demo")
    with pytest.raises(CommandError, match="SESSION_BUSY"):
        delete(session_id, "alice")
    assert load_session(session_id).state == "running"


def test_a_session_is_deleted_with_all_of_its_sub_agents_or_not_at_all(alice):
    parent_id = new_session(alice)
    free, busy = (new_session(alice, parent_id=parent_id, origin="task") for _ in range(2))
    with change(busy) as record:
        turn_store.start_turn(record, model="demo")
    with pytest.raises(CommandError, match="SESSION_BUSY"):
        delete(parent_id, "alice")
    assert {load_session(id).state for id in (parent_id, free)} == {"idle"}
