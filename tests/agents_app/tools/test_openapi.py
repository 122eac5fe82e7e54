"""Tools from an OpenAPI document, asked for real: attached at the terminal and on the page, called by a model in a turn."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from agents_app import store
from agents_app.queries import load_server
from agents_app.tools import openapi
from agents_app.tools.pages import attach_server
from agents_app.tools.registry import attached_tools
from agents_app.turns import lifecycle
from mnesis_core.errors import InvalidRequest, MnesisError, ToolFailed
from mnesis_core.files.pictures import Shown
from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import ToolPart
from mnesis_core.providers.scripted import Step
from mnesis_core.turns.mcp_servers import AttachedServer, ServerAddress
from sessions_app.database.threads import db
from sessions_app.record.message_queries import load_messages
from tests.agents_app.tools.mcp.test_mcp_admin import filled
from tests.support.servers.openapi_server import PICTURE, OpenAPIServer
from tests.support.sites.listed import list_on_host

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def harbour(settings: Any) -> Iterator[OpenAPIServer]:
    list_on_host(settings, addresses="127.0.0.1")
    with OpenAPIServer() as server:
        yield server


def address_of(harbour: OpenAPIServer, **values: Any) -> ServerAddress:
    return ServerAddress(name="harbour", url=f"{harbour.url}/openapi.json", is_openapi=True, **values)


async def called(server: AttachedServer, name: str, **arguments: Any) -> Any:
    [tool] = [tool for tool in server.listing.tools if tool.remote_name == name]
    return await openapi.call_tool(server, tool, arguments)


async def test_a_tool_is_called_with_the_credentials_of_its_server_and_its_answer_is_read(
    harbour: OpenAPIServer, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HARBOUR_TOKEN", "secret-7")
    secrets = {"Authorization": "HARBOUR_TOKEN"}
    server = await attach_server(address_of(harbour, secrets=secrets, entered_on_host=True))
    assert (server.problem, len(server.listing.tools), len(server.listing.left_out)) == ("", 9, 4)
    said = await called(server, "listTides", harbour="Unst/1", day="2026-11-30")
    assert '"path": "/v2/harbours/Unst%2F1/tides", "query": {"day": ["2026-11-30"]}' in said
    assert harbour.requests[-1]["headers"]["Authorization"] == "Bearer secret-7"
    assert "secret-7" not in said
    assert '\\"text\\": \\"High\\"' in await called(server, "notes_add", body={"text": "High"})
    assert await called(server, "delete_notes_id", id=7) == "204 No Content"
    assert await called(server, "program") == "[application/octet-stream, 500 bytes: not shown]"
    picture = await called(server, "picture")
    assert isinstance(picture, Shown)
    assert [one.data for one in picture.pictures] == [PICTURE]


async def test_what_fails_says_why_and_a_redirect_leads_nowhere(harbour: OpenAPIServer) -> None:
    server = await attach_server(address_of(harbour, entered_on_host=True))
    for name, why in (
        ("refused", "403 Forbidden\nNot for you"),
        ("moved", "302 Found"),
        ("bomb", "more than 24,000,000 bytes"),
    ):
        with pytest.raises(ToolFailed, match=why):
            await called(server, name)
    with pytest.raises(InvalidRequest):
        await called(server, "listTides", harbour="..")
    assert [request["path"] for request in harbour.requests] == [
        "/openapi.json",
        "/v2/refused",
        "/v2/moved",
        "/v2/bomb",
    ]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"swagger": "2.0"}, "not an OpenAPI document of version 3"),
        ([1] * 9, "not an OpenAPI document"),
        ("\ud800", ""),
    ],
)
async def test_a_document_that_cannot_be_read_is_a_problem_of_its_server(
    harbour: OpenAPIServer, document: Any, why: str
) -> None:
    harbour.document = document
    server = await attach_server(address_of(harbour, entered_on_host=True))
    assert (server.listing.tools, why in server.problem, bool(server.problem)) == ((), True, True)


async def test_what_a_page_entered_reaches_no_address_that_is_not_listed(
    harbour: OpenAPIServer, settings: Any, monkeypatch: Any
) -> None:
    server = await attach_server(address_of(harbour))
    assert len(server.listing.tools) == 9
    list_on_host(settings, addresses="10.0.0.1")
    asked = len(harbour.requests)
    with pytest.raises(MnesisError):
        await called(server, "refused")
    assert len(harbour.requests) == asked


async def test_a_model_calls_one_in_a_turn_and_its_answer_is_in_the_record(
    harbour: OpenAPIServer, alice: User, session: Any, script: Any
) -> None:
    await attach_server(address_of(harbour, entered_on_host=True))
    await db(lifecycle.update_session, session.id, owner_id=alice.pk, config={"turn": {"tools": ["harbour__*"]}})
    call = ToolCall(id="c1", name="harbour__listTides", arguments='{"harbour": "Unst"}')
    script(Step(tool_calls=(call,)), "At noon.")
    started = await lifecycle.start_turn(session.id, owner_id=alice.pk, message="When?")
    await lifecycle.wait_turn(session.id, started.turn.id, owner_id=alice.pk)
    parts = [part for one in await db(load_messages, session.id, limit=9) for part in one.parts]
    [kept] = [part.part for part in parts if isinstance(part.part, ToolPart)]
    assert '"path": "/v2/harbours/Unst/tides"' in (kept.output or "")
    assert (await db(load_server, "harbour")).unreachable_since is None


def test_an_api_is_attached_at_the_terminal(harbour: OpenAPIServer) -> None:
    out = StringIO()
    call_command("mcp_server", "add", "harbour", "--openapi", "--url", f"{harbour.url}/openapi.json", stdout=out)
    said = out.getvalue()
    assert "(9 tools, 60 s, OpenAPI)" in said
    assert "harbour__listTides (not known to be read-only; it says: changes nothing)" in said
    assert "left out: upload: its body is neither JSON nor a form" in said
    assert attached_tools(user_id=None)["harbour__listTides"].source == "OpenAPI harbour"


def test_an_api_is_attached_on_the_page(harbour: OpenAPIServer) -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("ada"))
    address = address_of(harbour)
    page = browser.post("/tools/servers/add/", filled(address, is_openapi="on"), follow=True)
    said = unescape(page.content.decode())
    assert "harbour has 9 tools, 4 left out." in said
    assert "GET /harbours/{harbour}/tides" in said
    assert load_server("harbour").address.is_openapi
    empty = filled(address, is_openapi="on", url="", program="/no/such/program")
    refused = unescape(browser.post("/tools/servers/add/", empty | {"name": "other"}).content.decode())
    assert "give the address of the OpenAPI document" in refused


async def test_its_own_address_may_become_anothers_only_with_new_marks(harbour: OpenAPIServer) -> None:
    server = await attach_server(address_of(harbour, entered_on_host=True))
    await db(store.mark_read_only, server.id, {"listTides": server.listing.tools[0].digest})
    plain = ServerAddress(name="harbour", url=server.address.url, entered_on_host=True)
    await db(store.put_server, plain)
    assert (await db(load_server, "harbour")).read_only_tools == {}
