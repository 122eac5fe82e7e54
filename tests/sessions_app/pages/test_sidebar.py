"""The sidebar: whose sessions it lists and in which order, page by page, in as many queries however many there are."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit_app.proof.verify import verify_session
from mnesis_core.records import SUB_AGENT, TurnState
from sessions_app.models import Event, Session
from sessions_app.pages.navigation import MOST_PROJECTS, ROWS
from sessions_app.record import project_store, session_store, turn_store
from sessions_app.record.change import change
from tests.support.people.cast import make_user, owner, owner_client

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]

__all__ = ["owner", "owner_client"]


def add(owner: User, title: str, *, hours_ago: float = 0, **more: str) -> str:
    session_id = session_store.create_session(owner=owner, model="demo", title=title, **more)
    Session.objects.filter(id=session_id).update(updated_at=timezone.now() - timedelta(hours=hours_ago))
    return session_id


def pin(session_id: str, pinned: bool = True) -> None:
    with change(session_id) as record:
        session_store.update_session(record, pinned=pinned)


def titles_in(page: str) -> list[str]:
    sidebar = page.partition('id="sidebar-rows"')[2] or page
    return re.findall(r"<bdi>([^<]*)</bdi>", sidebar.partition("</ul>")[0])


def read(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def test_own_sessions_are_listed_by_their_last_activity_under_the_day(owner: User, owner_client: Client) -> None:
    open_id = add(owner, "Open", hours_ago=24 * 3)
    add(owner, "Newest")
    add(owner, "Sub-agent", parent_id=open_id, origin=SUB_AGENT)
    add(make_user("eve"), "Of another person")
    with change(add(owner, "Put away")) as record:
        session_store.archive_session(record)
    page = read(owner_client, f"/sessions/{open_id}/")
    assert titles_in(page) == ["Newest", "Open"]
    assert re.findall(r"<h2>([^<]*)</h2>", page.partition('id="sidebar-rows"')[2])[:2] == ["Today", "Previous 7 days"]
    [current] = re.findall(r'<a class="sidebar-link"[^>]*aria-current="page"', page)
    assert open_id in current


def test_sub_agents_are_below_the_session_that_launched_them(owner: User, owner_client: Client) -> None:
    eve = make_user("eve")
    parent, other = add(owner, "Parent"), add(owner, "Alone")
    child = add(owner, "Child", parent_id=parent, origin=SUB_AGENT)
    add(owner, "Grandchild", parent_id=child, origin=SUB_AGENT)
    add(owner, "Fork", parent_id=other)
    add(owner, "Gone", parent_id=other, origin=SUB_AGENT)
    Session.objects.filter(title="Gone").update(deleted_at=timezone.now())
    theirs = add(eve, "Theirs")
    add(eve, "Secret", parent_id=theirs, origin=SUB_AGENT)
    opener = re.compile(r'data-sub-agents="/sessions/(\w+)/sidebar/"')
    assert opener.findall(read(owner_client, "/sessions/sidebar/")) == [parent]
    below = read(owner_client, f"/sessions/{parent}/sidebar/?current={child}")
    assert (titles_in(below), opener.findall(below)) == (["Child"], [child])
    assert f'href="/sessions/{child}/"' in below
    assert 'aria-current="page"' in below
    assert titles_in(read(owner_client, f"/sessions/{other}/sidebar/")) == []
    assert owner_client.get(f"/sessions/{theirs}/sidebar/").status_code == 404


def test_a_sidebar_without_sessions_says_so_also_when_its_rows_are_drawn_anew(
    owner: User, owner_client: Client
) -> None:
    assert "No sessions yet." in read(owner_client, "/sessions/sidebar/")
    pin(add(owner, "Pinned"))
    assert "No sessions yet." not in read(owner_client, "/sessions/sidebar/")


def test_pinned_sessions_stand_on_top_until_they_are_unpinned_or_archived(owner: User, owner_client: Client) -> None:
    first, second, third = (add(owner, title, hours_ago=24) for title in ("First", "Second", "Third"))
    others = add(make_user("eve"), "Of another person")
    for session_id in (first, third, others, first):  # pinned once more, it keeps its place
        pin(session_id)
    page = read(owner_client, "/sessions/sidebar/")
    assert titles_in(page) == ["Third", "First", "Second"]
    assert re.findall(r"<h2>([^<]*)</h2>", page)[0] == "Pinned"
    assert page.count(" data-pinned") == page.count('aria-pressed="true"') == 2
    states = read(owner_client, f"/sessions/sidebar/states/?id={second}")
    assert f'data-pinned="{third} {first} "' in states
    pin(third, pinned=False)
    with change(first) as record:
        session_store.archive_session(record)
    assert titles_in(read(owner_client, "/sessions/sidebar/")) == ["Third", "Second"]


def test_a_pin_is_in_the_record(owner: User) -> None:
    session_id = add(owner, "Kept")
    for pinned in (True, True, False):
        pin(session_id, pinned)
    entries = Event.objects.filter(session_id=session_id, type="session.updated")
    assert [json.loads(entry.body)["fields"] for entry in entries] == [["pinned_at"]] * 2
    assert not verify_session(session_id).problems
    Session.objects.filter(id=session_id).update(pinned_at=timezone.now())
    assert verify_session(session_id).problems


def test_a_program_pins_and_finds_pinned_sessions(owner: User, owner_client: Client) -> None:
    pinned, other = add(owner, "Pinned"), add(owner, "Other")
    path = f"/api/sessions/{pinned}"
    answer = owner_client.patch(path, {"pinned": True}, content_type="application/json")
    assert (answer.status_code, answer.json()["pinned"]) == (200, True)
    for asked, found in (("true", [pinned]), ("false", [other])):
        items = owner_client.get("/api/sessions", {"pinned": asked}).json()["items"]
        assert [item["id"] for item in items] == found
    assert owner_client.patch(path, {"pinned": "yes"}, content_type="application/json").status_code == 422
    assert owner_client.patch(path, {"title": "Still"}, content_type="application/json").json()["pinned"] is True
    theirs = add(make_user("eve"), "Of another person")
    answer = owner_client.patch(f"/api/sessions/{theirs}", {"pinned": True}, content_type="application/json")
    assert answer.status_code == 404


def test_more_rows_follow_without_repeating_a_heading(owner: User, owner_client: Client) -> None:
    for number in range(2 * ROWS + 3):
        add(owner, f"{number}", hours_ago=24 * 400 + number / 100)
    first = read(owner_client, "/sessions/sidebar/?current=x%22%3E")
    assert titles_in(first) == [f"{number}" for number in range(ROWS)]
    [cursor] = re.findall(r'data-cursor="([^"]*)"', first)
    rest = owner_client.get("/sessions/sidebar/", {"cursor": cursor, "pages": "2"}).content.decode()
    assert titles_in(rest) == [f"{number}" for number in range(ROWS, 2 * ROWS + 3)]
    assert "<h2>" not in rest
    assert "data-cursor" not in rest


def test_states_are_those_of_own_sessions(owner: User, owner_client: Client) -> None:
    runs, waits, idle = (add(owner, title) for title in ("Runs", "Waits", "Idle"))
    for session_id, state in ((runs, None), (waits, TurnState.SUSPENDED)):
        with change(session_id) as record:
            turn_id = turn_store.start_turn(record, model="demo")
        if state:
            Session.objects.get(id=session_id).turns.filter(id=turn_id).update(state=state)
    others = add(make_user("eve"), "Of another person")
    found = owner_client.get("/sessions/sidebar/states/", {"id": [runs, waits, idle, others, "none"]}).content.decode()
    assert sorted(titles_in(found)) == ["Idle", "Runs", "Waits"]
    assert found.count("sidebar-running") == found.count("sidebar-waiting") == 1


@pytest.mark.parametrize(
    "cursor", ["x", "~", "9999-12-31T23:59:59-23:59~x", "0001-01-01T00:00:00+14:00~x", "9" * 5_000]
)
def test_a_wrong_cursor_is_refused(cursor: str, owner_client: Client) -> None:
    assert owner_client.get("/sessions/sidebar/", {"cursor": cursor}).status_code == 422


@pytest.mark.parametrize("pages", ["0", "-1", "x", "²", "9" * 40, "999"])
def test_any_number_of_pages_is_answered(pages: str, owner: User, owner_client: Client) -> None:
    add(owner, "One")
    assert titles_in(read(owner_client, f"/sessions/sidebar/?pages={pages}")) == ["One"]


def test_it_is_for_people_who_are_signed_in(client: Client) -> None:
    for path in ("/sessions/sidebar/", "/sessions/sidebar/states/"):
        assert client.get(path).status_code == 302
        assert client.get(path, headers={"HX-Request": "true"}).status_code == 401


@pytest.mark.slow
def test_it_takes_as_many_queries_for_any_number_of_sessions(owner: User, owner_client: Client) -> None:
    open_id = add(owner, "Open")
    paths = (
        f"/sessions/{open_id}/",
        f"/sessions/{open_id}/inspect/",
        "/files/",
        f"/sessions/sidebar/states/?id={open_id}",
        "/sessions/sidebar/",
    )

    def counts() -> list[int]:
        found = []
        for path in paths:
            for _ in range(2):  # the first fills what the process keeps
                with CaptureQueriesContext(connection) as captured:
                    read(owner_client, path)
            found.append(len(captured))
        return found

    few = counts()
    for number in range(100):
        pin(add(owner, f"{number}"), number % 2 == 0)
    assert counts() == few
    assert few[-1] == 6  # the sign-in, the person, projects, pinned sessions, the others, and who launched sub-agents


def test_the_newest_projects_stand_on_top_and_lead_to_all_of_them(owner: User, owner_client: Client) -> None:
    for number in range(MOST_PROJECTS):
        project_store.create_project(owner_id=owner.pk, name=f"Project {number}")
    newest = [f"Project {number}" for number in reversed(range(MOST_PROJECTS))]
    page = read(owner_client, "/sessions/sidebar/")
    assert (titles_in(page), "All projects" in page) == (newest, False)
    project_store.create_project(owner_id=owner.pk, name="One more")
    project_store.create_project(owner_id=make_user("eve").pk, name="Of another person")
    page = read(owner_client, "/sessions/sidebar/")
    assert (titles_in(page), "All projects" in page) == (["One more", *newest[:-1]], True)
    everything = read(owner_client, "/projects/").partition("<main")[2]
    assert re.findall(r"<bdi>([^<]*)</bdi>", everything) == ["One more", *newest]
