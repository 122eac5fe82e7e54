"""What a page may name of a tool server: what the host's owner has listed. A command on the host names what it likes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.test import Client

from agents_app import store
from agents_app.queries import list_servers, load_server
from agents_app.tools.pages import attach_server, list_again
from mnesis_core.errors import NotListed, ToolServerUnreachable
from mnesis_core.network import hosts
from mnesis_core.turns.mcp_servers import ServerAddress
from sessions_app.database.threads import db
from tests.agents_app.tools.mcp.test_mcp_admin import filled
from tests.support.people.cast import make_user
from tests.support.servers.mcp_servers import example_over_http, hostile
from tests.support.sites.listed import list_on_host

pytestmark = pytest.mark.django_db(transaction=True)
FORM = "/tools/servers/add/"
GOOD = shlex.join(hostile("plain").argv)


@pytest.fixture
def staff(transactional_db: None) -> Client:
    """A user who may change servers, and has nothing to do with the host."""
    user = make_user("eve")
    user.is_staff = True
    user.save()
    user.user_permissions.set(Permission.objects.filter(codename__in=["add_mcpserver", "change_mcpserver"]))
    browser = Client()
    browser.force_login(user)
    return browser


@pytest.fixture(scope="module")
def over_http() -> Iterator[ServerAddress]:
    with example_over_http() as address:
        yield address


def refused(browser: Client, path: str, **values: Any) -> str:
    """The words that refuse a form."""
    answer = browser.post(path, filled(ServerAddress(name="mine"), **values))
    assert answer.status_code == 200, answer.content
    words = unescape(answer.content.decode())
    assert re.search("is not on the list of this host|is never given away|hands out the credentials", words)
    return words


@pytest.mark.parametrize(
    "command",
    ["sh -c {}", "{python} -c pass {}", "npx -c {}", "npx --package evil {}", "uvx --from evil {}", GOOD + " {}"],
)
def test_a_page_starts_no_program_that_is_not_listed(
    command: str, staff: Client, settings: Any, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    list_on_host(settings, programs=GOOD)
    words = refused(staff, FORM, program=command.format(shlex.quote(f"id > {proof}"), python=sys.executable))
    assert "MNESIS_MCP_PROGRAMS=" in words
    assert (list_servers(), proof.exists()) == ([], False)


def test_a_page_starts_what_is_listed(staff: Client, settings: Any) -> None:
    list_on_host(settings, programs=GOOD, variables="LANG")
    page = staff.post(FORM, filled(hostile("plain"), secrets="TOKEN=LANG"), follow=True)
    assert page.status_code == 200
    assert load_server("hostile").address.argv == hostile("plain").argv
    assert not load_server("hostile").address.entered_on_host


@pytest.mark.parametrize("variable", ["SECRET_KEY", "DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "OTHER_KEY"])
def test_a_page_sends_no_variable_that_is_not_listed_for_its_address(
    variable: str, staff: Client, settings: Any
) -> None:
    list_on_host(settings, variables="OTHER_KEY@mcp.example.org, OTHER_KEY")
    refused(staff, FORM, url="https://evil.example/mcp", secrets=f"X-Steal={variable}")
    assert list_servers() == []


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/mcp", "http://127.0.0.1:6379/", "http://2130706433/", "http://[::ffff:10.0.0.1]/mcp"],
)
def test_a_page_names_no_address_inside_the_network(url: str, staff: Client, settings: Any) -> None:
    list_on_host(settings)
    words = refused(staff, FORM, url=url)
    assert ("MNESIS_PRIVATE_ADDRESSES=" in words) is ("169.254" not in url)


async def test_a_name_that_leads_inside_is_refused_when_it_is_connected_to(
    over_http: ServerAddress, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [["127.0.0.1"]]
    monkeypatch.setattr(hosts, "look_up", lambda host, port: answers[0])
    # A name that the server takes for its own, as our Host header still says it.
    named = ServerAddress(name="named", url=over_http.url.replace("127.0.0.1", "localhost"))
    list_on_host(settings, addresses="127.0.0.1")
    server = await attach_server(named)
    assert server.problem == ""
    assert len(server.listing.tools) > 0
    answers[0] = ["127.0.0.1", "10.0.0.7"]
    with pytest.raises(ToolServerUnreachable, match=r"10\.0\.0\.7 is no public address"):
        await list_again("named")
    list_on_host(settings)
    answers[0] = ["127.0.0.1"]
    server = await attach_server(replace(named, url=over_http.url.replace("127.0.0.1", "inside.test")))
    assert "MNESIS_PRIVATE_ADDRESSES=127.0.0.1" in server.problem


async def test_a_list_that_became_shorter_holds_for_what_was_entered_before(settings: Any) -> None:
    address = ServerAddress(name="hostile", argv=hostile("plain").argv, secrets={"TOKEN": "LANG"})
    list_on_host(settings, programs=GOOD, variables="LANG")
    await db(lambda: store.enter_server(address, audience=None))
    list_on_host(settings)
    with pytest.raises(ToolServerUnreachable, match="MNESIS_MCP_PROGRAMS="):
        await list_again("hostile")


def test_a_command_on_the_host_attaches_what_it_likes(settings: Any, over_http: ServerAddress, capsys: Any) -> None:
    list_on_host(settings)
    call_command("mcp_server", "add", "web", "--url", over_http.url, "--secret", "X-Word=PATH")
    call_command("mcp_server", "add", "prog", "--secret", "TOKEN=PATH", "--program", *hostile("plain").argv)
    assert "1 tools" in capsys.readouterr().out
    assert [server.address.entered_on_host for server in list_servers()] == [True, True]
    assert not [server.problem for server in list_servers() if server.problem]


def test_a_page_changes_how_far_a_hosts_server_is_trusted_and_not_how_it_is_reached(
    staff: Client, settings: Any
) -> None:
    list_on_host(settings)
    store.put_server(hostile("plain", secrets={"TOKEN": "PATH"}))
    path = "/tools/servers/hostile/change/"
    same = {"program": GOOD, "secrets": "TOKEN=PATH"}
    staff.post(path, filled(hostile("plain"), **same, needs_approval="on"))
    server = load_server("hostile")
    assert (server.address.needs_approval, server.address.entered_on_host, server.problem) == (True, True, "")
    for changed in (
        {"program": f"{GOOD} more"},
        {"secrets": "TOKEN=HOME"},
        {"program": "", "url": "https://evil.example/"},
    ):
        refused(staff, path, **same | changed)
    assert load_server("hostile").address.reached == hostile("plain", secrets={"TOKEN": "PATH"}).reached


def test_the_domain_refuses_what_a_form_would_let_pass(settings: Any, transactional_db: None) -> None:
    list_on_host(settings)
    with pytest.raises(NotListed) as error:
        store.enter_server(hostile("plain"), audience=None)
    assert (error.value.code, error.value.status) == ("NOT_LISTED", 403)
    assert list_servers() == []


def test_the_form_says_what_is_listed(staff: Client, settings: Any) -> None:
    list_on_host(settings)
    page = unescape(staff.get("/tools/servers/add/").content.decode())
    assert "No program is listed on this host (MNESIS_MCP_PROGRAMS)" in page
    list_on_host(settings, programs="npx -y pkg /srv/docs; uvx thing ...", variables="MY_KEY@mcp.example.org")
    page = unescape(staff.get("/tools/servers/add/").content.decode())
    for words in ("npx -y pkg /srv/docs", "uvx thing ...", "MY_KEY@https://mcp.example.org:443"):
        assert words in page
