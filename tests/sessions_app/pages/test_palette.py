"""The palette's sessions: one's own, by title, also archived ones."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mnesis_core.records import SUB_AGENT
from sessions_app.pages.navigation import MOST_FOUND
from sessions_app.record import session_store
from sessions_app.record.change import change
from tests.support.people.cast import make_user, owner, owner_client
from tests.support.record.talks import HOSTILE, new_session

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]

__all__ = ["owner", "owner_client"]


def test_sessions_are_found_by_their_titles(owner: User, owner_client: Client) -> None:
    new_session(owner, title="Harbour works")
    with change(new_session(owner, title="Harbour dues")) as record:
        session_store.archive_session(record)
    new_session(make_user("eve"), title="Harbour of another person")
    new_session(owner, title="Quay")
    session_store.create_session(owner=owner, model="demo", title="Harbour sub-agent", origin=SUB_AGENT)
    found = owner_client.get("/sessions/palette/", {"q": " HARBOUR "}).content.decode()
    assert found.count('role="option"') == 2
    assert "Harbour works" in found
    assert "Harbour dues" in found
    assert "archived" in found


def test_it_opens_with_the_newest_sessions_in_one_query(owner: User, owner_client: Client) -> None:
    for number in range(MOST_FOUND + 2):
        new_session(owner, title=f"Number {number} {HOSTILE}")
    with CaptureQueriesContext(connection) as captured:
        page = owner_client.get("/sessions/palette/").content.decode()
    assert page.count("Number ") == MOST_FOUND
    assert "<script>" not in page
    assert len(captured) == 3  # the sign-in, the person and the list


@pytest.mark.parametrize("query", ["\x00", "%", "_", "\\", "x" * 5_000, "\ud800"])
def test_any_words_are_answered(query: str, owner: User, owner_client: Client) -> None:
    new_session(owner, title="Quay")
    answer = owner_client.get("/sessions/palette/", {"q": query.encode("utf-8", "surrogatepass")})
    assert answer.status_code == 200


def test_it_is_for_people_who_are_signed_in(client: Client) -> None:
    assert client.get("/sessions/palette/").status_code == 302
