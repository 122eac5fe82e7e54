"""Pictures and PDFs at an address, in this process: fetched once, kept like any other, and where that fails nothing is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_app.turns import lifecycle
from files_app.queries import list_files
from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import FileRefPart, MediaPart
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions
from sessions_app.record.turn_queries import list_turns
from tests.agents_app.endpoints.test_mcp_server import agent, error, use
from tests.support.material.drawings import data_url
from tests.support.people.programs import Program
from tests.support.servers.picture_server import PDF, PICTURE, PictureServer

pytestmark = pytest.mark.usefixtures("no_connection_left")
WEATHER = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def program(alice: Any) -> Program:
    return Program(create_key(owner_id=alice.pk), "/v1/chat/completions")


def completions(picture: str, pdf: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "file", "file": {"file_data": pdf}}]
    return {"messages": [{"role": "user", "content": parts}]}


def responses(picture: str, pdf: str) -> dict[str, Any]:
    parts = [{"type": "input_image", "image_url": picture}, {"type": "input_file", "file_url": pdf}]
    return {"input": [{"role": "user", "content": parts}]}


def messages(picture: str, pdf: str) -> dict[str, Any]:
    blocks = [
        {"type": "image", "source": {"type": "url", "url": picture}},
        {"type": "document", "source": {"type": "url", "url": pdf}},
    ]
    return {"messages": [{"role": "user", "content": blocks}], "max_tokens": 100}


ENDPOINTS = {"/v1/chat/completions": completions, "/v1/responses": responses, "/v1/messages": messages}


def types_of(user: Any) -> list[tuple[str, int | None]]:
    return sorted((file.file_type, file.size) for file in list_files(owner_id=user.pk))


@pytest.mark.slow
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_what_is_at_an_address_is_a_file_like_any_other(
    alice: Any, script: Any, pictures: PictureServer, program: Program, path: str
) -> None:
    script("A gradient, and a page.")
    asked = ENDPOINTS[path](f"{pictures.url}/quay.png", f"{pictures.url}/tides.pdf")
    response = await program.post(path, model="demo", **asked)
    assert response.status_code == 200, response.content
    assert await db(types_of, alice) == [("image", len(PICTURE)), ("pdf", len(PDF))]
    assert pictures.paths == ["/quay.png", "/tides.pdf"]
    [session] = await db(list_sessions, owner_id=alice.pk)
    said, _ = await db(load_messages, session.id)
    assert [stored.part.file_type for stored in said.parts if isinstance(stored.part, FileRefPart)] == ["image", "pdf"]


async def test_a_picture_of_an_item_is_fetched_too(alice: Any, pictures: PictureServer, program: Program) -> None:
    items = responses(f"{pictures.url}/quay.png", f"{pictures.url}/tides.pdf")["input"]
    made = await program.post("/v1/conversations", items=items)
    assert made.status_code == 200, made.content
    assert await db(types_of, alice) == [("image", len(PICTURE)), ("pdf", len(PDF))]
    refused = await program.post(
        "/v1/conversations", items=responses(f"{pictures.url}/gone", f"{pictures.url}/gone")["input"]
    )
    assert refused.json()["error"]["code"] == "PICTURE_NOT_FETCHED"
    assert len(await db(list_sessions, owner_id=alice.pk)) == 1


async def test_items_that_are_repeated_are_not_fetched_again(
    alice: Any, pictures: PictureServer, program: Program
) -> None:
    made = (await program.post("/v1/conversations")).json()["id"]
    program.headers["Idempotency-Key"] = "quay"
    items = responses(f"{pictures.url}/quay.png", f"{pictures.url}/tides.pdf")["input"]
    first, again = [await program.post(f"/v1/conversations/{made}/items", items=items) for _ in range(2)]
    assert (first.status_code, first.json()) == (200, again.json())
    assert pictures.paths == ["/quay.png", "/tides.pdf"]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("named", [{}, {"session": "new"}, {"user": "ada"}])
async def test_one_that_cannot_be_fetched_leaves_nothing(
    alice: Any, settings: Any, pictures: PictureServer, program: Program, path: str, named: Any, subtests: Any
) -> None:
    settings.USER_IS_SESSION = True
    good, gone = f"{pictures.url}/quay.png", f"{pictures.url}/gone"
    codes = {gone: "PICTURE_NOT_FETCHED", "https://10.0.0.1/a.pdf": "NOT_LISTED", good: "INVALID_PICTURE"}
    for pdf, code in codes.items():
        with subtests.test(code):
            response = await program.post(path, model="demo", **ENDPOINTS[path](good, pdf), **named)
            problem = response.json()["error"]
            assert response.status_code in (400, 403, 422)
            assert problem.get("code") == code or problem["error_code"] == code
            assert await db(types_of, alice) == []
            assert await db(list_sessions, owner_id=alice.pk) == []


@pytest.fixture
def fetches_nothing(settings: Any, tmp_path: Path) -> Iterator[None]:
    (tmp_path / "mnesis.toml").write_text("[files]\nfetch_addresses = false\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(tmp_path / "mnesis.toml")}
    site_config.cache_clear()
    yield
    site_config.cache_clear()


@pytest.mark.usefixtures("fetches_nothing")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_site_may_fetch_nothing(alice: Any, pictures: PictureServer, program: Program, path: str) -> None:
    response = await program.post(path, model="demo", **ENDPOINTS[path](f"{pictures.url}/quay.png", data_url(PDF)))
    assert b"REMOTE_PICTURE" in response.content
    assert (response.status_code in (400, 422), pictures.paths) == (True, [])
    assert await db(list_sessions, owner_id=alice.pk) == []


@pytest.mark.slow
async def test_a_history_that_is_sent_again_is_not_fetched_again(
    alice: Any, script: Any, pictures: PictureServer, program: Program
) -> None:
    script("A gradient.", "Blue.")
    session: SessionRecord = await db(lifecycle.create_session, owner=alice)
    asked = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"{pictures.url}/quay.png"}}]}]
    assert (await program.post(model="demo", session=session.id, messages=asked)).status_code == 200
    asked += [{"role": "assistant", "content": "A gradient."}, {"role": "user", "content": "Which colour?"}]
    assert (await program.post(model="demo", session=session.id, messages=asked)).status_code == 200
    assert pictures.paths == ["/quay.png"]


@pytest.mark.slow
@pytest.mark.parametrize("path", [*ENDPOINTS, "/api/sessions/{}/turns"])
async def test_a_request_that_is_repeated_is_known_before_its_pictures_are_fetched_again(
    alice: Any, script: Any, pictures: PictureServer, program: Program, path: str
) -> None:
    script("A gradient.")
    program.headers["Idempotency-Key"] = "quay"
    asked = {"model": "demo"} | ENDPOINTS.get(path, completions)(
        f"{pictures.url}/quay.png", f"{pictures.url}/tides.pdf"
    )
    if path.startswith("/api"):
        session = await db(lifecycle.create_session, owner=alice)
        path, asked = path.format(session.id), {"parts": asked["messages"][0]["content"], "idempotency_key": "quay"}
    first = await program.post(path, **asked)
    assert first.status_code in (200, 202), first.content
    [session] = await db(list_sessions, owner_id=alice.pk)
    [turn] = await db(list_turns, session.id)
    await lifecycle.wait_turn(session.id, turn.id, owner_id=alice.pk)
    again = await program.post(path, **asked)
    assert again.status_code in (200, 202), again.content
    assert [one.id for one in await db(list_turns, session.id)] == [turn.id]
    assert pictures.paths == ["/quay.png", "/tides.pdf"]
    other = json.loads(json.dumps(asked).replace("quay.png", "quay"))
    assert b"IDEMPOTENCY_MISMATCH" in (await program.post(path, **other)).content.upper()


@pytest.mark.slow
async def test_an_earlier_message_of_a_new_session_has_its_pictures(
    alice: Any, script: Any, pictures: PictureServer, program: Program
) -> None:
    script("Blue.")
    [first] = completions(f"{pictures.url}/quay.png", f"{pictures.url}/tides.pdf")["messages"]
    asked = [first, {"role": "assistant", "content": "A gradient."}, {"role": "user", "content": "Which colour?"}]
    assert (await program.post(model="demo", session="new", messages=asked)).status_code == 200
    [session] = await db(list_sessions, owner_id=alice.pk)
    parts = [stored.part for stored in (await db(load_messages, session.id))[0].parts]
    shown = [(part.type, part.media_type, part.size) for part in parts if isinstance(part, MediaPart)]
    assert shown == [("image", "image/png", len(PICTURE)), ("document", "application/pdf", len(PDF))]
    assert all(part.file_id and part.name and not part.source for part in parts if isinstance(part, MediaPart))


@pytest.mark.slow
async def test_a_result_of_a_callers_tool_has_its_pictures(
    alice: Any, script: Any, pictures: PictureServer, program: Program
) -> None:
    look = Step(tool_calls=(ToolCall(id="c1", name="look", arguments="{}"),))
    script(look, "A gradient.", look, "A gradient.")
    parts = [{"type": "image_url", "image_url": {"url": f"{pictures.url}/quay.png"}}]
    asked = await program.ask("Look", session="new", tools=[WEATHER])
    session_id, call = asked.headers["X-Mnesis-Session"], asked.json()["choices"][0]["message"]["tool_calls"][0]["id"]
    gone = [{"type": "image_url", "image_url": {"url": f"{pictures.url}/gone"}}]
    for content, status in ((gone, 422), (parts, 200)):
        result = [{"role": "tool", "tool_call_id": call, "content": content}]
        assert (await program.post(model="demo", session=session_id, messages=result)).status_code == status
    turn = (await program.post(f"/api/sessions/{session_id}/turns", message="Again", tools=[{"name": "look"}])).json()
    waiting = await lifecycle.wait_turn(session_id, turn["id"], owner_id=alice.pk)
    results = [{"tool_call_id": waiting.waits_for[0].part_id, "parts": parts}]
    path = f"/api/sessions/{session_id}/turns/{turn['id']}/tool-results"
    answered = await program.post(path, results=results)
    assert answered.status_code in (200, 202), answered.content
    await lifecycle.wait_turn(session_id, turn["id"], owner_id=alice.pk)
    said = await db(load_messages, session_id)
    shown = [stored.part for one in said for stored in one.parts if isinstance(stored.part, MediaPart)]
    assert [(part.media_type, part.size) for part in shown] == [("image/png", len(PICTURE))] * 2


@pytest.mark.slow
async def test_rest_and_mcp_take_addresses_too(
    alice: Any, script: Any, pictures: PictureServer, program: Program
) -> None:
    script("A gradient.", "A gradient.")
    [said] = completions(f"{pictures.url}/quay.png", f"{pictures.url}/tides.pdf")["messages"]
    async with agent(alice) as client:
        turn = await use(client, "mnesis_run", parts=said["content"])
        [gone] = completions(f"{pictures.url}/gone", f"{pictures.url}/tides.pdf")["messages"]
        assert (await error(client, "mnesis_run", parts=gone["content"]))["code"] == "PICTURE_NOT_FETCHED"
    started = await program.post(f"/api/sessions/{turn['session_id']}/turns", parts=said["content"])
    assert started.status_code == 202, started.content
    await lifecycle.wait_turn(turn["session_id"], started.json()["id"], owner_id=alice.pk)
    assert await db(types_of, alice) == [("image", len(PICTURE)), ("pdf", len(PDF))]
    assert len(await db(list_sessions, owner_id=alice.pk)) == 1


async def test_tokens_are_counted_without_fetching(alice: Any, pictures: PictureServer, program: Program) -> None:
    asked = messages(f"{pictures.url}/quay.png", f"{pictures.url}/tides.pdf")
    counted = await program.post("/v1/messages/count_tokens", model="demo", **asked)
    assert counted.json()["input_tokens"] > 1_000
    assert pictures.paths == []
