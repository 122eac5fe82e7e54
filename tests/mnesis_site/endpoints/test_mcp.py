"""``/mcp`` over HTTP: who may ask, and the official client at the endpoint."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from agents_app.endpoints.mcp_server import TOOLS
from mnesis_site import asgi
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from sessions_app.record.session_store import create_session

# Committed, because what is tried has connections of its own.
pytestmark = pytest.mark.usefixtures("transactional_db")

URL = "http://localhost:8000/mcp"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def browser(**headers: str) -> httpx2.AsyncClient:
    """A client of the site; each has nothing of the others."""
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=asgi.application), headers=headers)  # type: ignore[arg-type]


async def key_of(user: User, scope: str = "all") -> str:
    return f"Bearer {await db(create_key, owner_id=user.pk, scope=scope)}"


async def ask(headers: dict[str, str], body: Any = LIST, method: str = "POST") -> Any:
    async with browser() as client:
        return await client.request(method, URL, headers=ACCEPT | headers, json=body)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_at_the_endpoint(ada: User, mode: Any) -> None:
    session_id = await db(create_session, owner=ada, model="demo", title="Mine")
    async with (
        browser(Authorization=await key_of(ada)) as http,
        Client(streamable_http_client(URL, http_client=http), mode=mode) as client,
    ):
        assert [tool.name for tool in (await client.list_tools()).tools] == [*TOOLS]
        result = await client.call_tool("mnesis_sessions", {})
        assert [item["id"] for item in result.structured_content["items"]] == [session_id]
        read = await client.read_resource(f"mnesis://sessions/{session_id}")
        assert json.loads(read.contents[0].text)["title"] == "Mine"  # type: ignore[union-attr]


async def test_a_request_stands_alone(ada: User) -> None:
    key = await key_of(ada)
    call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "mnesis_sessions", "arguments": {}}}
    answer = await ask({"Authorization": key, "MCP-Protocol-Version": "2025-06-18"}, call)
    assert answer.status_code == 200
    assert '"isError":false' in answer.text
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize("header", ["", "Bearer mns_x", "Bearer", "Basic YTpi"])
async def test_nobody_is_not_signed_in(header: str) -> None:
    answer = await ask({"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["data"]["code"] == "NOT_SIGNED_IN"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Origin": "http://evil.example"}, 403, "PERMISSION_DENIED"),
        ({"Origin": "null"}, 403, "PERMISSION_DENIED"),
        ({"Host": "evil.example"}, 422, "INVALID_REQUEST"),
        ({"Content-Length": "30000000"}, 413, "REQUEST_TOO_LARGE"),
    ],
)
async def test_pages_of_others_and_giants_are_refused(
    ada: User, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await ask({"Authorization": await key_of(ada)} | headers)
    assert (answer.status_code, answer.json()["error"]["data"]["code"]) == (status, code)


async def test_a_page_of_ours_may_ask(ada: User) -> None:
    answer = await ask({"Authorization": await key_of(ada), "Origin": "http://localhost:8000"})
    assert answer.status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_nothing_is_kept_that_one_could_listen_to(ada: User, method: str) -> None:
    answer = await ask({"Authorization": await key_of(ada)}, method=method)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


async def test_a_reading_key_may_not_run(ada: User) -> None:
    key = await key_of(ada, scope="read")
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "mnesis_run", "arguments": {"message": "x"}},
    }
    assert "PERMISSION_DENIED" in (await ask({"Authorization": key}, call)).text


@pytest.mark.parametrize("body", ["nonsense", "[" * 3_000, "{}", '"\\ud800"', "1" * 5_000])
async def test_hostile_bodies_are_no_mistake_of_ours(ada: User, body: str) -> None:
    async with browser(Authorization=await key_of(ada)) as client:
        answer = await client.post(URL, content=body.encode(), headers=ACCEPT | {"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500


async def test_other_paths_are_the_sites() -> None:
    async with browser() as client:
        answer = await client.get("http://localhost:8000/mcp2")
    assert answer.status_code == 404
    assert "jsonrpc" not in answer.text
