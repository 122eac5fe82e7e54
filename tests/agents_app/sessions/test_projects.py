"""Projects: what their instructions do to prompts, who may do what, and what becomes of sessions when a member leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from files_app.given_store import MOST_PROJECT_FILES
from files_app.queries import bytes_of_person
from mnesis_core.config import LONGEST_INSTRUCTIONS
from mnesis_core.errors import InvalidRequest, ProjectMemberNotFoundError, ProjectNotFoundError
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import ProjectRecord, SessionRecord
from sessions_app.database.threads import db
from sessions_app.models import Event, LanguageModel
from sessions_app.record import project_store
from sessions_app.record.organisation_store import ref_of
from sessions_app.record.project_store import MOST_MEMBERS, has_left_project, list_members, list_projects, load_project
from sessions_app.record.session_queries import load_session
from tests.support.people.organisations import put_into
from tests.support.people.story import begin, calls_rebuilt, ended, history, say, spoken, tool_call

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def project(alice: User) -> ProjectRecord:
    """A project of Alice's with instructions."""
    return project_store.create_project(owner_id=alice.pk, name="Boats", instructions="Speak of boats.")


@pytest.fixture
def shared(project: ProjectRecord, alice: User, bob: User) -> ProjectRecord:
    """The project, with Bob as a member."""
    return project_store.add_member(project.id, owner_id=alice.pk, name="bob")


def begin_in(project: ProjectRecord, owner: User, **more: Any) -> SessionRecord:
    return lifecycle.create_session(owner=owner, project_id=project.id, **more)


def told(request: Request) -> str:
    """The system prompt of a request; empty if it has none."""
    first = request.payload["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def put(session: SessionRecord, project_id: str) -> SessionRecord:
    return lifecycle.update_session(session.id, owner_id=session.owner_id, project_id=project_id)


async def test_instructions_stand_before_the_sessions_own_from_the_next_turn_on_and_past_prompts_keep_theirs(
    alice: User, project: ProjectRecord, script: Callable[..., ScriptedModel]
) -> None:
    model = script("one", "two", "three", "four", "five")
    session = await db(begin_in, project, alice, system_prompt="Be brief.")
    await say(session, "Go")
    await db(project_store.update_project, project.id, owner_id=alice.pk, instructions="Speak of trains.")
    await say(session, "Go on")
    await db(put, session, "")
    await say(session, "Go on")
    await db(put, session, project.id)
    await say(session, "Go on")
    await db(project_store.delete_project, project.id, owner_id=alice.pk)
    await say(session, "Go on")
    boats, trains = "Speak of boats.\n\nBe brief.", "Speak of trains.\n\nBe brief."
    assert [told(request) for request in model.requests] == [boats, trains, "Be brief.", trains, "Be brief."]
    assert len(await calls_rebuilt(session)) == 5


async def test_a_session_of_a_member_who_left_is_told_nothing_more_by_the_project_not_even_in_the_middle_of_a_turn(
    shared: ProjectRecord, bob: User, script: Callable[..., ScriptedModel]
) -> None:
    gate = asyncio.Event()
    model = script("one", Step(text=("two",), gate=gate, gate_after=0), "three")
    session = await db(begin_in, shared, bob)
    await say(session, "Go")
    turn = await begin(session, "Go on", until=model)
    await db(project_store.leave_project, shared.id, user_id=bob.pk)
    gate.set()
    assert (await ended(turn)).state == "completed"
    await say(session, "Go on")
    assert [told(request) for request in model.requests] == ["Speak of boats.", "Speak of boats.", ""]
    session = await db(load_session, session.id, owner_id=bob.pk)
    assert (session.project_id, await db(has_left_project, session)) == ("", True)
    await calls_rebuilt(session)


async def test_a_project_is_deleted_while_a_session_runs(
    alice: User, project: ProjectRecord, script: Callable[..., ScriptedModel]
) -> None:
    gate = asyncio.Event()
    model = script(Step(text=("one",), gate=gate, gate_after=0))
    session = await db(begin_in, project, alice)
    turn = await begin(session, "Go", until=model)
    await db(project_store.delete_project, project.id, owner_id=alice.pk)
    gate.set()
    assert (await ended(turn)).state == "completed"
    session = await db(load_session, session.id, owner_id=alice.pk)
    assert (session.project_id, await db(has_left_project, session)) == ("", False)
    await calls_rebuilt(session)


def test_each_move_is_an_entry_of_the_ledger_that_says_nothing_of_the_project(
    alice: User, project: ProjectRecord, session: SessionRecord
) -> None:
    assert put(session, project.id).project_id == project.id
    assert put(session, "").project_id == ""
    bodies = list(Event.objects.filter(session_id=session.id, type="session.updated").values_list("body", flat=True))
    assert [json.loads(body)["fields"] for body in bodies] == [["project_id"]] * 2
    assert not any(project.id in body for body in bodies)
    assert verify_session(session.id).ok


def test_a_project_is_not_found_by_people_who_are_not_its_members(
    project: ProjectRecord, alice: User, bob: User, session: SessionRecord
) -> None:
    theirs = lifecycle.create_session(owner=bob)
    for ask in (
        lambda: load_project(project.id, user_id=bob.pk),
        lambda: begin_in(project, bob),
        lambda: put(theirs, project.id),
        lambda: project_store.update_project(project.id, owner_id=bob.pk, name="Mine"),
        lambda: project_store.delete_project(project.id, owner_id=bob.pk),
        lambda: project_store.leave_project(project.id, user_id=bob.pk),
        lambda: project_store.add_member(project.id, owner_id=bob.pk, name="bob"),
        lambda: project_store.remove_member(project.id, ref_of(alice.pk), user_id=bob.pk),
        lambda: load_project("proj_\x00", user_id=alice.pk),
    ):
        with pytest.raises(ProjectNotFoundError):
            ask()
    assert list_projects(user_id=bob.pk) == []
    assert [found.id for found in list_projects(user_id=alice.pk)] == [project.id]


def test_a_person_who_is_moved_to_another_organisation_leaves_the_project_behind(
    shared: ProjectRecord, alice: User, bob: User
) -> None:
    session = begin_in(shared, bob)
    home = put_into("elsewhere", bob.pk)
    assert home
    assert load_session(session.id).project_id == ""
    assert list_projects(user_id=bob.pk) == []
    assert [member.name for member in list_members(shared)] == ["alice"]
    with pytest.raises(InvalidRequest):
        project_store.add_member(shared.id, owner_id=alice.pk, name="bob")
    put_into("default", bob.pk)
    assert load_session(session.id).project_id == shared.id


def test_a_session_that_begins_in_a_project_has_its_model_if_its_owner_may_use_it(
    shared: ProjectRecord, alice: User, bob: User
) -> None:
    model = LanguageModel.objects.create(
        alias="big", litellm_model="demo/big", context_window=9_000, max_output_tokens=1_000
    )
    project_store.update_project(shared.id, owner_id=alice.pk, model="big")
    assert begin_in(shared, bob).model == "big"
    assert begin_in(shared, bob, model="demo").model == "demo"
    LanguageModel.objects.filter(pk=model.pk).update(is_restricted=True)
    assert begin_in(shared, bob).model == "demo"


async def test_a_fork_is_in_the_project_too(
    project: ProjectRecord, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    script("one")
    session = await db(begin_in, project, alice)
    await say(session, "Go")
    [_, answer] = await history(session)
    fork = await db(lifecycle.fork_session, session.id, owner=alice, at_message_id=answer.id)
    assert fork.project_id == project.id


async def test_a_sub_agent_is_in_no_project(
    project: ProjectRecord, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    model = script(tool_call("task", prompt="Count"), "Three.", "It is three.")
    await say(await db(begin_in, project, alice), "Go")
    assert [told(request) == "Speak of boats." for request in model.requests] == [True, False, True]


def test_an_export_names_nothing_of_the_project_but_its_id(project: ProjectRecord, alice: User) -> None:
    session = begin_in(project, alice)
    data = b"".join(export_session(session.id))
    assert (b"boats" in data.lower(), project.id.encode() in data) == (False, True)
    assert verify_session(session.id).ok


@pytest.mark.slow
def test_a_project_has_members_up_to_a_bound_each_once(shared: ProjectRecord, alice: User) -> None:
    project_store.add_member(shared.id, owner_id=alice.pk, name="bob")
    assert [(member.name, member.is_owner) for member in list_members(shared)] == [("alice", True), ("bob", False)]
    for number in range(MOST_MEMBERS - 2):
        get_user_model().objects.create_user(f"member{number}")
        project_store.add_member(shared.id, owner_id=alice.pk, name=f"member{number}")
    get_user_model().objects.create_user("late")
    with pytest.raises(InvalidRequest):
        project_store.add_member(shared.id, owner_id=alice.pk, name="late")


BAD = [
    ({"name": ""}, 422),
    ({"name": " \t\n"}, 422),
    ({"name": "x" * 101}, 422),
    ({"name": "\x00" * 100}, 422),
    ({"name": "x" * 10_000}, 422),
    ({"name": 7}, 422),
    ({"name": "\ud800"}, 422),
    ({}, 422),
    ({"name": "x", "model": "no-such-model"}, 404),
    ({"name": "x", "instructions": "x" * (LONGEST_INSTRUCTIONS + 1)}, 422),
    ({"name": "x", "instructions": ["x"]}, 422),
]


def test_bad_values_are_refused_in_words(alice: User, client: Client, project: ProjectRecord) -> None:
    client.force_login(alice)
    for body, status in BAD:
        for method, path in (("POST", "/api/projects"), ("PATCH", f"/api/projects/{project.id}")):
            if method == "PATCH" and "name" not in body:
                continue
            answer = client.generic(method, path, json.dumps(body), "application/json")
            assert (answer.status_code, bool(answer.json()["error"]["message"])) == (status, True), body
    assert client.get("/api/projects?cursor=%00").status_code == 200
    assert client.get("/api/sessions?project_id=%00").status_code == 404
    assert load_project(project.id, user_id=alice.pk) == project


def test_names_of_any_writing_are_kept_and_shown_with_what_they_hide(alice: User, client: Client) -> None:
    client.force_login(alice)
    name = "ضوء \u202eevil 🌙 <script>alert(1)</script>"
    made = client.post("/api/projects", json.dumps({"name": name}), content_type="application/json")
    assert made.status_code == 201
    for path, edited in (
        (f"/projects/{made.json()['id']}/", 0),
        (f"/projects/{made.json()['id']}/change/", 1),
        ("/projects/", 0),
        ("/sessions/sidebar/", 0),
    ):
        page = client.get(path).content.decode()
        assert "ضوء" in page
        assert page.count("\u202e") == edited  # only in the field in which it can be deleted
        assert "<script>alert" not in page


def test_a_member_sees_the_project_and_changes_nothing_of_it(shared: ProjectRecord, bob: User, client: Client) -> None:
    client.force_login(bob)
    path = f"/api/projects/{shared.id}"
    read = client.get(path).json()
    assert (read["instructions"], read["owner_name"], read["is_owner"]) == ("Speak of boats.", "alice", False)
    [owner, _] = client.get(f"{path}/members").json()["items"]
    for method, more, body in (
        ("PATCH", "", {"name": "Mine"}),
        ("DELETE", "", {}),
        ("POST", "/members", {"name": "bob"}),
        ("DELETE", f"/members/{owner['id']}", {}),
    ):
        answer = client.generic(method, path + more, json.dumps(body), "application/json")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "PROJECT_NOT_YOURS")
    page = client.get(f"/projects/{shared.id}/").content.decode()
    assert "Speak of boats." in page
    assert f"/projects/{shared.id}/change/" not in page
    assert client.post(f"{path}/leave").status_code == 200
    assert client.get(path).status_code == client.get(f"/projects/{shared.id}/").status_code == 404


def test_each_member_sees_their_own_sessions_there_and_no_others(
    shared: ProjectRecord, alice: User, bob: User, client: Client
) -> None:
    theirs, own = begin_in(shared, alice, title="Of Alice"), begin_in(shared, bob, title="Of Bob")
    lifecycle.create_session(owner=bob, title="Elsewhere")
    client.force_login(bob)
    listed = client.get("/api/sessions", {"project_id": shared.id}).json()["items"]
    assert [(item["id"], item["project_id"]) for item in listed] == [(own.id, shared.id)]
    page = client.get(f"/projects/{shared.id}/").content.decode()
    assert ("Of Bob" in page, theirs.id in page) == (True, False)
    assert f'href="/projects/{shared.id}/"' in client.get(f"/sessions/{own.id}/").content.decode()
    project_store.leave_project(shared.id, user_id=bob.pk)
    assert "no longer a member" in client.get(f"/sessions/{own.id}/").content.decode()
    assert client.get("/api/sessions", {"project_id": shared.id}).json()["error"]["code"] == "PROJECT_NOT_FOUND"


def test_an_owner_removes_a_member_and_can_neither_leave_nor_be_removed(
    shared: ProjectRecord, alice: User, bob: User
) -> None:
    with pytest.raises(ProjectMemberNotFoundError):
        project_store.remove_member(shared.id, "nobody", user_id=alice.pk)
    for leave in (
        project_store.leave_project,
        lambda *a, **k: project_store.remove_member(shared.id, ref_of(alice.pk), **k),
    ):
        with pytest.raises(InvalidRequest):
            leave(shared.id, user_id=alice.pk)
    project_store.remove_member(shared.id, ref_of(bob.pk), user_id=alice.pk)
    assert list_projects(user_id=bob.pk) == []


def test_a_session_is_moved_in_a_dialog_that_offers_ones_own_projects(
    shared: ProjectRecord, alice: User, bob: User, client: Client
) -> None:
    project_store.create_project(owner_id=alice.pk, name="Only Alice's")
    session = begin_in(shared, bob)
    client.force_login(bob)
    dialog = client.get(f"/sessions/{session.id}/move/").content.decode()
    assert f'value="{shared.id}" selected' in " ".join(dialog.split())
    assert "Only Alice" not in dialog
    client.force_login(alice)
    assert client.get(f"/sessions/{session.id}/move/").status_code == 404
    assert client.get(f"/sessions/{session.id}/project/").status_code == 404


def add_file(client: Client, project: ProjectRecord, name: str, data: bytes = b"Tides: 4.2 m") -> Any:
    return client.post(f"/api/projects/{project.id}/files", {"file": SimpleUploadedFile(name, data)})


async def test_a_session_gets_the_files_of_its_project_with_its_next_message_and_each_once(
    shared: ProjectRecord, alice: User, bob: User, client: Client, script: Callable[..., ScriptedModel]
) -> None:
    model = script("one", "two", "three", "four")
    await db(client.force_login, alice)
    assert (await db(add_file, client, shared, "tides.txt")).status_code == 201
    session, started = await lifecycle.begin_session(owner=bob, message="Go", project_id=shared.id)
    await ended(started.turn)
    await say(session, "Go on")
    added = await db(add_file, client, shared, "notes.txt", b"Dredge in May")
    await say(session, "Go on")
    await db(client.delete, f"/api/projects/{shared.id}/files/{added.json()['id']}")
    await db(project_store.leave_project, shared.id, user_id=bob.pk)
    await say(session, "Go on")
    said = [spoken(message) + str(message.parts[1:]) for message in (await history(session))[::2]]
    assert [("tides.txt" in text, "notes.txt" in text) for text in said] == [
        (True, False), (False, False), (False, True), (False, False),
    ]  # fmt: skip
    last = json.dumps(model.requests[-1].payload)
    assert ("4.2 m" in last, "Dredge in May" in last) == (True, True)
    await calls_rebuilt(session)


async def test_a_message_that_is_sent_again_with_its_key_is_the_same_although_files_have_come(
    project: ProjectRecord, alice: User, client: Client, script: Callable[..., ScriptedModel]
) -> None:
    script("one")
    session = await db(begin_in, project, alice)
    await db(client.force_login, alice)
    await db(add_file, client, project, "tides.txt")
    asked = {"owner_id": alice.pk, "message": "Go", "idempotency_key": "k"}
    first = await lifecycle.start_turn(session.id, **asked)
    await ended(first.turn)
    await db(add_file, client, project, "notes.txt")
    again = await lifecycle.start_turn(session.id, **asked)
    assert (again.is_new, again.turn.id) == (False, first.turn.id)


def test_files_of_a_project_are_its_members_to_read_and_its_owners_to_change(
    shared: ProjectRecord, alice: User, bob: User, client: Client
) -> None:
    path = f"/api/projects/{shared.id}/files"
    client.force_login(alice)
    first = add_file(client, shared, "a/../tides.txt").json()
    second = add_file(client, shared, "tides.txt", b"Newer").json()
    assert [(file["id"], file["path"]) for file in client.get(path).json()["items"]] == [(second["id"], "tides.txt")]
    assert client.get(f"{path}/{first['id']}/content").json()["error"]["code"] == "FILE_NOT_FOUND"
    assert client.post(path).json()["error"]["details"]["field"] == "file"
    client.force_login(bob)
    content = client.get(f"{path}/{second['id']}/content")
    assert content["Content-Disposition"].startswith("attachment")
    assert "tides.txt" in client.get(f"/projects/{shared.id}/files/").content.decode()
    assert add_file(client, shared, "x.txt").json()["error"]["code"] == "PROJECT_NOT_YOURS"
    assert client.delete(f"{path}/{second['id']}").json()["error"]["code"] == "PROJECT_NOT_YOURS"
    project_store.leave_project(shared.id, user_id=bob.pk)
    for answer in (
        client.get(path),
        client.get(f"{path}/{second['id']}/content"),
        client.get(f"/projects/{shared.id}/files/"),
    ):
        assert answer.status_code == 404
    assert add_file(client, shared, "x.txt").json()["error"]["code"] == "PROJECT_NOT_FOUND"


def test_a_project_has_files_up_to_a_bound_and_they_count_for_its_owner(
    project: ProjectRecord, alice: User, client: Client
) -> None:
    client.force_login(alice)
    for number in range(MOST_PROJECT_FILES):
        assert add_file(client, project, f"{number}.txt", b"same").status_code == 201
    assert add_file(client, project, "one more.txt").status_code == 422
    assert add_file(client, project, "0.txt", b"other").status_code == 201
    assert bytes_of_person(alice.pk) == len(b"same") + len(b"other")
    project_store.delete_project(project.id, owner_id=alice.pk)
    assert bytes_of_person(alice.pk) == 0


async def test_the_search_finds_what_was_said_in_a_project_and_nothing_else(
    shared: ProjectRecord, alice: User, bob: User, client: Client, script: Callable[..., ScriptedModel]
) -> None:
    script("one", "two", "three")
    session = await db(begin_in, shared, bob)
    await say(session, "The lantern is lit")
    await say(await db(lifecycle.create_session, owner=bob), "Another lantern")
    await say(await db(begin_in, shared, alice), "A lantern of Alice")
    await db(client.force_login, bob)
    for mode in ("text", "ranked"):
        found = (await db(client.get, "/api/search", {"q": "lantern", "mode": mode, "project_id": shared.id})).json()
        assert {hit["session_id"] for hit in found["items"]} == {session.id}
    page = (
        await db(client.get, "/search/", {"q": "lantern", "project": shared.id}, headers={"HX-Request": "true"})
    ).content.decode()
    assert ("is lit" in page, "Another" in page, "of Alice" in page) == (True, False, False)
    await db(project_store.leave_project, shared.id, user_id=bob.pk)
    for path, name in (("/api/search", "project_id"), ("/search/", "project")):
        assert (await db(client.get, path, {"q": "lantern", name: shared.id})).status_code == 404
