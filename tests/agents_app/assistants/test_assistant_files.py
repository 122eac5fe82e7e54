"""Files of assistants: each session that begins with a version is given those of it, and keeps them whatever becomes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from agents_app.turns import defaults, lifecycle
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from files_app.queries import bytes_of_person, list_files
from mnesis_core.errors import FileReferenceNotFoundError, InvalidRequest, RequestTooLarge
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import AssistantRecord, SessionRecord
from sessions_app.assistants import assistant_store
from sessions_app.assistants.assistant_store import MOST_FILES, list_assistants, list_versions, load_assistant
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from tests.support.people.story import calls_rebuilt, ended, history, say, spoken

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pilot(alice: User, bob: User) -> AssistantRecord:
    """Alice's, for Bob too, with one file."""
    return defaults.create_assistant(
        owner_id=alice.pk, name="Pilot", people=["bob"], uploads=[("tides.txt", [b"Tides: ", b"4.2 m"])]
    )


def change(pilot: AssistantRecord, owner: User, **values: Any) -> AssistantRecord:
    return defaults.update_assistant(pilot.id, owner_id=owner.pk, **values)


def add(pilot: AssistantRecord, owner: User, path: str, data: bytes) -> AssistantRecord:
    return change(pilot, owner, uploads=[(path, [data])])


def post(client: Client, pilot: AssistantRecord, name: str, data: bytes) -> Any:
    return client.post(f"/api/assistants/{pilot.id}/files", {"file": SimpleUploadedFile(name, data)})


def paths(assistant: AssistantRecord) -> list[str]:
    return [file.path for file in assistant.files]


async def joined(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


async def brought(session: SessionRecord) -> list[list[str]]:
    """Return which of the files each message of the person has beside its words."""
    said = [message for message in await history(session) if message.role == "user"]
    texts = [spoken(message) + str(message.parts[1:]) for message in said]
    return [[name for name in ("tides.txt", "notes.txt") if name in text] for text in texts]


@pytest.mark.slow
async def test_a_session_is_given_the_files_of_its_version_once_and_keeps_them_when_all_else_is_gone(
    pilot: AssistantRecord, alice: User, bob: User, script: Callable[..., ScriptedModel]
) -> None:
    model = script("one", "two", "three", "four")
    session, started = await lifecycle.begin_session(owner=bob, message="Go", assistant_id=pilot.id)
    await ended(started.turn)
    late = await db(lifecycle.create_session, owner=bob, assistant_id=pilot.id)
    newer = await db(add, pilot, alice, "notes.txt", b"Dredge in May")
    await db(change, pilot, alice, people=[], removed_files=[file.id for file in newer.files])
    await db(assistant_store.remove_assistant, pilot.id, owner_id=alice.pk)
    await say(session, "Go on")
    await say(late, "Go")
    assert await brought(session) == [["tides.txt"], []]
    assert await brought(late) == [["tides.txt"]]
    assert all("4.2 m" in json.dumps(request.payload) for request in model.requests)
    assert len(await calls_rebuilt(session)) == 2
    assert (await db(verify_session, session.id)).ok
    assert b"4.2 m" in b"".join(await db(lambda: list(export_session(session.id))))


@pytest.mark.slow
async def test_a_version_that_is_made_later_gives_its_files_to_later_sessions_only(
    pilot: AssistantRecord, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    script("one", "two", "three")
    before = await db(lifecycle.create_session, owner=alice, assistant_id=pilot.id)
    await db(add, pilot, alice, "notes.txt", b"Dredge in May")
    await say(before, "Go")
    after = await db(lifecycle.create_session, owner=alice, assistant_id=pilot.id)
    await say(after, "Go")
    assert (await brought(before), await brought(after)) == ([["tides.txt"]], [["tides.txt", "notes.txt"]])


@pytest.mark.slow
async def test_a_fork_has_the_files_once_whether_a_message_brought_them_or_not(
    pilot: AssistantRecord, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    script("one", "two", "three", "four")
    session = await db(lifecycle.create_session, owner=alice, assistant_id=pilot.id)
    await say(session, "Go")
    first, answer = await history(session)
    at = await db(lifecycle.fork_session, session.id, owner=alice, at_message_id=answer.id)
    empty = await db(lifecycle.fork_session, session.id, owner=alice, before_message_id=first.id)
    await say(at, "Go on")
    await say(empty, "Go")
    await say(empty, "Go on")
    assert (await brought(at), await brought(empty)) == ([["tides.txt"], []], [["tides.txt"], []])


async def test_a_file_of_the_assistant_and_of_the_message_goes_with_it_once(
    pilot: AssistantRecord, alice: User, client: Client, script: Callable[..., ScriptedModel]
) -> None:
    script("one")
    session = await db(lifecycle.create_session, owner=alice, assistant_id=pilot.id)
    await db(client.force_login, alice)
    body = {"session_id": session.id, "file": SimpleUploadedFile("tides.txt", b"Tides: 4.2 m")}
    sent = (await db(client.post, "/api/files", body)).json()["id"]
    await ended((await lifecycle.start_turn(session.id, owner_id=alice.pk, message="Go", files=[sent])).turn)
    assert len(await db(list_files, owner_id=alice.pk, session_id=session.id)) == 1
    [message, _] = await history(session)
    assert len(message.parts) == 2


@pytest.mark.slow
async def test_more_files_than_a_message_may_have_are_refused_and_those_of_an_assistant_do_not_count(
    pilot: AssistantRecord, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    script("one")
    await db(change, pilot, alice, uploads=[(f"{number}.bin", [b"\x00\xff" * 9]) for number in range(MOST_FILES - 1)])
    session = await db(lifecycle.create_session, owner=alice, assistant_id=pilot.id)
    with pytest.raises(InvalidRequest, match="50 files"):
        await lifecycle.start_turn(session.id, owner_id=alice.pk, message="Go", files=["file_1"] * 51)
    await say(session, "Go")
    [message, _] = await history(session)
    assert len(message.parts) == 1 + MOST_FILES


def test_each_change_of_files_makes_a_version_and_the_same_file_again_none(pilot: AssistantRecord, alice: User) -> None:
    assert (pilot.version, paths(pilot)) == (1, ["tides.txt"])
    assert add(pilot, alice, "tides.txt", b"Tides: 4.2 m").version == 1
    newer = add(pilot, alice, "tides.txt", b"Tides: 5 m")
    assert (newer.version, paths(newer), newer.files[0].size) == (2, ["tides.txt"], 10)
    with pytest.raises(FileReferenceNotFoundError):
        change(pilot, alice, removed_files=[pilot.files[0].id])
    assert change(pilot, alice, removed_files=[newer.files[0].id]).files == ()
    assert [paths(one) for one in list_versions(pilot, user_id=alice.pk)] == [[], ["tides.txt"], ["tides.txt"]]
    assert change(pilot, alice, name="Captain").version == 4


def test_files_are_for_those_who_may_use_the_assistant_and_their_owners_to_change(
    pilot: AssistantRecord, alice: User, bob: User, client: Client
) -> None:
    api = f"/api/assistants/{pilot.id}"
    client.force_login(alice)
    made = post(client, pilot, "a/../notes.txt", b"Dredge in May")
    assert made.status_code == 201
    tides, notes = made.json()["files"]
    assert (notes["path"], notes["size"]) == ("notes.txt", 13)
    assert client.post(f"{api}/files").json()["error"]["details"]["field"] == "file"
    client.force_login(bob)
    content = client.get(f"{api}/files/{notes['id']}/content")
    assert (content.status_code, content["Content-Disposition"]) == (200, 'attachment; filename="notes.txt"')
    assert asyncio.run(joined(content.streaming_content)) == b"Dredge in May"
    assert "notes.txt" in client.get(f"/assistants/{pilot.id}/").content.decode()
    assert post(client, pilot, "x.txt", b"x").json()["error"]["code"] == "ASSISTANT_NOT_YOURS"
    assert client.delete(f"{api}/files/{notes['id']}").json()["error"]["code"] == "ASSISTANT_NOT_YOURS"
    change(pilot, alice, people=[])
    for answer in (
        client.get(f"{api}/files/{notes['id']}/content"),
        client.delete(f"{api}/files/{notes['id']}"),
        post(client, pilot, "x.txt", b"x"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "ASSISTANT_NOT_FOUND")
    client.force_login(alice)
    assert client.delete(f"{api}/files/{notes['id']}").json()["files"] == [tides]
    for gone in (notes["id"], "afile_\x00", "x" * 10_000):
        answer = client.get(f"{api}/files/{gone}/content")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "FILE_NOT_FOUND"), gone[:50]


def test_an_assistant_has_files_up_to_a_bound_and_they_count_for_its_owner(
    pilot: AssistantRecord, alice: User, bob: User
) -> None:
    change(pilot, alice, uploads=[(f"{number}.txt", [b"same"]) for number in range(MOST_FILES - 1)])
    with pytest.raises(InvalidRequest):
        add(pilot, alice, "one more.txt", b"x")
    with pytest.raises(InvalidRequest):
        defaults.create_assistant(owner_id=alice.pk, name="x", uploads=[("x", [b"x"])] * (MOST_FILES + 1))
    with pytest.raises(InvalidRequest):
        add(pilot, alice, "x" * 5_000, b"x")
    assert (bytes_of_person(alice.pk), bytes_of_person(bob.pk)) == (len(b"Tides: 4.2 m") + len(b"same"), 0)
    assistant_store.remove_assistant(pilot.id, owner_id=alice.pk)
    assert bytes_of_person(alice.pk) == 0


async def test_a_file_that_a_session_of_the_owner_has_too_counts_once(
    pilot: AssistantRecord, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    script("one")
    session = await db(lifecycle.create_session, owner=alice, assistant_id=pilot.id)
    await say(session, "Go")
    assert await db(bytes_of_person, alice.pk) == len(b"Tides: 4.2 m")


def test_files_take_no_more_room_than_the_owner_has(
    pilot: AssistantRecord, alice: User, settings: Any, tmp_path: Any
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[files]\nquota_bytes = 30\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
    site_config.cache_clear()
    try:
        with pytest.raises(RequestTooLarge):
            change(pilot, alice, uploads=[("a", [b"x" * 10]), ("b", [b"y" * 10])])
        assert load_assistant(pilot.id, user_id=alice.pk) == pilot
        assert change(pilot, alice, uploads=[("a", [b"x" * 10]), ("b", [b"y" * 8])]).version == 2
    finally:
        site_config.cache_clear()


def test_a_form_that_comes_back_says_that_its_files_must_be_chosen_again(alice: User, client: Client) -> None:
    client.force_login(alice)
    values = {"name": "", "tools_from": "site", "audience": "named"}
    told = "Your selection was not kept."
    chosen = {"new_files": [SimpleUploadedFile("tides.txt", b"4.2 m")], "picture": SimpleUploadedFile("a.png", b"x")}
    pages = [client.get("/assistants/add/"), *(client.post("/assistants/add/", values | more) for more in ({}, chosen))]
    assert [page.content.decode().count(told) for page in pages] == [0, 0, 2]


def test_a_script_that_sends_the_form_is_told_where_to_go(alice: User, client: Client) -> None:
    client.force_login(alice)
    values = {"name": "Pilot", "tools_from": "site", "audience": "named"}
    for path in ("/assistants/add/", "/assistants/{}/change/"):
        made = [one.id for one in list_assistants(user_id=alice.pk)]
        answer = client.post(path.format(*made), values, headers={"HX-Request": "true"})
        [assistant] = list_assistants(user_id=alice.pk)
        assert (answer.status_code, answer.headers["HX-Redirect"]) == (204, f"/assistants/{assistant.id}/")


@pytest.mark.slow
def test_a_form_adds_and_removes_files_in_one_version(alice: User, client: Client) -> None:
    client.force_login(alice)
    values = {"name": "Pilot", "tools_from": "site", "audience": "named"}
    names = ["tides.txt", "ضوء \u202eevil<b>.txt"]
    files = [SimpleUploadedFile(name, b"4.2 m") for name in names]
    assert client.post("/assistants/add/", values | {"new_files": files}).status_code == 302
    [assistant] = list_assistants(user_id=alice.pk)
    assert (assistant.version, paths(assistant)) == (1, ["tides.txt", "ضوء evil<b>.txt"])
    page, path = f"/assistants/{assistant.id}/", f"/assistants/{assistant.id}/change/"
    for address in (page, path):
        shown = client.get(address).content.decode()
        assert ("tides.txt" in shown, "evil<b>" in shown) == (True, False)
    assert client.post(path, values).status_code == 302
    assert load_assistant(assistant.id, user_id=alice.pk).version == 1
    swap = {"removed_files": [assistant.files[0].id], "new_files": [SimpleUploadedFile("empty.txt", b"")]}
    assert client.post(path, values | swap).status_code == 302
    changed = load_assistant(assistant.id, user_id=alice.pk)
    assert (changed.version, paths(changed)) == (2, ["ضوء evil<b>.txt", "empty.txt"])
    many = [SimpleUploadedFile(f"{number}.txt", b"x") for number in range(MOST_FILES + 1)]
    for wrong in ({"new_files": many}, {"removed_files": ["afile_none"]}, {"removed_files": [assistant.files[0].id]}):
        answer = client.post(path, values | wrong)
        assert (answer.status_code, "errorlist" in answer.content.decode()) == (200, True), wrong
    assert load_assistant(assistant.id, user_id=alice.pk) == changed
