"""A client that may not follow a session any more gets nothing more of it, on a socket and as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from agents_app.turns.runner import runner
from mnesis_core.config import StreamConfig
from mnesis_site.asgi import application
from mnesis_site.people import people_store
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key, revoke_key
from sessions_app.models import ApiKey
from sessions_app.record import session_store
from sessions_app.record.change import change
from tests.support.record.talks import new_session
from tests.support.waiting import PATIENCE_SECONDS

# Committed, because what is tried has connections of its own.
pytestmark = pytest.mark.usefixtures("transactional_db")

RECHECK_SECONDS = 0.2
Headers = list[tuple[bytes, bytes]]


@pytest.fixture(autouse=True)
def often(settings: Settings, tmp_path: Path) -> Iterator[None]:
    """Rights are looked at many times a second."""
    file = tmp_path / "config.toml"
    file.write_text(f"[stream]\nrecheck_seconds = {RECHECK_SECONDS}\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
    site_config.cache_clear()
    yield
    site_config.cache_clear()


@pytest.fixture(autouse=True)
async def quiet() -> AsyncIterator[None]:
    yield
    await runner.shutdown()


@pytest.fixture
def session_id(ada: User) -> str:
    return new_session(ada)


@pytest.fixture
def proofs(ada: User, client: Client) -> dict[str, Headers]:
    """What Ada's requests prove who she is by."""
    client.force_login(ada)
    cookie = f"sessionid={client.cookies['sessionid'].value}".encode()
    key = f"Bearer {create_key(owner_id=ada.pk)}".encode()
    host = (b"host", b"localhost")
    return {
        "by_key": [host, (b"authorization", key)],
        "by_cookie": [host, (b"origin", b"http://localhost"), (b"cookie", cookie)],
    }


def end_key(ada: User, client: Client) -> None:
    revoke_key(ApiKey.objects.get().prefix)


def close_account(ada: User, client: Client) -> None:
    User.objects.filter(pk=ada.pk).update(is_active=False)


def sign_out(ada: User, client: Client) -> None:
    client.logout()


def change_password(ada: User, client: Client) -> None:
    ada.set_password("four five six")
    ada.save()


def sign_out_everywhere(ada: User, client: Client) -> None:
    people_store.sign_out_everywhere(User.objects.create_superuser("chief").pk, ada.pk)


def close_on_the_page(ada: User, client: Client) -> None:
    people_store.close(User.objects.create_superuser("chief").pk, ada.pk)


ENDS = [
    ("by_key", end_key),
    ("by_key", close_account),
    ("by_cookie", close_account),
    ("by_cookie", sign_out),
    ("by_cookie", change_password),
    ("by_cookie", sign_out_everywhere),
    ("by_cookie", close_on_the_page),
    ("by_key", close_on_the_page),
]
in_every_way = pytest.mark.parametrize(("who", "end"), ENDS)


def test_the_shipped_interval_is_within_the_minute() -> None:
    assert 2 * StreamConfig().recheck_seconds <= 60


@asynccontextmanager
async def busy(session_id: str) -> AsyncIterator[None]:
    """All the while something happens in the session; nothing of it goes on after the block."""
    is_over = asyncio.Event()

    async def go_on() -> None:
        for number in count():
            if is_over.is_set():
                return
            await db(rename, session_id, f"number {number}")
            await asyncio.sleep(0.05)

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        is_over.set()
        await task


def rename(session_id: str, title: str) -> None:
    with change(session_id) as record:
        session_store.update_session(record, title=title)


@in_every_way
async def test_a_socket_is_closed_and_says_nothing_more(
    session_id: str, ada: User, client: Client, proofs: dict[str, Headers], who: str, end: Callable[..., None]
) -> None:
    headers = proofs[who]
    path = f"/ws/sessions/{session_id}"
    scope = {"type": "websocket", "path": path, "query_string": b"", "headers": headers, "subprotocols": []}
    socket = ApplicationCommunicator(application, scope)
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output(PATIENCE_SECONDS))["type"] == "websocket.accept"
    async with busy(session_id):
        await read_until(socket, lambda message: "caught_up" in message.get("text", ""))
        await db(end, ada, client)
        last = await read_until(socket, lambda message: message["type"] == "websocket.close")
        assert last["code"] == 4409
        assert await socket.receive_nothing(0.3)
    await socket.send_input({"type": "websocket.disconnect", "code": 4409})
    await socket.wait()


@in_every_way
async def test_an_event_stream_ends_and_says_why(
    session_id: str, ada: User, client: Client, proofs: dict[str, Headers], who: str, end: Callable[..., None]
) -> None:
    headers = proofs[who]
    stream = event_stream_of(session_id, [*headers, (b"accept", b"text/event-stream")])
    await stream.send_input({"type": "http.request", "body": b"", "more_body": False})
    assert (await stream.receive_output(PATIENCE_SECONDS))["status"] == 200
    async with busy(session_id):
        await read_until(stream, lambda message: b"caught_up" in message["body"])
        await db(end, ada, client)
        said = await read_until(stream, lambda message: b"event: error" in message["body"])
        assert json.loads(said["body"].split(b"data: ")[1])["error"]["code"] == "SESSION_NOT_FOUND"
        assert await stream.receive_output(PATIENCE_SECONDS) == {"type": "http.response.body"}
    await stream.wait()


def event_stream_of(session_id: str, headers: Headers) -> ApplicationCommunicator:
    """A request for a session's events as they come."""
    path = f"/api/sessions/{session_id}/events"
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "http_version": "1.1",
    }
    return ApplicationCommunicator(application, scope)


async def read_until(follower: ApplicationCommunicator, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first message that it is."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_it(message := await follower.receive_output(PATIENCE_SECONDS)):
            pass
    return dict(message)
