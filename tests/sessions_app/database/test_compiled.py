"""Compiled queries find what the ORM's own find, with the same types."""

from __future__ import annotations

from typing import Any

import pytest

from mnesis_core.errors import SessionNotFoundError
from sessions_app.database.tables import CompiledQuery, Param
from sessions_app.models import Session
from sessions_app.record.session_queries import list_sessions, load_session
from tests.support.people.cast import make_user
from tests.support.record.talks import new_session

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]


@pytest.fixture
def alice() -> Any:
    return make_user("alice")


def test_a_session_that_is_read_by_a_compiled_query_is_the_one_of_a_list(alice: Any) -> None:
    session_id = new_session(alice, title="A \N{SNOWMAN}", labels={"team": "a"}, config={"turn": {"max_steps": 3}})
    [listed] = list_sessions(owner_id=alice.pk)
    assert load_session(session_id, owner_id=alice.pk) == listed


def test_a_compiled_query_is_asked_with_other_values_each_time(alice: Any) -> None:
    first, second = new_session(alice), new_session(alice)
    query = CompiledQuery(lambda: Session.objects.filter(id=Param("id"), owner_id=Param("owner")))
    assert query.one(id=first, owner=alice.pk) == Session.objects.get(id=first)
    assert query.one(id=second, owner=alice.pk) == Session.objects.get(id=second)
    assert query.one(id=second, owner=alice.pk + 1) is None


def test_columns_that_are_left_out_are_read_when_they_are_asked_for(alice: Any) -> None:
    session_id = new_session(alice, title="Later")
    query = CompiledQuery(lambda: Session.objects.filter(id=Param("id")).only("model"))
    row = query.one(id=session_id)
    assert row is not None
    assert row.get_deferred_fields() >= {"title"}
    assert row.title == "Later"


def test_another_person_s_session_is_not_found(alice: Any) -> None:
    session_id = new_session(alice)
    with pytest.raises(SessionNotFoundError):
        load_session(session_id, owner_id=alice.pk + 1)
