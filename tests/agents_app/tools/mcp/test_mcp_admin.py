"""Tool servers in the admin, and the page of tools."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agents_app import store
from agents_app.models import McpServer
from agents_app.queries import list_servers, load_server
from mnesis_core.turns.mcp_servers import ListedTool, ServerAddress, take_listing
from tests.support.record.inspected import list_of, page_of
from tests.support.servers.mcp_servers import hostile
from tests.support.sites.listed import list_for_pages

pytestmark = pytest.mark.django_db(transaction=True)
EVIL = "<script>alert(1)</script> \u202eevil\u2066"


@pytest.fixture(autouse=True)
def listed_things(settings: Any) -> None:
    list_for_pages(settings)


@pytest.fixture
def admin(transactional_db: None) -> Client:
    browser = Client()
    browser.force_login(get_user_model().objects.create_superuser("ada"))
    return browser


@pytest.fixture
def ask(admin: Client) -> Callable[[str], str]:
    return lambda path: unescape(admin.get(path, follow=True).content.decode())


def filled(address: ServerAddress, **values: Any) -> dict[str, Any]:
    return {
        "name": address.name, "program": shlex.join(address.argv), "url": address.url, "secrets": "",
        "timeout_seconds": "30", "audience": "everybody", **values,
    }  # fmt: skip


def attach(name: str, *tools: ListedTool) -> str:
    server_id = store.put_server(ServerAddress(name=name, url="http://127.0.0.1:9/mcp"))
    store.put_listing(server_id, take_listing(name, tools))
    return server_id


def listed(name: str, description: str = "") -> ListedTool:
    return ListedTool(name=name, description=description, schema={"type": "object", "properties": {"path": {}}})


def test_a_server_can_be_looked_at_and_its_forms_are_the_page_of_tools(admin, ask):
    attach("files", listed("read", EVIL))
    store.put_server(replace(load_server("files").address, secrets={"TOKEN": "PATH"}))
    old = McpServer.objects.get(removed_at__isnull=False)
    row = McpServer.objects.get(removed_at=None)
    page = ask(page_of(row))
    assert "PATH (set)" in page
    assert reverse("server-change", args=["files"]) in page
    assert reverse("server-remove", args=["files"]) in page
    assert admin.get(list_of(McpServer, "add")).headers["Location"] == reverse("server-add")
    assert admin.post(page_of(row), filled(hostile("plain"))).status_code == 403
    shown = ask(page_of(old))
    assert "read-only" not in shown
    assert "read" in shown
    assert "\u202e" not in shown
    assert "Change it" not in shown
    listing = ask(list_of(McpServer))
    assert "not listed yet" in listing
    assert "127.0.0.1:9" in listing


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "A b"}, "name must be 1 to 32"),
        ({"program": "'unclosed"}, "the program cannot be read"),
        ({"program": ""}, "either the program to start or the url"),
        ({"secrets": "sk-123"}, "not NAME=VARIABLE"),
        ({"timeout_seconds": "0"}, "timeout_seconds must lie between 1"),
        ({"timeout_seconds": "many"}, "Enter a number."),
        ({"name": "taken"}, "attached already"),
    ],
)
def test_mistakes_are_said_at_the_form(admin, values, words):
    attach("taken")
    answer = admin.post(reverse("server-add"), filled(hostile("plain"), **values))
    assert answer.status_code == 200
    assert words in unescape(answer.content.decode())
    assert McpServer.objects.count() == 1


def test_who_may_not_change_servers_cannot(transactional_db):
    browser = Client()
    browser.force_login(User.objects.create_user("staff", is_staff=True))
    assert browser.post(list_of(McpServer, "add"), filled(hostile("plain"))).status_code == 403
    assert list_servers() == []


def test_the_page_of_tools_shows_each_with_what_it_may_do(ask):
    attach("files", listed("read", f"Read. {EVIL}\n\nMore of it."), *(listed(f"more{number}") for number in range(60)))
    page = ask("/tools/")
    assert page.count('<details class="tool-entry"') >= 65
    for words in (
        "calculator",
        "Built in",
        "MCP server files",
        "files__read",
        "files__more59",
        "More of it.",
        '"path": {}',
    ):
        assert words in page
    assert "\u202e" not in page
    assert "No description." in page
    found = ask("/tools/?q=CALC")
    assert "calculator" in found
    assert "files__read" not in found


def test_text_of_a_server_is_never_markup(admin):
    attach("files", listed("read", EVIL))
    page = admin.get("/tools/").content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_page_says_what_is_missing(admin, ask):
    assert "No tools match “<bdi>nowhere</bdi>”" in ask("/tools/?q=nowhere")
    attach("empty")
    store.note_problem(attach("away", listed("act")), "gone: /secret/path")
    store.put_server(ServerAddress(name="new", url="http://127.0.0.1:9/mcp"))
    for_administrators = ask("/tools/")
    assert "gone: /secret/path" in for_administrators
    assert "not listed yet" in for_administrators
    assert "Attach a server" in for_administrators
    admin.force_login(User.objects.create_user("alice"))
    page = ask("/tools/")
    assert "This server has no tools." in page
    assert "The tools of this server have not been listed yet." in page
    assert "Not reachable since" in page
    assert "/secret/path" not in page


def test_the_page_is_for_who_is_signed_in(transactional_db):
    browser = Client()
    assert browser.get("/tools/").status_code == 302
    browser.force_login(User.objects.create_user("alice"))
    assert "Attach a server" not in browser.get("/tools/").content.decode()
    assert '<a href="/tools/">Tools</a>' in browser.get("/").content.decode()
