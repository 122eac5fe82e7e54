"""Every look of staff at somebody else's session passes one place: with that closed, no address shows anything of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.http import Http404
from django.test import Client
from django.urls import reverse

from mnesis_core.errors import SessionNotFoundError
from sessions_app.admin.read_only import ReadOnlyAdmin
from sessions_app.pages.permissions import look_at, look_over
from tests.mnesis_site.people.test_organisations import addresses, ids_of, shown
from tests.support.record.belongings import SECRET, Person, Things, belongings, person

pytestmark = pytest.mark.django_db


def close(request: Any, session_id: str, *, may_look: bool) -> None:
    raise SessionNotFoundError(session_id=session_id)


def close_lists(request: Any, *, may_look: bool) -> None:
    raise Http404


@pytest.fixture
def alice() -> Person:
    return person("alice")


@pytest.fixture
def things(alice: Person) -> Things:
    return belongings(alice)


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"Host": "localhost"})
    client.force_login(get_user_model().objects.create_superuser("carol"))
    return client


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What closes the place, for all that import it."""

    def act() -> None:
        for place, closed in ((look_at, close), (look_over, close_lists)):
            monkeypatch.setattr(place, "__code__", closed.__code__)

    return act


def administration() -> list[str]:
    """The pages of every row of a session, their long texts, and the pages about a session as a whole."""
    found = []
    for model, pages in admin.site._registry.items():
        if isinstance(pages, ReadOnlyAdmin) and {"session", "run"} & {field.name for field in model._meta.fields}:
            name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
            found.append(reverse(f"{name}_changelist"))
            for row in model._default_manager.all()[:5]:
                found.append(reverse(f"{name}_change", args=[quote(row.pk)]))
                found += [reverse(f"{name}_text", args=[quote(row.pk), text.name]) for text in pages.texts]
    return found


@pytest.mark.slow
def test_no_page_shows_a_session_of_somebody_else_past_the_place(
    alice: Person, things: Things, staff: Client, closing: Callable[[], None]
) -> None:
    site = [path for path in addresses(ids_of(alice, things)) if not path.startswith("/api/")]
    about = [reverse("admin:inspect_context", args=[alice.session_id]), "/usage/?person=alice", "/observe/"]
    about += [reverse("admin:inspect_payload_file", args=[things.call])]
    asked = [*site, *administration(), *about]
    open_ones = [path for path in asked if staff.get(path).status_code == 200]
    assert len([path for path in open_ones if path.startswith("/admin/")]) > 40
    assert len([path for path in open_ones if path.startswith("/sessions/")]) > 25
    closing()
    for path in open_ones:
        answer = staff.get(path)
        assert answer.status_code == 404, path
        assert SECRET.encode() not in shown(answer), path
