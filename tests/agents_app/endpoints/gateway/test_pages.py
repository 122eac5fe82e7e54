"""What pages and the REST API show of a request that went through the gateway, whatever a client sends."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from sessions_app.database.threads import db
from sessions_app.record.turn_queries import list_calls
from tests.agents_app.endpoints.gateway.client import said, settled, text, user
from tests.support.material.drawings import drawing

pytestmark = pytest.mark.usefixtures("no_connection_left")


async def test_pages_and_the_api_show_what_was_sent(client, provider, alice, async_client):
    tools = [{"name": "look", "description": "Look about.", "input_schema": {"type": "object"}}]
    response = await client.send([user("Hi")], tools=tools)
    session_id = response.headers["X-Mnesis-Session"]
    [call] = await db(list_calls, session_id)
    await async_client.aforce_login(alice)
    page = (await async_client.get(f"/sessions/{session_id}/")).content.decode()
    assert "Through the gateway" in page
    assert "Imported" not in page
    page = (await async_client.get(f"/sessions/{session_id}/inspect/calls/{call.id}/")).content.decode()
    assert "Be brief." in page
    assert "look" in page
    payload = (await client.get(f"/api/calls/{call.id}/payload")).json()
    assert (payload["body"], payload["digest_matches"]) == (provider.last.got.decode(), True)


async def test_the_page_of_a_call_shows_what_is_new_in_its_request(client, provider, alice, async_client):
    history = [user("Hi")]
    for asked in ("How high?", "<b>And now?</b>"):
        response = await client.send(history, tools=[{"name": "look", "input_schema": {"type": "object"}}])
        history += [said(f"Answer {len(provider.exchanged)}."), user(asked)]
    response = await client.send(history, system="Be long.")
    session_id = response.headers["X-Mnesis-Session"]
    await settled(session_id)
    third, second, first = await db(list_calls, session_id)
    await async_client.aforce_login(alice)

    async def changes(call: Any, **query: str) -> list[str]:
        address = f"/sessions/{session_id}/inspect/calls/{call.id}/"
        page = await async_client.get(address, {"section": "difference", **query})
        assert page.status_code == 200
        assert b"<b>And now" not in page.content
        rows = page.content.decode().partition("<tbody")[2].split("<tr")[1:]
        return [" ".join(re.sub("<[^>]*>", " ", row.partition(">")[2]).split()) for row in rows]

    assert [row.split(" ", 2)[:2] for row in await changes(first)] == [
        *(["entered", "System"], ["entered", "Tool"], ["entered", "Message"])
    ]
    new = await changes(second)
    assert [row.rpartition(" ")[0] for row in new] == [
        "entered Message 2 assistant Answer 1. The program sent it with this request.",
        "entered Message 3 user How high? The program sent it with this request.",
    ]
    assert [row.partition(" ")[0] for row in await changes(third)] == ["changed", "left", "entered", "entered"]
    told = (await async_client.get(f"/api/calls/{third.id}/difference")).json()
    assert (told["from"], told["counts"]) == (second.id, {"reworded": 1, "left": 1, "entered": 2})
    assert len(await changes(third, compare=first.id)) == 6
    assert len(await changes(third, change="left")) == 1


async def test_pictures_of_a_request_are_shown_and_nothing_else_is_taken_for_one(
    client, provider, alice, bob, async_client
):
    png, page = drawing(400, 300), b"<script>alert(1)</script>"

    def block(data: bytes) -> dict[str, Any]:
        coded = base64.b64encode(data).decode()
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": coded}}

    away = {"type": "image", "source": {"type": "url", "url": "https://evil.example/a.png"}}
    odd = [away, block(page), block(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), {"type": "image", "source": 5}]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [block(png)]}
    response = await client.send([user([text("What is this?"), block(png), *odd, result])])
    session_id = response.headers["X-Mnesis-Session"]
    [call] = await db(list_calls, session_id)
    address = f"/sessions/{session_id}/inspect/calls/{call.id}/blocks/2/"
    await async_client.aforce_login(alice)
    shown = (await async_client.get(address)).content.decode()
    assert re.findall(r'<img class="block-picture"\s+src="([^"]*)"', shown) == [
        f"{address}pictures/{place}/" for place in (1, 2)
    ]
    assert "What is this?" in shown
    assert base64.b64encode(png).decode() not in shown
    for place in (1, 2):
        picture = await async_client.get(f"{address}pictures/{place}/")
        assert (picture.status_code, picture.content, picture["Content-Type"]) == (200, png, "image/png")
        assert (picture["X-Content-Type-Options"], "sandbox" in picture["Content-Security-Policy"]) == ("nosniff", True)
    for other in ("2/pictures/0", "2/pictures/3", f"2/pictures/{10**30}", "1/pictures/1", "9/pictures/1"):
        assert (await async_client.get(f"{address[:-2]}{other}/")).status_code == 404
    await async_client.aforce_login(bob)
    assert (await async_client.get(f"{address}pictures/1/")).status_code == 404


@pytest.mark.parametrize(
    "odd",
    [
        {"tools": [{"name": "look"}, {"type": "function", "function": {"name": "find", "description": "Finds."}}]},
        {
            "tools": [
                {},
                "tool",
                {"name": 7, "description": ["x"], "function": "f"},
                {"function": {"description": None}},
            ]
        },
        {"tools": {"name": "look"}, "system": [text("\u202e\x00"), 5, None]},
        {"messages": [user([{"type": "text"}, {"type": "image", "source": None}, {"type": 3}, None, "Hi"])]},
        {"messages": [user("Hi"), said(None), user([{"type": "tool_result", "tool_use_id": "no", "content": [[]]}])]},
    ],
)
async def test_the_page_of_a_call_shows_whatever_a_client_sends(client, provider, alice, async_client, odd):
    response = await client.send(odd.pop("messages", [user("Hi")]), **odd)
    if response.status_code >= 400:
        assert (response.status_code, provider.exchanged) == (400, [])
        return
    session_id = response.headers["X-Mnesis-Session"]
    [call] = await db(list_calls, session_id)
    await async_client.aforce_login(alice)
    for section in ("", "?section=payload", "?section=difference"):
        page = await async_client.get(f"/sessions/{session_id}/inspect/calls/{call.id}/{section}")
        assert page.status_code == 200


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize("depth", [90, 150, 860, 900])
async def test_the_page_of_a_call_shows_a_request_however_deep_it_is(client, provider, alice, async_client, depth):
    content = [{"type": "text", "text": "Hi", "more": nested(depth)}]
    response = await client.send([{"role": "user", "content": content}])
    if response.status_code == 400:  # too deep to be read
        assert depth > 800
        return
    session_id = response.headers["X-Mnesis-Session"]
    [call] = await db(list_calls, session_id)
    await async_client.aforce_login(alice)
    pages = [
        await async_client.get(f"/sessions/{session_id}/inspect/calls/{call.id}/{section}")
        for section in ("", "?section=payload", "?section=difference")
    ]
    assert [page.status_code for page in pages] == [200, 200, 200 if depth < 100 else 422]
