"""Saved views of Observe: whose they are, what a name may be, and the links and forms of the page."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from audit_app.models import SavedView
from audit_app.observe import saved_view_store
from audit_app.observe.saved_view_store import SavedViewRecord, list_views, load_view
from mnesis_core.errors import InvalidRequest, SavedViewNameTaken, SavedViewNotFoundError
from tests.support.people.cast import ada, inspector, make_user
from tests.support.record.talks import HOSTILE, new_session

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}

__all__ = ["ada", "inspector"]


@pytest.fixture
def ben(db: None) -> User:
    return make_user("ben")


def save(owner: User, name: str = "Failures", *, query: str = "error:*", **more: Any) -> SavedViewRecord:
    return saved_view_store.save_view(owner_id=owner.pk, name=name, query=query, **{"columns": (), **more})


def names(owner: User) -> list[str]:
    return [view.name for view in list_views(owner_id=owner.pk)]


def page(client: Client, **asked: object) -> str:
    answer = client.get("/observe/", asked)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def test_a_view_is_private(ada: User, ben: User) -> None:
    view = save(ada)
    assert names(ben) == []
    for act in (
        lambda: load_view(view.id, owner_id=ben.pk),
        lambda: saved_view_store.rename_view(view.id, owner_id=ben.pk, name="Mine"),
        lambda: saved_view_store.delete_view(view.id, owner_id=ben.pk),
    ):
        with pytest.raises(SavedViewNotFoundError):
            act()
    assert list_views(owner_id=ada.pk) == [view]


def test_a_name_is_one_persons_once_and_replaced_only_on_demand(ada: User, ben: User) -> None:
    view, other = save(ada), save(ada, "Other")
    save(ben)
    with pytest.raises(SavedViewNameTaken):
        save(ada, " Failures ", query="model:x")
    with pytest.raises(SavedViewNameTaken):
        saved_view_store.rename_view(other.id, owner_id=ada.pk, name="Failures")
    assert load_view(view.id, owner_id=ada.pk) == view
    replaced = save(ada, query="model:x", columns=("model",), may_replace=True)
    assert replaced == SavedViewRecord(id=view.id, name="Failures", query="model:x", columns=["model"])
    assert saved_view_store.rename_view(view.id, owner_id=ada.pk, name="Failures") == replaced
    saved_view_store.rename_view(view.id, owner_id=ada.pk, name="failures of today")
    assert names(ada) == ["failures of today", "Other"]
    saved_view_store.delete_view(view.id, owner_id=ada.pk)
    assert (names(ada), names(ben)) == (["Other"], ["Failures"])


def test_what_is_no_view_is_refused(ada: User, subtests: pytest.Subtests) -> None:
    view = save(ada)
    for name in ("", " \n", "x" * 101, "x" * 10_000, "\0" * 100):
        with subtests.test(ascii(name)[:40]):
            with pytest.raises(InvalidRequest):
                save(ada, name)
            with pytest.raises(InvalidRequest):
                saved_view_store.rename_view(view.id, owner_id=ada.pk, name=name)
    for query in ("modell:x", "x" * 10_000):
        with subtests.test(query[:40]), pytest.raises(InvalidRequest):
            save(ada, "Other", query=query)
    assert list_views(owner_id=ada.pk) == [view]


def test_hostile_names_and_queries_are_kept_as_they_are(ada: User) -> None:
    for name in ("\0 \ud800 \u202eevil", "x" * 100, "🦊" * 100):
        assert save(ada, name, query='"\0 x\u202e"').name == name
    assert {view.query for view in list_views(owner_id=ada.pk)} == {'"\0 x\u202e"'}


def test_one_person_saves_so_many(ada: User, ben: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_view_store, "MOST_VIEWS", 2)
    save(ada, "1")
    save(ada, "2")
    with pytest.raises(InvalidRequest, match="2 views"):
        save(ada, "3")
    save(ada, "2", query="model:x", may_replace=True)
    save(ben, "3")
    assert names(ada) == ["1", "2"]


def test_the_page_links_to_the_views_and_takes_one_query_for_any_number(inspector: Client, ada: User) -> None:
    assert "Save this view…" in page(inspector)
    counts = []
    for number in range(10):
        save(ada, f"View {number}", query=f"title:{number}", columns=("person", "id"))
        with CaptureQueriesContext(connection) as captured:
            shown = page(inspector, q="title:0", column=["id", "person"])
        counts.append(len(captured))
    assert len(set(counts)) == 1
    assert shown.count('href="/observe/?q=title%3A3&column=person&column=id"') == 2  # in a menu too
    assert shown.count('href="/observe/?q=title%3A9&column=person&column=id"') == 1
    assert shown.count('aria-current="page"') == 2
    assert "Rename or delete…" in shown
    assert "Save this view…" not in shown


def test_another_persons_views_are_not_on_the_page(inspector: Client, ben: User) -> None:
    view = save(ben, "Of Ben")
    assert "Of Ben" not in page(inspector, q="error:*")
    for act, fields in (("name", {"name": "Mine"}), ("delete", {})):
        assert inspector.post(f"/observe/views/{view.id}/{act}/", fields).status_code == 404
    assert names(ben) == ["Of Ben"]


def test_the_form_saves_what_the_address_asks_for(inspector: Client, ada: User) -> None:
    form = {"name": "Failures", "q": " error:* ", "column": ["model", "nosuch", "person"]}
    answer = inspector.post("/observe/views/", form, headers=HTMX)
    assert (answer.status_code, answer.headers["HX-Redirect"]) == (
        204,
        "/observe/?q=error%3A%2A&column=person&column=model",
    )
    refused = unescape(inspector.post("/observe/views/", form | {"q": "model:x"}, headers=HTMX).content.decode())
    assert "SAVED_VIEW_NAME_TAKEN" in refused
    assert 'name="q" value="model:x"' in refused
    assert "Replace the saved view" in refused
    assert inspector.post("/observe/views/", form | {"q": "model:x"}).status_code == 409
    assert inspector.post("/observe/views/", form | {"q": "model:x", "replace": "yes"}).status_code == 302
    assert [(view.query, view.columns) for view in list_views(owner_id=ada.pk)] == [("model:x", ["person", "model"])]


def test_the_form_renames_and_deletes(inspector: Client, ada: User) -> None:
    view, other = save(ada), save(ada, "Other")
    renamed = inspector.post(f"/observe/views/{view.id}/name/", {"name": "Errors"}, headers=HTMX)
    assert renamed.headers["HX-Redirect"] == "/observe/?q=error%3A%2A"
    refused = inspector.post(f"/observe/views/{view.id}/name/", {"name": "Other"}, headers=HTMX)
    assert b"SAVED_VIEW_NAME_TAKEN" in refused.content
    assert inspector.post(f"/observe/views/{view.id}/delete/", headers=HTMX).headers["HX-Refresh"] == "true"
    assert inspector.post(f"/observe/views/{other.id}/delete/").url == "/observe/"  # type: ignore[attr-defined]
    assert names(ada) == []


def test_only_who_sees_the_page_saves_views(client: Client, ada: User, ben: User) -> None:
    view = save(ben)
    paths = ("/observe/views/", f"/observe/views/{view.id}/name/", f"/observe/views/{view.id}/delete/")
    for path in paths:
        assert client.post(path).url == "/sign-in/?next=/"  # type: ignore[attr-defined]
    client.force_login(ben)
    assert {client.post(path, {"name": "x"}).status_code for path in paths} == {404}
    client.force_login(ada)
    assert {client.get(path).status_code for path in paths} == {405}
    assert names(ben) == ["Failures"]


def test_hostile_forms_are_answered(inspector: Client, subtests: pytest.Subtests) -> None:
    for value in ("\0", "\u202ex", HOSTILE.encode("utf-8", "replace").decode(), "x" * 10_000, "modell:x", "'\"<b>"):
        for form in ({"name": value}, {"name": "a", "q": value}, {"name": "b", "column": [value] * 50}):
            with subtests.test(str(form)[:40]):
                for headers in ({}, HTMX):
                    answer = inspector.post("/observe/views/", form, headers=headers)
                    assert answer.status_code in (200, 204, 302, 409, 422), answer.content
                    assert b"<script>alert" not in answer.content
    assert inspector.post("/observe/views/\0/name/", {"name": "x"}).status_code == 404
    assert b"<script>alert" not in inspector.get("/observe/").content


def test_a_view_whose_query_means_nothing_any_more_says_so(inspector: Client, ada: User) -> None:
    new_session(ada, title="one")
    view = save(ada)
    # As an earlier version kept it, whose terms and columns were others.
    SavedView.objects.filter(pk=view.id).update(query="modell:x", columns=["nosuch"])
    shown = page(inspector, q="modell:x")
    assert "“modell:x” is not a known field. Fields: person, group," in shown
    assert 'href="/observe/?q=modell%3Ax"' in shown
    assert "Rename or delete…" in shown
    assert "Save this view…" not in page(inspector, q="nosuch:x")
