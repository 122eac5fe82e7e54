"""Who is on a socket: programs by key, browsers by cookie together with their Origin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from mnesis_site.asgi import application
from sessions_app.callers import Receive, Scope, Send, SocketAuth
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key

# Committed, because the threads of the sockets have connections of their own.
pytestmark = pytest.mark.usefixtures("transactional_db")

NOBODY = {"user": "", "may_write": False}


async def tell_who(scope: Scope, receive: Receive, send: Send) -> None:
    """A socket that says who is connected."""
    await receive()
    await send({"type": "websocket.accept"})
    answer = {"user": scope["user"].get_username(), "may_write": scope["may_write"]}
    await send({"type": "websocket.send", "text": json.dumps(answer)})


def open_socket(server: Any, path: str, headers: list[tuple[bytes, bytes]]) -> ApplicationCommunicator:
    """A socket to a server. Not the one of Channels: that keeps the database's connections open behind our back."""
    scope = {"type": "websocket", "path": path, "query_string": b"", "headers": headers, "subprotocols": []}
    return ApplicationCommunicator(server, scope)


async def ask_who(**headers: str) -> dict[str, Any] | None:
    """Return who a socket with these headers belongs to; ``None`` when it is refused."""
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    socket = open_socket(SocketAuth(tell_who), "/ws/anything", headers=[(b"host", b"localhost:8000"), *raw])
    await socket.send_input({"type": "websocket.connect"})
    if (await socket.receive_output(60))["type"] != "websocket.accept":
        return None
    answer = json.loads((await socket.receive_output(60))["text"])
    await socket.wait()
    return dict(answer)


@pytest.fixture
def cookie(ada: User, client: Client) -> str:
    client.force_login(ada)
    return f"sessionid={client.cookies['sessionid'].value}"


async def test_a_key_needs_no_origin(ada: User) -> None:
    key = await db(create_key, owner_id=ada.pk)
    assert await ask_who(authorization=f"Bearer {key}") == {"user": "ada", "may_write": True}


async def test_a_reading_key_is_marked(ada: User) -> None:
    key = await db(create_key, owner_id=ada.pk, scope="read")
    assert await ask_who(authorization=f"bearer {key}") == {"user": "ada", "may_write": False}


async def test_a_wrong_key_is_nobody_even_with_a_cookie(cookie: str) -> None:
    assert await ask_who(authorization="Bearer mns_x", cookie=cookie, origin="http://localhost:8000") == NOBODY


async def test_a_cookie_counts_with_our_origin(cookie: str) -> None:
    assert await ask_who(cookie=cookie, origin="http://localhost:8000") == {"user": "ada", "may_write": True}


async def test_a_cookie_without_an_origin_is_nobody(cookie: str) -> None:
    assert await ask_who(cookie=cookie) == NOBODY


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://localhost:9000", "null", "http://[", "", "http://localhost:8000.evil.example"],
)
async def test_a_foreign_origin_is_refused(cookie: str, origin: str) -> None:
    assert await ask_who(cookie=cookie, origin=origin) is None


async def test_a_host_that_is_not_ours_is_refused(cookie: str, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["portal.example"]
    assert await ask_who(cookie=cookie, origin="http://localhost:8000") is None


async def test_a_trusted_origin_is_ours(cookie: str, settings: Settings) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://*.portal.example"]
    assert await ask_who(cookie=cookie, origin="https://a.portal.example") == {"user": "ada", "may_write": True}
    assert await ask_who(cookie=cookie, origin="http://a.portal.example") is None
    assert await ask_who(cookie=cookie, origin="https://portal.example.evil") is None


async def test_an_unknown_path_closes_with_4404() -> None:
    socket = open_socket(application, "/ws/no/such/thing", headers=[(b"host", b"localhost")])
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output(60))["type"] == "websocket.accept"
    assert await socket.receive_output(60) == {"type": "websocket.close", "code": 4404}
