"""Assistants: who may use them, what a session keeps of one, and that their versions never change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection
from django.test import Client

from agents_app.turns import defaults, lifecycle
from agents_app.turns.defaults import missing_tools, offered_assistants
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from mnesis_core.config import LONGEST_INSTRUCTIONS
from mnesis_core.errors import (
    AssistantNotFoundError,
    AssistantNotYours,
    ImmutableFieldError,
    InvalidRequest,
    ModelNotFoundError,
)
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import AssistantRecord, SessionRecord
from sessions_app.assistants import assistant_store
from sessions_app.assistants.assistant_store import assistant_of, list_assistants, list_versions, load_assistant
from sessions_app.conf import list_models, site_config
from sessions_app.database.threads import db
from sessions_app.models import AssistantVersion, LanguageModel
from sessions_app.record.session_queries import load_session
from tests.support.people.organisations import put_into
from tests.support.people.story import begin, calls_rebuilt, ended, history, say, tool_call

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def assistant(alice: User) -> AssistantRecord:
    """An assistant of Alice's, for herself."""
    return assistant_store.create_assistant(owner_id=alice.pk, name="Pilot", instructions="Speak of boats.")


@pytest.fixture
def shared(assistant: AssistantRecord, alice: User, bob: User) -> AssistantRecord:
    """The assistant, for Bob too."""
    return assistant_store.update_assistant(assistant.id, owner_id=alice.pk, people=["bob"])


def begin_with(assistant: AssistantRecord, owner: User, **more: Any) -> SessionRecord:
    return lifecycle.create_session(owner=owner, assistant_id=assistant.id, **more)


def change(assistant: AssistantRecord, owner: User, **values: Any) -> AssistantRecord:
    return defaults.update_assistant(assistant.id, owner_id=owner.pk, **values)


def told(request: Request) -> str:
    first = request.payload["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def usable(person: User) -> list[str]:
    return [one.id for one in list_assistants(user_id=person.pk)]


def make_model(alias: str) -> None:
    LanguageModel.objects.create(alias=alias, litellm_model="demo/chat", context_window=9_000, max_output_tokens=1_000)


@pytest.mark.slow
async def test_a_session_keeps_the_version_that_it_began_with_and_its_past_prompts_are_rebuilt(
    alice: User, assistant: AssistantRecord, script: Callable[..., ScriptedModel]
) -> None:
    model = script("one", "two", "three", "four", "five")
    session = await db(begin_with, assistant, alice, system_prompt="Be brief.")
    await say(session, "Go")
    newer = await db(change, assistant, alice, instructions="Speak of trains.")
    await say(session, "Go on")
    await ended(await begin(session, "Go on", system_prompt="Be long."))
    other = await db(begin_with, assistant, alice)
    await say(other, "Go")
    await db(assistant_store.remove_assistant, assistant.id, owner_id=alice.pk)
    await say(session, "Go on")
    boats = "Speak of boats.\n\n"
    expected = [f"{boats}Be brief.", f"{boats}Be brief.", f"{boats}Be long.", "Speak of trains.", f"{boats}Be brief."]
    assert [told(request) for request in model.requests] == expected
    assert len(await calls_rebuilt(session)) == 4
    kept = await db(assistant_of, session)
    assert kept is not None
    assert (kept.version, kept.is_newest, newer.version) == (1, False, 2)
    assert other.assistant_version_id == newer.version_id


async def test_a_fork_keeps_the_assistant_and_a_sub_agent_is_none(
    alice: User, assistant: AssistantRecord, script: Callable[..., ScriptedModel]
) -> None:
    model = script(tool_call("task", prompt="Count"), "Three.", "It is three.")
    session = await db(begin_with, assistant, alice)
    await say(session, "Go")
    assert [told(request) == "Speak of boats." for request in model.requests] == [True, False, True]
    answer = (await history(session))[-1]
    fork = await db(lifecycle.fork_session, session.id, owner=alice, at_message_id=answer.id)
    assert fork.assistant_version_id == assistant.version_id
    assert fork.assistant_instructions == "Speak of boats."


def test_what_a_session_says_stands_above_its_assistant_and_that_above_its_project(
    alice: User, assistant: AssistantRecord
) -> None:
    make_model("big")
    config = {"parameters": {"effort": "low", "temperature": 0.5}, "turn": {"tools": ["calculator"]}}
    change(assistant, alice, model="big", config=config)
    session = begin_with(assistant, alice, config={"parameters": {"effort": "high"}})
    assert session.model == "big"
    assert session.config == {**config, "parameters": {"effort": "high", "temperature": 0.5}}
    assert begin_with(assistant, alice, model="demo").model == "demo"
    assert verify_session(session.id).ok
    assert b"Speak of boats." in b"".join(export_session(session.id))


def test_an_assistant_is_for_its_owner_for_people_for_groups_or_for_everyone(
    assistant: AssistantRecord, alice: User, bob: User
) -> None:
    assert (usable(alice), usable(bob)) == ([assistant.id], [])
    change(assistant, alice, people=["bob"])
    assert usable(bob) == [assistant.id]
    change(assistant, alice, people=[])
    assert usable(bob) == []
    crew = Group.objects.create(name="crew")
    with pytest.raises(InvalidRequest):
        change(assistant, alice, groups=["crew"])
    crew.user_set.add(alice, bob)
    assert change(assistant, alice, groups=["crew"]).groups == ("crew",)
    assert usable(bob) == [assistant.id]
    crew.user_set.remove(bob)
    assert usable(bob) == []
    assert change(assistant, alice, for_everyone=True).version == 1
    assert usable(bob) == [assistant.id]
    put_into("elsewhere", bob.pk)
    assert usable(bob) == []


def test_an_assistant_is_not_found_by_others_and_changed_by_its_owner_only(
    assistant: AssistantRecord, alice: User, bob: User, client: Client
) -> None:
    client.force_login(bob)
    for ask in (
        lambda: load_assistant(assistant.id, user_id=bob.pk),
        lambda: begin_with(assistant, bob),
        lambda: change(assistant, bob, name="Mine"),
        lambda: assistant_store.remove_assistant(assistant.id, owner_id=bob.pk),
        lambda: load_assistant("asst_\x00", user_id=alice.pk),
    ):
        with pytest.raises(AssistantNotFoundError):
            ask()
    assert list_versions(assistant, user_id=bob.pk) == []
    api, page = f"/api/assistants/{assistant.id}", f"/assistants/{assistant.id}/"
    for method, path in (("GET", api), ("PATCH", api), ("DELETE", api), ("GET", f"{api}/versions")):
        assert client.generic(method, path, "{}", "application/json").status_code == 404
    for path in (page, f"{page}change/"):
        assert client.get(path).status_code == 404
    assert client.post(f"{page}remove/").status_code == 404
    assert assistant.id not in client.get("/assistants/").content.decode()
    change(assistant, alice, people=["bob"])
    for ask in (
        lambda: change(assistant, bob, name="Mine"),
        lambda: assistant_store.remove_assistant(assistant.id, owner_id=bob.pk),
    ):
        with pytest.raises(AssistantNotYours):
            ask()
    assert client.get(f"{page}change/").status_code == client.post(f"{page}remove/").status_code == 403
    read = client.get(api).json()
    assert (read["instructions"], read["is_owner"], read["people"]) == ("Speak of boats.", False, [])


def test_a_session_keeps_what_it_had_when_its_assistant_is_no_longer_shared(
    shared: AssistantRecord, alice: User, bob: User, client: Client
) -> None:
    session = begin_with(shared, bob)
    change(shared, alice, people=[], instructions="Speak of trains.")
    client.force_login(bob)
    page = client.get(f"/sessions/{session.id}/").content.decode()
    assert "Pilot" in page
    assert f"/assistants/{shared.id}/" not in page
    assert load_session(session.id, owner_id=bob.pk).assistant_instructions == "Speak of boats."
    with pytest.raises(AssistantNotFoundError):
        begin_with(shared, bob)


def test_a_change_of_what_it_is_makes_a_version_and_nothing_else_does(assistant: AssistantRecord, alice: User) -> None:
    assert change(assistant, alice, name="Pilot", instructions="Speak of boats.").version == 1
    assert change(assistant, alice, description="Knows the harbour.").version == 2
    assert change(assistant, alice, starters=["Which tide?"]).version == 3
    found = list_versions(assistant, user_id=alice.pk)
    assert [(one.version, one.description, one.starters) for one in found] == [
        (3, "Knows the harbour.", ["Which tide?"]),
        (2, "Knows the harbour.", []),
        (1, "", []),
    ]


def test_a_version_never_changes(assistant: AssistantRecord) -> None:
    row = AssistantVersion.objects.get(pk=assistant.version_id)
    with pytest.raises(ImmutableFieldError):
        AssistantVersion.objects.filter(pk=row.pk).update(instructions="Other")
    with pytest.raises(ImmutableFieldError):
        row.delete()


@pytest.mark.both_databases
@pytest.mark.owner  # else the test has the site's rights, and they refuse before the trigger is asked
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE assistant_versions SET instructions = 'other'",
        "DELETE FROM assistant_versions",
        "DELETE FROM assistants",
        "UPDATE sessions SET assistant_instructions = 'other'",
        "UPDATE sessions SET assistant_version_id = 'other'",
    ],
)
def test_the_database_refuses_another_version_than_there_was(
    assistant: AssistantRecord, alice: User, statement: str
) -> None:
    begin_with(assistant, alice)
    with connection.cursor() as cursor, pytest.raises(IntegrityError):
        cursor.execute(statement)


def test_a_model_that_is_gone_is_said_and_another_one_may_be_named(
    shared: AssistantRecord, alice: User, bob: User, client: Client
) -> None:
    make_model("big")
    change(shared, alice, model="big")
    LanguageModel.objects.filter(alias="big").update(is_restricted=True)
    with pytest.raises(ModelNotFoundError, match="no longer exists or is not available to you"):
        begin_with(shared, bob)
    assert begin_with(shared, bob, model="demo").model == "demo"
    assert offered_assistants(list_models(user_id=bob.pk), user_id=bob.pk) == []
    client.force_login(bob)
    page = client.get(f"/assistants/{shared.id}/").content.decode()
    assert "no longer exists or is not available to you" in page
    assert 'value="demo" selected' in " ".join(page.split())


def test_a_tool_that_is_gone_is_said_and_left_out(assistant: AssistantRecord, alice: User, client: Client) -> None:
    with pytest.raises(InvalidRequest):
        change(assistant, alice, config={"turn": {"tools": ["harbour__tides"]}})
    gone = assistant_store.update_assistant(
        assistant.id, owner_id=alice.pk, config={"turn": {"tools": ["calculator", "harbour__tides"]}}
    )
    assert missing_tools(gone.config, user_id=alice.pk) == ["harbour__tides"]
    assert begin_with(gone, alice).assistant_version_id == gone.version_id
    client.force_login(alice)
    assert "harbour__tides" in client.get(f"/assistants/{gone.id}/").content.decode()


@pytest.fixture
def careful_site(settings: Any, tmp_path: Path) -> Iterator[None]:
    """The calculator asks first, and tools only read."""
    file = tmp_path / "config.toml"
    file.write_text('[turn]\nask_before = ["calculator"]\nread_only = true\n')
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
    site_config.cache_clear()
    yield
    site_config.cache_clear()


@pytest.mark.usefixtures("careful_site")
def test_an_assistant_is_no_way_around_what_the_site_asks_before(alice: User) -> None:
    for turn in ({"ask_before": []}, {"read_only": False}):
        with pytest.raises(InvalidRequest):
            assistant_store.create_assistant(owner_id=alice.pk, name="Pilot", config={"turn": turn})
    assert assistant_store.create_assistant(
        owner_id=alice.pk, name="Pilot", config={"turn": {"ask_before": ["calculator", "task"]}}
    )


BAD = [
    ({"name": ""}, 422),
    ({"name": "x" * 101}, 422),
    ({"name": "\x00" * 100}, 422),
    ({"name": "x" * 10_000}, 422),
    ({"name": "\ud800"}, 422),
    ({"name": 7}, 422),
    ({"name": "x", "model": "no-such-model"}, 404),
    ({"name": "x", "instructions": "x" * (LONGEST_INSTRUCTIONS + 1)}, 422),
    ({"name": "x", "description": "x" * 10_000}, 422),
    ({"name": "x", "starters": ["x"] * 9}, 422),
    ({"name": "x", "starters": ["x" * 501]}, 422),
    ({"name": "x", "config": {"instructions": "x"}}, 422),
    ({"name": "x", "config": {"turn": []}}, 422),
    ({"name": "x", "config": {"turn": {"tools": 7}}}, 422),
    ({"name": "x", "config": {"turn": {"tools": ["none"]}}}, 422),
    ({"name": "x", "config": {"parameters": {"effort": "\u202e"}}}, 422),
    ({"name": "x", "config": {"compaction": {"model": "big"}}}, 422),
    ({"name": "x", "people": ["nobody"]}, 422),
    ({"name": "x", "people": ["\x00"]}, 422),
    ({"name": "x", "groups": ["nobody"]}, 422),
]


@pytest.mark.slow
def test_bad_values_are_refused_in_words(alice: User, client: Client, assistant: AssistantRecord) -> None:
    client.force_login(alice)
    for body, status in BAD:
        for method, path in (("POST", "/api/assistants"), ("PATCH", f"/api/assistants/{assistant.id}")):
            answer = client.generic(method, path, json.dumps(body), "application/json")
            assert (answer.status_code, bool(answer.json()["error"]["message"])) == (status, True), ascii(body)
    deep = '{"name": "x", "config": ' + '{"turn": ' * 3_000 + "1" + "}" * 3_001
    assert client.generic("POST", "/api/assistants", deep, "application/json").status_code in (400, 422)
    assert client.get("/api/assistants?cursor=%00").status_code == 200
    assert load_assistant(assistant.id, user_id=alice.pk) == assistant


def test_names_of_any_writing_are_kept_and_shown_with_what_they_hide(alice: User, client: Client) -> None:
    client.force_login(alice)
    name = "ضوء \u202eevil 🌙 <script>alert(1)</script>"
    body = {"name": name, "description": name, "instructions": name, "starters": [name]}
    made = client.post("/api/assistants", json.dumps(body), content_type="application/json").json()
    session = client.post(
        "/api/sessions", json.dumps({"assistant_id": made["id"]}), content_type="application/json"
    ).json()
    assert session["assistant_version_id"] == made["version_id"]
    for path in (f"/assistants/{made['id']}/", "/assistants/", "/", f"/sessions/{session['id']}/"):
        page = client.get(path).content.decode()
        assert "ضوء" in page
        assert "<script>alert" not in page


def test_a_form_makes_an_assistant_and_a_second_post_a_version(alice: User, bob: User, client: Client) -> None:
    client.force_login(alice)
    values = {
        "name": "Pilot",
        "starters": "Which tide?\r\n\r\nHow deep?",
        "tools_from": "own",
        "tools": ["calculator"],
        "audience": "named",
        "users": "bob",
    }
    made = client.post("/assistants/add/", values)
    [assistant] = list_assistants(user_id=alice.pk)
    assert made.headers["Location"] == f"/assistants/{assistant.id}/"
    assert (assistant.starters, assistant.people) == (["Which tide?", "How deep?"], ("bob",))
    assert assistant.config == {"turn": {"tools": ["calculator"]}}
    path = f"/assistants/{assistant.id}/change/"
    assert client.post(path, values).status_code == 302
    assert client.post(path, values | {"effort": "low", "audience": "everyone"}).status_code == 302
    [assistant] = list_assistants(user_id=alice.pk)
    assert (assistant.version, assistant.for_everyone, assistant.config["parameters"]) == (2, True, {"effort": "low"})
    for wrong in ({"name": ""}, {"users": "nobody"}, {"temperature": "9"}, {"name": "x" * 10_000}):
        answer = client.post(path, values | wrong)
        assert (answer.status_code, "errorlist" in answer.content.decode()) == (200, True), wrong
    assert client.post(f"/assistants/{assistant.id}/remove/").status_code == 302
    assert list_assistants(user_id=alice.pk) == []
