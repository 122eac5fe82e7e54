"""Tool servers on the page of tools: for administrators only, through the same store as the command."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app import store
from agents_app.models import McpServer
from agents_app.queries import list_servers, load_server
from mnesis_core.turns.mcp_servers import ServerAddress
from tests.agents_app.tools.mcp.test_mcp_admin import filled
from tests.support.people.cast import make_user
from tests.support.servers.mcp_servers import hostile
from tests.support.sites.listed import list_for_pages

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def listed_things(settings: Any) -> None:
    list_for_pages(settings)


@pytest.fixture
def admin(transactional_db: None) -> Client:
    browser = Client()
    browser.force_login(User.objects.create_superuser("ada"))
    return browser


def said(client: Client, path: str, values: dict[str, str]) -> str:
    answer = client.post(path, values, follow=True)
    assert answer.status_code == 200, answer.content
    return unescape(answer.content.decode())


@pytest.mark.slow
def test_a_server_is_attached_asked_changed_and_removed(admin: Client) -> None:
    page = said(admin, "/tools/servers/add/", filled(hostile("plain"), secrets="TOKEN=PATH\n"))
    assert "hostile has 1 tools." in page
    assert "<code>TOKEN</code> from <code>PATH</code>, set" in page
    assert "hostile__act" in page
    changed = filled(hostile("lies"), needs_approval="on", trust_annotations="on", name="other")
    assert "hostile has 3 tools, 3 left out." in said(admin, "/tools/servers/hostile/change/", changed)
    [server] = list_servers()
    assert (server.address.name, server.address.needs_approval, server.address.timeout_seconds) == (
        "hostile",
        True,
        30.0,
    )
    assert "hostile has 3 tools" in said(admin, "/tools/servers/hostile/refresh/", {})
    assert "Remove hostile?" in admin.get("/tools/servers/hostile/remove/").content.decode()
    assert "hostile is removed" in said(admin, "/tools/servers/hostile/remove/", {})
    assert list_servers() == []


def test_one_that_cannot_be_asked_says_why(admin: Client) -> None:
    page = said(admin, "/tools/servers/add/", filled(ServerAddress(name="away", argv=("/no/such/program",))))
    assert "away is attached, but its tools could not be listed" in page
    assert "not reachable" in page
    assert "The tools of the server away could not be listed" in said(admin, "/tools/servers/away/refresh/", {})
    assert load_server("away").problem


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Not Lower"),
        ("name", "taken"),
        ("url", "https://me:hunter2-pass@host/mcp"),
        ("secrets", "TOKEN=sk-hunter2-pass!"),
        ("timeout_seconds", "nan"),
        ("timeout_seconds", "0"),
        ("program", "'unclosed --token=hunter2-pass"),
    ],
)
def test_what_could_not_work_is_refused_and_no_secret_is_shown_again(field: str, value: str, admin: Client) -> None:
    store.put_server(ServerAddress(name="taken", url="http://127.0.0.1:9/mcp"))
    start = ServerAddress(name="new", url="" if field == "program" else "http://127.0.0.1:9/mcp")
    answer = admin.post("/tools/servers/add/", filled(start) | {field: value})
    assert answer.status_code == 200
    assert field in answer.context["form"].errors
    assert "hunter2-pass" not in answer.content.decode()
    assert McpServer.objects.count() == 1


def test_for_others_there_is_no_administration(transactional_db: None) -> None:
    store.put_server(ServerAddress(name="mine", url="http://127.0.0.1:9/mcp", secrets={"TOKEN": "MY_VARIABLE"}))
    client = Client()
    client.force_login(make_user("grace"))
    page = client.get("/tools/").content.decode()
    assert "MY_VARIABLE" not in page
    assert "/tools/servers/" not in page
    for path in ("add", "mine/change", "mine/refresh", "mine/remove"):
        assert client.post(f"/tools/servers/{path}/").status_code == 404, path
    assert [server.address.name for server in list_servers()] == ["mine"]


@pytest.mark.parametrize("name", ["nosuch", "%00", "%ED%A0%80", "x" * 3_000])
def test_an_address_of_no_server_is_not_found(name: str, admin: Client) -> None:
    assert admin.get(f"/tools/servers/{name}/change/").status_code == 404
    assert admin.get(f"/tools/servers/{name}/remove/").status_code == 404
    assert admin.post(f"/tools/servers/{name}/refresh/").status_code == 404
