"""Who may be offered the tools of a server: for others there is no such server, at any endpoint."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from agents_app import store
from agents_app.queries import load_server
from agents_app.tools.registry import check_tools, list_tools, offered_tools
from agents_app.turns import lifecycle
from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import ToolState
from mnesis_core.turns.mcp_servers import ListedTool, ServerAddress, take_listing
from sessions_app.database.threads import db
from sessions_app.llm.model_store import Audience, create_key
from tests.agents_app.tools.mcp.test_mcp_admin import filled
from tests.support.people.cast import make_user
from tests.support.people.story import history, say, tool_call
from tests.support.sites.listed import list_for_pages

pytestmark = pytest.mark.django_db(transaction=True)
WANTED = ("inner__*", "inner__act", "calculator")


@pytest.fixture(autouse=True)
def listed_things(settings: Any) -> None:
    list_for_pages(settings)


@pytest.fixture
def grace(transactional_db: None) -> User:
    return make_user("grace")


@pytest.fixture
def circle(grace: User) -> Group:
    """A group, in which Grace is."""
    group = Group.objects.create(name="inner circle")
    group.user_set.add(grace)
    return group


@pytest.fixture
def inner(circle: Group) -> str:
    """A server for that group."""
    return attach(Audience(groups=[circle]))


def attach(audience: Audience | None) -> str:
    """Attach a server as if it had listed a tool."""
    address = ServerAddress(name="inner", url="http://127.0.0.1:9/mcp")
    return list_act(store.enter_server(address, audience=audience))


def list_act(server_id: str) -> str:
    """Let a server have listed a tool."""
    listed = [ListedTool(name="act", description="Acts.", schema={"type": "object"})]
    store.put_listing(server_id, take_listing("inner", listed))
    return server_id


def offered(user: User) -> list[str]:
    return list(offered_tools(WANTED, user_id=user.pk))


def test_a_server_is_for_everybody_until_somebody_is_named(alice: User, grace: User) -> None:
    attach(None)
    assert offered(alice) == offered(grace) == ["inner__act", "calculator"]


def test_its_tools_are_offered_to_a_group_or_a_person_and_others_have_never_heard_of_them(
    alice: User, grace: User, inner: str
) -> None:
    assert (offered(grace), offered(alice)) == (["inner__act", "calculator"], ["calculator"])
    known = {user: {tool.spec.name for tool in list_tools(user_id=user.pk)} for user in (alice, grace)}
    assert known[grace] - known[alice] == {"inner__act"}
    with pytest.raises(InvalidRequest) as refused:
        check_tools(["inner__act"], user_id=alice.pk)
    with pytest.raises(InvalidRequest) as unknown:
        check_tools(["nosuch__act"], user_id=alice.pk)
    assert str(refused.value).replace("inner", "nosuch") == str(unknown.value)
    attach(Audience(users=[alice]))
    assert (offered(alice), offered(grace)) == (["inner__act", "calculator"], ["calculator"])


def test_every_endpoint_keeps_it_from_others(alice: User, grace: User, inner: str) -> None:
    for user, is_there in ((alice, False), (grace, True)):
        browser = Client()
        browser.force_login(user)
        assert ("inner" in browser.get("/tools/").content.decode()) is is_there
        headers = {"Authorization": f"Bearer {create_key(owner_id=user.pk)}"}
        assert ("inner__act" in browser.get("/api/tools", headers=headers).content.decode()) is is_there
        asked = {"config": {"turn": {"tools": ["inner__*"]}}}
        made = browser.post("/api/sessions", asked, content_type="application/json", headers=headers)
        assert made.status_code == (201 if is_there else 422)
        session = lifecycle.create_session(owner=user)
        asked = {"session_id": session.id, "template": "{{ item }}", "items": [1], "tools": ["inner__act"]}
        begun = browser.post("/api/operators/agentic-map", asked, content_type="application/json", headers=headers)
        assert begun.status_code == (202 if is_there else 422)


def test_one_that_has_listed_nothing_yet_is_not_named_to_others(alice: User, grace: User) -> None:
    store.enter_server(ServerAddress(name="inner", url="http://127.0.0.1:9/mcp"), audience=Audience(users=[grace]))
    browser = Client()
    browser.force_login(alice)
    assert "inner" not in browser.get("/tools/").content.decode()


def test_another_address_is_for_the_same_people(alice: User, grace: User, inner: str) -> None:
    list_act(store.put_server(ServerAddress(name="inner", url="http://127.0.0.1:10/mcp")))
    assert load_server("inner").is_restricted
    assert (offered(grace), offered(alice)) == (["inner__act", "calculator"], ["calculator"])


def test_one_whose_last_group_is_gone_is_not_open_to_all(alice: User, grace: User, circle: Group, inner: str) -> None:
    circle.delete()
    assert offered(alice) == offered(grace) == ["calculator"]
    assert offered(User.objects.create_superuser("root")) == ["inner__act", "calculator"]


def test_a_new_server_of_a_removed_ones_name_is_for_everybody(alice: User, inner: str) -> None:
    store.remove_server("inner")
    store.put_server(ServerAddress(name="inner", url="http://127.0.0.1:9/mcp"))
    assert not load_server("inner").is_restricted


async def test_who_may_no_longer_have_it_is_not_offered_it_in_the_next_turn(alice, script) -> None:
    await db(attach, Audience(users=[alice]))
    asked = {"turn": {"tools": ["inner__*", "calculator"]}}
    session = await db(lambda: lifecycle.create_session(owner=alice, config=asked))
    await db(attach, Audience())
    model = script(tool_call("inner__act"), "I see.")
    turn = await say(session, "Go")
    assert [item["function"]["name"] for item in model.requests[0].payload["tools"]] == ["calculator"]
    part = (await history(session))[1].parts[0].part
    assert (turn.state, part.state) == ("completed", ToolState.ERROR)
    assert "no tool is called 'inner__act'" in str(part.error)


@pytest.fixture
def admin(transactional_db: None) -> Client:
    browser = Client()
    browser.force_login(User.objects.create_superuser("ada"))
    return browser


NAMED = {"audience": "named", "groups": ["inner circle"], "users": "grace"}


def test_an_administrator_says_who_may_use_it(admin: Client, grace: User, circle: Group) -> None:
    path, start = "/tools/servers/add/", ServerAddress(name="away", argv=("/no/such/program",))
    answer = admin.post(path, filled(start) | {"audience": "named"})
    assert "Name a group or a person" in unescape(answer.content.decode())
    answer = admin.post(path, filled(start) | NAMED | {"users": "nobody"})
    assert "No account is called nobody." in unescape(answer.content.decode())
    admin.post(path, filled(start) | NAMED)
    assert load_server("away").is_restricted
    page = unescape(admin.get("/tools/").content.decode())
    assert "group <bdi>inner circle</bdi>" in page
    form = admin.get("/tools/servers/away/change/").context["form"]
    assert {name: form.initial[name] for name in NAMED} == NAMED


def test_a_removed_server_can_be_looked_at_with_whom_it_was_for(admin: Client, inner: str) -> None:
    store.remove_server("inner")
    page = admin.get(f"/admin/agents_app/mcpserver/{inner}/change/").content.decode()
    assert "group inner circle" in page
