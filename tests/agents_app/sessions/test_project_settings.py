"""What a project configures of sessions that begin in it, who says so, and what of it is gone or not permitted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from agents_app.turns import defaults, lifecycle
from audit_app.proof.verify import verify_session
from files_app.queries import find_file_by_path, list_files
from mnesis_core.errors import InvalidRequest, ProjectNotFoundError, ProjectNotYours
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import ProjectRecord, SessionRecord
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.models import LanguageModel
from sessions_app.record import project_store
from sessions_app.record.project_store import load_project
from sessions_app.record.session_queries import load_session
from tests.support.people.organisations import put_into
from tests.support.people.story import history, say

pytestmark = pytest.mark.django_db(transaction=True)

CONFIG = {
    "parameters": {"effort": "low", "temperature": 0.5},
    "turn": {"tools": ["calculator"], "max_steps": 9},
    "limits": {"session": {"tokens": 90_000}},
}


@pytest.fixture
def project(alice: User) -> ProjectRecord:
    """A project of Alice's with settings."""
    return defaults.create_project(owner_id=alice.pk, name="Boats", config=CONFIG)


@pytest.fixture
def shared(project: ProjectRecord, alice: User, bob: User) -> ProjectRecord:
    """The project, with Bob as a member."""
    return project_store.add_member(project.id, owner_id=alice.pk, name="bob")


@pytest.fixture
def site(settings: Any, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Change the configuration of the site."""

    def configure(text: str) -> None:
        file = tmp_path / "config.toml"
        file.write_text(text)
        settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
        site_config.cache_clear()

    yield configure
    site_config.cache_clear()


def begin_in(project: ProjectRecord, owner: User, **more: Any) -> SessionRecord:
    return lifecycle.create_session(owner=owner, project_id=project.id, **more)


def change(project: ProjectRecord, owner: User, **values: Any) -> ProjectRecord:
    return defaults.update_project(project.id, owner_id=owner.pk, **values)


async def test_a_session_that_begins_in_a_project_is_asked_as_the_project_says(
    shared: ProjectRecord, bob: User, script: Callable[..., ScriptedModel]
) -> None:
    model = script("one")
    session = await db(begin_in, shared, bob)
    await say(session, "Go")
    [request] = model.requests
    assert [tool["function"]["name"] for tool in request.payload["tools"]] == ["calculator"]
    assert request.payload["temperature"] == 0.5
    assert session.config == CONFIG
    assert (await db(verify_session, session.id)).ok


def test_a_session_keeps_what_it_began_with(project: ProjectRecord, alice: User) -> None:
    began, outside = begin_in(project, alice), lifecycle.create_session(owner=alice)
    assert change(project, alice, config={"max_output_tokens": 50}).config == {"max_output_tokens": 50}
    moved = lifecycle.update_session(outside.id, owner_id=alice.pk, project_id=project.id)
    assert (moved.config, moved.model) == (outside.config, outside.model)
    out = lifecycle.update_session(began.id, owner_id=alice.pk, project_id="")
    project_store.delete_project(project.id, owner_id=alice.pk)
    assert out.config == load_session(began.id).config == CONFIG


async def test_a_fork_keeps_the_settings_of_its_original(
    project: ProjectRecord, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    script("one")
    session = await db(begin_in, project, alice)
    await say(session, "Go")
    await db(change, project, alice, config={})
    [_, answer] = await history(session)
    fork = await db(lifecycle.fork_session, session.id, owner=alice, at_message_id=answer.id)
    assert fork.config == CONFIG


def test_an_assistant_stands_above_the_project_and_what_a_session_names_above_both(
    project: ProjectRecord, alice: User
) -> None:
    said = {"parameters": {"effort": "high"}, "turn": {"tools": ["task"]}}
    assistant = defaults.create_assistant(owner_id=alice.pk, name="Pilot", config=said)
    config = {"turn": {"max_steps": 3}}
    session = begin_in(project, alice, assistant_id=assistant.id, config=config)
    assert session.config == {
        "parameters": {"effort": "high", "temperature": 0.5},
        "turn": {"tools": ["task"], "max_steps": 3},
        "limits": {"session": {"tokens": 90_000}},
    }
    assert config == {"turn": {"max_steps": 3}}


def test_its_page_offers_the_assistants_of_the_reader(
    shared: ProjectRecord, alice: User, bob: User, client: Client
) -> None:
    for name, people in (("Pilot", ["bob"]), ("Stoker", [])):
        defaults.create_assistant(owner_id=alice.pk, name=name, people=people)
    offered = {}
    for reader in (alice, bob):
        client.force_login(reader)
        page = client.get(f"/projects/{shared.id}/").content.decode()
        offered[reader.username] = [name in page for name in ("Pilot", "Stoker")]
    assert offered == {"alice": [True, True], "bob": [True, False]}


@pytest.mark.slow
async def test_a_session_in_a_project_with_an_assistant_has_the_instructions_and_files_of_both(
    project: ProjectRecord, alice: User, client: Client, script: Callable[..., ScriptedModel]
) -> None:
    model = script("one")
    await db(change, project, alice, instructions="Speak of boats.")
    assistant = await db(
        defaults.create_assistant,
        owner_id=alice.pk,
        name="Pilot",
        instructions="Be dry.",
        uploads=[("tides.txt", [b"Tides: 4 m"]), ("notes.txt", [b"Dredge in May"])],
    )
    await db(client.force_login, alice)
    file = SimpleUploadedFile("tides.txt", b"Tides: 5 m")
    await db(client.post, f"/api/projects/{project.id}/files", {"file": file})
    session = await db(begin_in, project, alice, assistant_id=assistant.id, system_prompt="Be brief.")
    await say(session, "Go")
    told = model.requests[0].payload["messages"][0]["content"]
    assert told == "Speak of boats.\n\nBe dry.\n\nBe brief."
    files = await db(list_files, owner_id=alice.pk, session_id=session.id)
    assert [(file.path, file.size) for file in files] == [("tides.txt", 10), ("notes.txt", 13), ("tides.txt", 10)]
    newest = await db(find_file_by_path, "tides.txt", session_id=session.id)
    assert newest is not None
    assert newest.id == files[0].id


def test_a_project_only_narrows_what_the_site_permits(alice: User, site: Callable[[str], None]) -> None:
    site('[turn]\nask_before = ["calculator"]\nread_only = true\n')
    for turn in ({"ask_before": []}, {"read_only": False}):
        with pytest.raises(InvalidRequest):
            defaults.create_project(owner_id=alice.pk, name="Boats", config={"turn": turn})
    narrow = {"turn": {"ask_before": ["calculator", "task"], "read_only": True}}
    assert defaults.create_project(owner_id=alice.pk, name="Boats", config=narrow).config == narrow


def test_a_site_that_became_stricter_is_not_loosened_by_what_was_said_before(
    alice: User, site: Callable[[str], None]
) -> None:
    said = {"turn": {"ask_before": ["task"], "read_only": False}}
    project = defaults.create_project(owner_id=alice.pk, name="Boats", config=said)
    assistant = defaults.create_assistant(owner_id=alice.pk, name="Pilot", config=said)
    site('[turn]\nask_before = ["calculator"]\nread_only = true\n')
    for more in ({"project_id": project.id}, {"assistant_id": assistant.id}):
        session = lifecycle.create_session(owner=alice, **more)
        assert session.config == {"turn": {"ask_before": ["task", "calculator"]}}


def test_a_tool_or_model_that_is_gone_is_left_out_and_named(
    shared: ProjectRecord, alice: User, bob: User, client: Client
) -> None:
    LanguageModel.objects.create(alias="big", litellm_model="demo/chat", context_window=9_000, max_output_tokens=1_000)
    change(shared, alice, model="big")
    project_store.update_project(
        shared.id, owner_id=alice.pk, config={"turn": {"tools": ["calculator", "harbour__tides"]}}
    )
    with pytest.raises(InvalidRequest):
        change(shared, alice, config={"turn": {"tools": ["calculator", "harbour__tides", "other__one"]}})
    client.force_login(bob)
    part, page = f"/projects/{shared.id}/settings/", f"/projects/{shared.id}/"
    assert "harbour__tides" in client.get(part).content.decode()
    assert "project\u2019s model" not in client.get(part).content.decode()
    LanguageModel.objects.filter(alias="big").update(is_restricted=True)
    assert "This project\u2019s model, <strong>big</strong>, no longer exists" in client.get(part).content.decode()
    assert 'value="demo" selected' in " ".join(client.get(page).content.decode().split())
    assert begin_in(shared, bob).model == "demo"
    LanguageModel.objects.filter(alias="big").delete()
    renamed = change(shared, alice, name="Ships", model="big", config=load_project(shared.id, user_id=alice.pk).config)
    assert renamed.name == "Ships"


def test_only_its_owner_changes_what_a_project_configures(
    shared: ProjectRecord, alice: User, bob: User, client: Client
) -> None:
    client.force_login(bob)
    api, page = f"/api/projects/{shared.id}", f"/projects/{shared.id}/"
    assert client.get(api).json()["config"] == CONFIG
    answer = client.patch(api, json.dumps({"config": {}}), content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "PROJECT_NOT_YOURS")
    with pytest.raises(ProjectNotYours):
        change(shared, bob, config={})
    assert client.get(f"{page}change/").status_code == client.post(f"{page}change/").status_code == 403
    assert client.get(f"{page}settings/").status_code == 200
    put_into("elsewhere", bob.pk)
    for path in (f"{page}change/", f"{page}settings/", api):
        assert client.get(path).status_code == 404
    with pytest.raises(ProjectNotFoundError):
        change(shared, bob, config={})
    assert load_project(shared.id, user_id=alice.pk).config == CONFIG


BAD: list[Any] = [
    {"instructions": "x"},
    {"compaction": {"model": "big"}},
    {"fallbacks": ["big"]},
    {"x" * 10_000: 1},
    {"\x00": 1},
    {"\ud800": 1},
    {"turn": []},
    {"turn": {"tools": 7}},
    {"turn": {"tools": ["none"]}},
    {"turn": {"tools": ["\x00\ud800\u202e"]}},
    {"turn": {"max_steps": 10**30}},
    {"parameters": {"effort": "\u202e"}},
    {"parameters": {"temperature": "hot"}},
    {"limits": {"session": {"tokens": -1}}},
    [],
    "x",
]


def test_bad_settings_are_refused_in_words(alice: User, client: Client, project: ProjectRecord) -> None:
    client.force_login(alice)
    for config in BAD:
        body = json.dumps({"name": "x", "config": config})
        for method, path in (("POST", "/api/projects"), ("PATCH", f"/api/projects/{project.id}")):
            answer = client.generic(method, path, body, "application/json")
            assert (answer.status_code, bool(answer.json()["error"]["message"])) == (422, True), body[:100]
    deep = '{"name": "x", "config": ' + '{"turn": ' * 3_000 + "1" + "}" * 3_001
    assert client.generic("POST", "/api/projects", deep, "application/json").status_code in (400, 422)
    assert load_project(project.id, user_id=alice.pk) == project


def test_names_of_any_writing_in_settings_are_kept_and_shown(alice: User, client: Client) -> None:
    client.force_login(alice)
    config = {"turn": {"ask_before": ["\u202eضوء\x00\ud800<script>alert(1)</script>"]}}
    body = json.dumps({"name": "x", "config": config})
    made = client.post("/api/projects", body, content_type="application/json")
    assert made.status_code == 201
    path = f"/projects/{made.json()['id']}/"
    for address in (path, f"{path}settings/", f"{path}change/"):
        page = client.get(address)
        assert (page.status_code, "<script>alert" in page.content.decode()) == (200, False)
    assert load_session(begin_in(load_project(made.json()["id"], user_id=alice.pk), alice).id).config == config


def test_settings_are_changed_by_name(alice: User, client: Client, project: ProjectRecord) -> None:
    client.force_login(alice)

    def call(method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return client.post("/rpc", json.dumps(body), content_type="application/json").json()

    changed = call("projects/update", project_id=project.id, config={"max_output_tokens": 50})
    assert changed["result"]["config"] == {"max_output_tokens": 50}
    made = call("projects/create", name="Ships", config=CONFIG)["result"]
    assert call("projects/read", project_id=made["id"])["result"]["config"] == CONFIG
    refused = call("projects/update", project_id=project.id, config={"turn": {"tools": ["none"]}})
    assert refused["error"]["data"]["code"] == "INVALID_REQUEST"
    begun = call("session/create", project_id=made["id"])["result"]
    assert begun["config"] == CONFIG


def test_a_form_changes_a_project_and_keeps_what_it_does_not_show(alice: User, client: Client) -> None:
    client.force_login(alice)
    said = {"turn": {"tools": ["calculator"], "tool_timeout_seconds": 9.0}}
    project = defaults.create_project(owner_id=alice.pk, name="Boats", instructions="Speak of boats.", config=said)
    path = f"/projects/{project.id}/change/"
    form = client.get(path).context["form"]
    values = {field.name: field.value() for field in form if field.value() not in (None, False, "")}
    assert client.post(path, values).headers["Location"] == f"/projects/{project.id}/"
    assert load_project(project.id, user_id=alice.pk).config == said
    assert client.post(path, values | {"effort": "low", "name": "Ships"}).status_code == 302
    changed = load_project(project.id, user_id=alice.pk)
    assert (changed.name, changed.instructions) == ("Ships", "Speak of boats.")
    assert changed.config == {**said, "parameters": {"effort": "low"}}
    for wrong in ({"name": ""}, {"name": " "}, {"temperature": "9"}, {"name": "x" * 10_000}, {"model": "none"}):
        answer = client.post(path, values | wrong)
        assert (answer.status_code, "errorlist" in answer.content.decode()) == (200, True), wrong
    assert load_project(project.id, user_id=alice.pk) == changed


def test_a_page_says_what_new_chats_begin_with(project: ProjectRecord, alice: User, client: Client) -> None:
    client.force_login(alice)
    path = f"/projects/{project.id}/settings/"
    shown = " ".join(client.get(path).content.decode().split())
    for label, value in (("Effort", "Low"), ("Temperature", "0.5"), ("Tools", "calculator"), ("Tokens", "90,000")):
        assert f"<dt>{label}</dt> <dd> <bdi>{value}</bdi>" in shown
    change(project, alice, config={})
    assert "defaults of this site" in client.get(path).content.decode()
