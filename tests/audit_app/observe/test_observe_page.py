"""The page Observe: who may see it, what its bar understands, and what its rows lead to."""

from __future__ import annotations

import csv
import io
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.test import Client

from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import SEES_RECORDS
from tests.support.people.cast import ada, inspector, make_user
from tests.support.record.inspected import add_turn
from tests.support.record.talks import HOSTILE, exchange, new_session

pytestmark = pytest.mark.django_db

__all__ = ["ada", "inspector"]


@pytest.fixture
def anna(db: None) -> User:
    return make_user("anna")


def page(client: Client, text: str = "", *, part: bool = False, **others: object) -> str:
    headers = {"HX-Request": "true", "HX-Target": "observed"} if part else {}
    answer = client.get("/observe/", {"q": text} | others, headers=headers)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def permit(user: User, *permissions: str) -> None:
    for permission in permissions:
        app, _, codename = permission.partition(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))


def test_only_staff_who_may_see_every_record_find_it(client: Client, anna: User) -> None:
    paths = ("/observe/", "/observe/rows/", "/observe/numbers/", "/observe/sessions.csv")
    for path in paths:
        assert client.get(path).url.startswith("/sign-in/")  # type: ignore[attr-defined]
    client.force_login(anna)
    assert {client.get(path).status_code for path in paths} == {404}
    anna.is_staff = True
    anna.save()
    permit(anna, *SEES_RECORDS[1:])
    assert client.get("/observe/").status_code == 404
    assert "/observe/" not in client.get("/").content.decode()
    permit(anna, SEES_RECORDS[0])
    assert client.get("/observe/").status_code == 200
    assert "/observe/" in client.get("/").content.decode()
    assert "/observe/" in client.get("/sessions/palette/").content.decode()
    assert client.post("/observe/").status_code == 405


def test_it_lists_everybodys_sessions_and_leads_to_their_inspector(inspector: Client, anna: User) -> None:
    assert "There are no sessions yet." in page(inspector)
    session = new_session(anna, title=HOSTILE)
    add_turn(session, "Good morning")
    shown = page(inspector)
    assert f'href="/sessions/{session}/inspect/"' in shown
    assert inspector.get(f"/sessions/{session}/inspect/").status_code == 200
    assert 'href="/observe/?q=person%3Aanna"' in shown
    assert "alert(1)</script>" not in inspector.get("/observe/").content.decode()


def test_a_value_of_a_row_adds_its_term_and_a_term_takes_itself_away(inspector: Client, anna: User) -> None:
    new_session(anna, title="one")
    new_session(make_user("ben"), title="two")
    shown = page(inspector, "person:anna -title:x", column=["person", "model"])
    assert ">one<" in shown
    assert ">two<" not in shown
    chosen = "&column=person&column=model"
    assert f"/observe/?{urlencode({'q': 'person:anna -title:x model:demo'})}{chosen}" in shown
    assert f"/observe/?{urlencode({'q': '-title:x'})}{chosen}" in shown
    assert "No sessions match all of these terms." in page(inspector, "person:carla")


def test_columns_are_chosen_in_the_address(inspector: Client, anna: User) -> None:
    new_session(anna)
    assert 'data-name="Tokens"' in page(inspector)
    shown = page(inspector, column=["id", "nosuch"])
    assert 'data-name="Id"' in shown
    assert 'data-name="Tokens"' not in shown
    assert 'data-name="Tokens"' in page(inspector, column=["nosuch", "\0"])


def test_a_mistake_is_said_beside_the_bar_and_leaves_the_rest(inspector: Client, anna: User) -> None:
    new_session(anna, title="one")
    shown = page(inspector, "modell:x")
    assert "“modell:x” is not a known field. Fields: person, group," in shown
    assert ">one<" not in shown
    answer = inspector.get("/observe/", {"q": "modell:x"}, headers={"HX-Target": "observed"})
    assert answer.headers["HX-Retarget"] == "#observe-problem"
    assert "HX-Push-Url" not in answer.headers
    assert b"<table" not in answer.content
    corrected = inspector.get("/observe/", {"q": "model:x"}, headers={"HX-Target": "observed"})
    assert corrected.headers["HX-Push-Url"] == "/observe/?q=model%3Ax"
    assert b'hx-swap-oob="true"' in corrected.content


def test_hostile_queries_are_answered(inspector: Client, anna: User, subtests: pytest.Subtests) -> None:
    new_session(anna, title="one")
    for text in (
        "\0",
        "model:\0",
        "person:\u202ex",
        HOSTILE.encode("utf-8", "replace").decode(),
        "x" * 10_000,
        '"',
        "-",
        "is:",
    ):
        with subtests.test(text[:20]):
            for path in ("/observe/", "/observe/rows/"):
                answer = inspector.get(path, {"q": text})
                assert answer.status_code in (200, 422), answer.content
                assert b"<script>alert" not in answer.content
    assert inspector.get("/observe/rows/", {"cursor": "nowhere"}).status_code == 422


def test_rows_go_on_after_a_page(inspector: Client, anna: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit_app.observe.views.PAGE", 2)
    for number in range(5):
        exchange(new_session(anna, title=f"talk {number}"), "Hello", "Good morning")
    shown, seen = page(inspector, "person:anna"), []
    while True:
        seen += [number for number in range(5) if f">talk {number}<" in shown]
        if '"cursor": "' not in shown:
            break
        cursor = shown.partition('"cursor": "')[2].partition('"')[0]
        answer = inspector.get("/observe/rows/", {"q": "person:anna", "cursor": cursor})
        shown = unescape(answer.content.decode())
    assert sorted(seen) == [0, 1, 2, 3, 4]


@pytest.mark.django_db(transaction=True)
def test_all_that_is_found_is_exported_as_csv(inspector: Client, anna: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit_app.observe.views.EXPORTED_AT_ONCE", 2)
    titles = ["=SUM(A1)", "+1", "-1", "@x", "\tx", 'a "quoted", title', "a\nb", HOSTILE]
    for title in titles:
        add_turn(new_session(anna, title=title), "Hello")
    new_session(make_user("ben"), title="another")
    answer = inspector.get("/observe/sessions.csv", {"q": "person:anna"})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(content_of(answer), newline="")))
    assert [row["title"] for row in rows][::-1] == [
        *("'=SUM(A1)", "'+1", "'-1", "'@x", "'\tx", 'a "quoted", title', "a\nb", show_invisible(HOSTILE))
    ]
    assert {row["person"] for row in rows} == {"anna"}
    assert rows[0]["calls"] == "1"
    assert rows[0]["active"].endswith("Z")
    assert inspector.get("/observe/sessions.csv", {"q": "modell:x"}).status_code == 422
    assert len(content_of(inspector.get("/observe/sessions.csv", {"q": "nothing"})).splitlines()) == 1


def content_of(answer: Any) -> str:
    async def read() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(read)().decode()


def test_charts_come_after_the_list(inspector: Client, anna: User) -> None:
    add_turn(new_session(anna), "Hello")
    assert 'hx-get="/observe/numbers/?q=person%3Aanna"' in page(inspector, "person:anna")
    charts = inspector.get("/observe/numbers/", {"q": "person:anna after:1d"}).content.decode()
    for name in ("Sessions", "Calls", "Errors", "Latency", "First token", "Tokens", "Cost", "Compactions"):
        assert f"<strong>{name}</strong>" in charts
    assert "1 in total" in charts
    assert "by hour (UTC)" in charts
    for text in ("person:nobody", "after:2026-11-19 before:2026-11-10", "after:2001-01-01"):
        assert inspector.get("/observe/numbers/", {"q": text}).status_code == 200
    assert inspector.get("/observe/numbers/", {"q": "modell:x"}).status_code == 422


def test_how_a_session_began_is_said_in_the_readers_language(inspector: Client, anna: User) -> None:
    for origin in ("task", "import:chatgpt", "responses"):
        new_session(anna, origin=origin)
    asked = {"column": ["person", "origin"]}
    english = page(inspector, **asked)
    assert ">task<" in english
    assert ">import:chatgpt<" in english
    answer = inspector.get("/observe/", asked, headers={"Accept-Language": "de"})
    german = unescape(answer.content.decode())
    for said in (">Aufgabe<", ">Import: chatgpt<", ">responses<", "Nur origin:task", "Nur origin:import:chatgpt"):
        assert said in german
    assert ">task<" not in german
