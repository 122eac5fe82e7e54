"""What stayed in an organisation that its owner has left is not found at any address, by any method and with any tool."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver
from mcp.client.client import Client as McpClient

from agents_app.endpoints import jsonrpc
from agents_app.endpoints.mcp_server import always, make_server
from mnesis_site.asgi import application
from mnesis_site.endpoints import api
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from tests.mnesis_site.endpoints.test_sockets import open_socket
from tests.support.people.cast import caller_of
from tests.support.people.organisations import put_into
from tests.support.record.belongings import SECRET, Person, Things, belongings, person

pytestmark = [pytest.mark.both_databases, pytest.mark.usefixtures("transactional_db")]

PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
OURS = ("api/", "sessions/", "summaries/", "files/", "runs/")
# Asked with the id of a session of their own, they are about something else.
NO_SESSION_OF_ONES_OWN = ("import_id", "upload_id")


# What a call needs beyond the fields that its schema requires.
NEEDED = {"/fork": {"at_message_id": "x"}, "/turns": {"message": "x"}}


@pytest.fixture
def alice() -> Person:
    return person("alice")


@pytest.fixture
def things(alice: Person) -> Things:
    return belongings(alice)


def ids_of(alice: Person, things: Things) -> dict[str, list[Any]]:
    """What each parameter of an address may name."""
    return {
        "session_id": [alice.session_id, things.child, things.fork],
        "run_id": [things.run, things.map],
        "message_id": [things.message],
        "source_id": [things.first],
        "part_id": [things.tool],
        "call_id": [things.call],
        "turn_id": [things.answered],
        "summary_id": [things.summary],
        "fact_id": [things.fact],
        "preview_id": [things.preview],
        "try_id": [things.attempt],
        "file_id": [things.file],
        "inbox_id": [things.letter],
        "share_id": [things.share],
        "project_id": [things.project],
        "assistant_id": [things.assistant],
        "assistant_file_id": [things.assistant_file],
        "prompt_id": [things.prompt],
        "project_file_id": [things.project_file],
        "member_id": [things.member],
        "field": ["output"],
        "number": [1],
        "attempt": [1],
        "seq": [1],
        "item": [1],
        "place": [1],
        "question": [1],
        "left": [0],
        "right": [1],
    }


def addresses(ids: dict[str, list[Any]]) -> Iterator[str]:
    """Every address of something, with what there is in its places."""

    def routes(resolver: Any, before: str = "") -> Iterator[str]:
        for pattern in resolver.url_patterns:
            route = before + str(pattern.pattern)
            yield from routes(pattern, route) if hasattr(pattern, "url_patterns") else [route]

    for route in sorted({route for route in routes(get_resolver()) if route.startswith(OURS) and "<" in route}):
        names = PARAMETER.findall(route)
        if set(names) & set(NO_SESSION_OF_ONES_OWN):
            continue
        for place in range(max(len(ids[name]) for name in names)):
            values = {name: ids[name][min(place, len(ids[name]) - 1)] for name in names}
            yield "/" + PARAMETER.sub(lambda found, of=values: str(of[found[1]]), route)


def shown(answer: Any) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


@pytest.mark.slow
def test_no_address_shows_it(alice: Person, things: Things) -> None:
    client = Client(headers={"Host": "localhost"}, raise_request_exception=True)
    client.force_login(User.objects.get(pk=alice.owner_id))
    asked = [path for path in addresses(ids_of(alice, things)) if not path.endswith("/events")]
    seen = {path: client.get(path, {"q": SECRET}).status_code for path in asked}
    put_into("other", alice.owner_id)
    for path in asked:
        answer = client.get(path, {"q": SECRET})
        assert answer.status_code in ({404} if seen[path] == 200 else {404, 405, 422}), path
        assert SECRET.encode() not in shown(answer).replace(f"q={SECRET}".encode(), b""), path
    assert sum(status == 200 for status in seen.values()) > 90
    for path in (
        "/",
        "/sessions/",
        "/sessions/rows/",
        "/search/",
        "/files/",
        "/runs/",
        "/usage/",
        "/api/sessions",
        "/api/search",
    ):
        answer = client.get(path, {"q": SECRET} if "search" in path else {})
        assert alice.session_id.encode() not in shown(answer), path


def body_of(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """The least that a schema takes."""
    if "$ref" in schema:
        return body_of(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    if "anyOf" in schema:
        return body_of(schema["anyOf"][0], document)
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: body_of(fields[name], document) for name in schema.get("required", ())}
        case "array":
            return [body_of(schema["items"], document)]
        case "integer":
            return 1
        case "boolean":
            return True
    return schema.get("enum", ["x"])[0]


@pytest.mark.slow
def test_no_call_changes_it(alice: Person, things: Things) -> None:
    client = Client(headers={"Host": "localhost"})
    client.force_login(User.objects.get(pk=alice.owner_id))
    put_into("other", alice.owner_id)
    ids, document, called = ids_of(alice, things), api.get_openapi_schema(), 0
    for path, operations in document["paths"].items():
        names = re.findall(r"{(\w+)}", path)
        if not names or set(names) & set(NO_SESSION_OF_ONES_OWN):
            continue
        given = {name: ids[name][-1 if path.startswith("/api/operators") else 0] for name in names}
        for method in set(operations) - {"get"}:
            content = operations[method].get("requestBody", {}).get("content", {})
            body = body_of(content["application/json"]["schema"], document) if "application/json" in content else {}
            body = next((more for end, more in NEEDED.items() if path.endswith(end)), body if body != "x" else {})
            answer = client.generic(method.upper(), path.format(**given), json.dumps(body), "application/json")
            assert (answer.status_code, answer.json()["error"]["code"][-9:]) == (404, "NOT_FOUND"), (method, path, body)
            called += 1
    assert called > 15


async def test_no_method_finds_it(alice: Person, things: Things) -> None:
    caller = caller_of(await db(User.objects.get, pk=alice.owner_id))
    await db(put_into, "other", alice.owner_id)
    ids, called = await db(ids_of, alice, things), 0
    results = [{"tool_call_id": "x", "output": "x"}]
    filled = {"approved": True, "results": results, "at_message_id": "x", "message": "x", "branch": 1, "thumb": "up"}
    for name, method in jsonrpc.METHODS.items():
        fields = method.params.model_fields
        about = next((field for field in ("session_id", *ids) if field in fields), "")
        if not about or (name.startswith("maps/") and about == "session_id" and "run_id" in fields):
            continue
        given = {field: filled.get(field, "x") for field in fields if fields[field].is_required() or field in filled}
        given |= {field: ids[field][-1 if name.startswith("maps/") else 0] for field in ids if field in given}
        asked = {"jsonrpc": "2.0", "id": 1, "method": name, "params": given | {about: ids[about][-1]}}
        if name == "maps/llm" or name == "maps/agentic":
            asked["params"] |= {"template": "{{ item }}", "items": [1]}
        asked["params"] |= {"facts/add": {"kind": "entity"}, "facts/hold": {"held_for": "person"}}.get(name, {})
        if name == "events/subscribe":
            continue
        error = json.loads(await jsonrpc.respond(json.dumps(asked).encode(), caller) or "{}")["error"]
        assert error["data"]["code"].endswith("_NOT_FOUND"), (name, error)
        called += 1
    assert called > 20


async def test_no_tool_finds_it(alice: Person, things: Things) -> None:
    caller = caller_of(await db(User.objects.get, pk=alice.owner_id))
    await db(put_into, "other", alice.owner_id)
    async with McpClient(make_server(always(caller))) as client:
        for tool, given in {
            "mnesis_resume": {"session_id": alice.session_id, "message": "x"},
            "mnesis_interrupt": {"session_id": alice.session_id},
            "mnesis_send": {"session_id": things.child, "text": "x"},
            "lcm_grep": {"q": SECRET, "session_id": alice.session_id},
            "lcm_describe": {"id": things.summary},
            "lcm_expand": {"summary_id": things.summary},
            "lcm_read": {"id": things.message},
            "mnesis_llm_map": {"session_id": alice.session_id, "template": "{{ item }}", "items": [1]},
        }.items():
            result = await client.call_tool(tool, given)
            assert result.is_error, tool
            assert result.structured_content["error"]["code"].endswith("_NOT_FOUND"), (tool, result.content)
        for tool, given in {"lcm_grep": {"q": SECRET}, "mnesis_sessions": {}}.items():
            assert (await client.call_tool(tool, given)).structured_content["items"] == []
        assert not (await client.list_resources()).resources


async def test_no_socket_follows_it_and_none_opens_with_a_key_of_before(alice: Person, things: Things) -> None:
    before = await db(create_key, owner_id=alice.owner_id)
    await db(put_into, "other", alice.owner_id)
    after = await db(create_key, owner_id=alice.owner_id)
    for key, code in ((before, 4401), (after, 4404)):
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
        opened = open_socket(application, f"/ws/sessions/{alice.session_id}", headers)
        await opened.send_input({"type": "websocket.connect"})
        while (frame := await opened.receive_output(60))["type"] != "websocket.close":
            assert frame["type"] == "websocket.accept"
        assert frame["code"] == code
    program = Client(headers={"Authorization": f"Bearer {before}"})
    refused = await db(program.post, "/rpc", "{}", content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (403, "WRONG_ORGANISATION")
