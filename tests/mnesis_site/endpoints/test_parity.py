"""The same fault has the same code and the same words at every endpoint."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client
from mcp.client.client import Client as McpClient

from agents_app.endpoints.mcp_server import always, make_server
from agents_app.turns import lifecycle
from agents_app.turns.claim import claim_turn
from agents_app.turns.runner import runner
from mnesis_core.errors import (
    AssistantNotFoundError,
    AtCapacity,
    DatabaseUnavailable,
    InvalidRequest,
    MnesisError,
    ModelNotFoundError,
    PermissionDenied,
    RequestTooLarge,
    SessionArchived,
    SessionBusy,
    SessionNotFoundError,
    SessionNotRunning,
)
from mnesis_core.records import SessionRecord
from mnesis_site.asgi import application
from sessions_app.assistants import assistant_store
from sessions_app.conf import site_config
from sessions_app.llm.model_store import create_key
from tests.mnesis_site.endpoints.test_sockets import open_socket
from tests.support.people.cast import caller_of
from tests.support.people.organisations import put_into

Told = tuple[str, str]
"""A code and its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a caller wants: a turn, an interrupt, or a session."""

    verb: str
    user: User
    session_id: str = ""
    message: Any = "Hello"
    model: str = ""
    assistant: str = ""
    scope: str = "all"


def program(wish: Wish) -> Client:
    key = create_key(owner_id=wish.user.pk, scope=wish.scope)
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"})


def rest(wish: Wish) -> Told:
    path = {
        "turn": f"/api/sessions/{wish.session_id}/turns",
        "interrupt": f"/api/sessions/{wish.session_id}/interrupt",
        "create": "/api/sessions",
    }[wish.verb]
    new = {"model": wish.model, "assistant_id": wish.assistant}
    body = {"message": wish.message} if wish.verb == "turn" else new
    error = program(wish).post(path, body, content_type="application/json").json()["error"]
    return error["code"], error["message"]


def rpc(wish: Wish) -> Told:
    method = {"turn": "turn/start", "interrupt": "session/interrupt", "create": "session/create"}[wish.verb]
    params = {"session_id": wish.session_id, "message": wish.message}
    new = {"model": wish.model, "assistant_id": wish.assistant}
    asked = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": params if wish.verb != "create" else new,
    }
    error = program(wish).post("/rpc", asked, content_type="application/json").json()["error"]
    return error["data"]["code"], error["message"]


def mcp(wish: Wish) -> Told:
    tool = {"turn": "mnesis_resume", "interrupt": "mnesis_interrupt", "create": "mnesis_run"}[wish.verb]
    given = {
        "turn": {"session_id": wish.session_id, "message": wish.message},
        "interrupt": {"session_id": wish.session_id},
        "create": {"message": wish.message, "model": wish.model, "assistant": wish.assistant},
    }[wish.verb]
    caller = caller_of(wish.user, may_write=wish.scope == "all")

    async def call() -> Told:
        async with McpClient(make_server(always(caller))) as client:
            result = await client.call_tool(tool, given)
        error = result.structured_content["error"]
        return error["code"], error["message"]

    return asyncio.run(call())


def openai(wish: Wish) -> Told:
    model = f"assistant/{wish.assistant}" if wish.assistant else wish.model or "demo"
    body = {"model": model, "messages": [{"role": "user", "content": wish.message}]}
    headers = {"X-Mnesis-Session": wish.session_id} if wish.session_id else {}
    error = (
        program(wish)
        .post("/v1/chat/completions", body, content_type="application/json", headers=headers)
        .json()["error"]
    )
    return error["code"], error["message"]


def socket(wish: Wish) -> Told:
    key = create_key(owner_id=wish.user.pk, scope=wish.scope)

    async def call() -> Told:
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
        opened = open_socket(application, f"/ws/sessions/{wish.session_id}", headers)
        await opened.send_input({"type": "websocket.connect"})
        await opened.send_input(
            {"type": "websocket.receive", "text": json.dumps({"type": wish.verb, "message": wish.message})}
        )
        while True:
            frame = json.loads((await opened.receive_output(60)).get("text", "{}"))
            if frame.get("type") == "error":
                await opened.send_input({"type": "websocket.disconnect", "code": 1000})
                await opened.wait()
                return frame["error"]["code"], frame["error"]["message"]

    return asyncio.run(call())


def command(wish: Wish) -> Told:
    words = {
        "turn": ("resume", wish.session_id, wish.message),
        "interrupt": ("sessions", "interrupt", wish.session_id),
        "create": ("run", "--model", wish.model, "--assistant", wish.assistant, wish.message),
    }[wish.verb]
    output = io.StringIO()
    with pytest.raises(CommandError):
        call_command(*words, "--user", wish.user.username, "--json", stdout=output, stderr=io.StringIO())
    error = json.loads(output.getvalue())["error"]
    return error["code"], error["message"]


Endpoint = Callable[[Wish], Told]
EVERY: tuple[Endpoint, ...] = (rest, rpc, mcp, openai, socket, command)


def expect(error: MnesisError, wish: Wish, *, but: tuple[Endpoint, ...] = ()) -> None:
    """Every endpoint tells this error, but those that cannot be asked so."""
    endpoints = [endpoint for endpoint in EVERY if endpoint not in but]
    told = {endpoint.__name__: endpoint(wish) for endpoint in endpoints}
    assert told == {endpoint.__name__: (error.code, error.message) for endpoint in endpoints}


@pytest.fixture
def alice(transactional_db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def session(alice: User) -> SessionRecord:
    return lifecycle.create_session(owner=alice)


# A socket of a session that is not there is closed with 4404 before any frame.
@pytest.mark.parametrize("id", ["sess_nobody", "x", "␛0000"])
def test_a_session_that_is_not_there(alice: User, id: str) -> None:
    expect(SessionNotFoundError(), Wish(verb="turn", user=alice, session_id=id), but=(socket,))
    expect(SessionNotFoundError(), Wish(verb="interrupt", user=alice, session_id=id), but=(socket, openai))


def test_somebody_elses_session(session: SessionRecord) -> None:
    eve = User.objects.create_user("eve")
    expect(SessionNotFoundError(), Wish(verb="turn", user=eve, session_id=session.id), but=(socket,))


def test_ones_own_session_in_an_organisation_that_one_left(alice: User, session: SessionRecord) -> None:
    put_into("other", alice.pk)
    expect(SessionNotFoundError(), Wish(verb="turn", user=alice, session_id=session.id), but=(socket,))


def test_a_busy_session(alice: User, session: SessionRecord) -> None:
    claim_turn(session.id, owner_id=alice.pk, message="First", idempotency_key=None, lease_owner="elsewhere")
    expect(SessionBusy(), Wish(verb="turn", user=alice, session_id=session.id))


def test_an_archived_session(alice: User, session: SessionRecord) -> None:
    lifecycle.archive_session(session.id, owner_id=alice.pk)
    expect(SessionArchived(), Wish(verb="turn", user=alice, session_id=session.id))


def test_a_server_that_is_full(alice: User, session: SessionRecord) -> None:
    with ExitStack() as permits:
        for _ in range(site_config().turn.capacity):
            permits.enter_context(runner.permit())
        expect(AtCapacity(), Wish(verb="turn", user=alice, session_id=session.id))


def test_a_database_that_is_away(alice: User, session: SessionRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **values: Any) -> None:
        raise OperationalError("it is away")

    monkeypatch.setattr(lifecycle, "interrupt", fail)
    expect(DatabaseUnavailable(), Wish(verb="interrupt", user=alice, session_id=session.id), but=(openai,))


def test_a_mistake_of_ours_says_nothing_of_itself(
    alice: User, session: SessionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **values: Any) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(lifecycle, "interrupt", fail)
    expect(MnesisError(), Wish(verb="interrupt", user=alice, session_id=session.id), but=(openai,))


def test_nothing_to_interrupt(alice: User, session: SessionRecord) -> None:
    expect(SessionNotRunning(), Wish(verb="interrupt", user=alice, session_id=session.id), but=(openai,))


def test_an_empty_message(alice: User, session: SessionRecord) -> None:
    error = InvalidRequest("message is empty")
    expect(error, Wish(verb="turn", user=alice, session_id=session.id, message=" "))


def test_a_message_that_is_too_long(alice: User, session: SessionRecord) -> None:
    limit = site_config().limits.message_characters
    words = f"message has {limit + 1:,} characters; {limit:,} are allowed. Upload long texts as files."
    wish = Wish(verb="turn", user=alice, session_id=session.id, message="x" * (limit + 1))
    expect(RequestTooLarge(words), wish)


def test_a_message_that_is_no_text(alice: User, session: SessionRecord) -> None:
    error = InvalidRequest("The request is not valid. message: Input should be a valid string")
    # Arguments of a command are text, and OpenAI's messages have a shape of their own.
    expect(error, Wish(verb="turn", user=alice, session_id=session.id, message=5), but=(command, openai))


def test_a_model_that_is_not_there(alice: User) -> None:
    wish = Wish(verb="create", user=alice, model="none")
    told = {endpoint.__name__: endpoint(wish) for endpoint in (rest, rpc, mcp, openai, command)}
    assert {code for code, _ in told.values()} == {ModelNotFoundError.code}
    assert len({words for _, words in told.values()}) == 1, told


@pytest.mark.parametrize("id", ["asst_nobody", "x", "\u202ea\0"])
def test_an_assistant_that_is_not_there(alice: User, id: str) -> None:
    expect(AssistantNotFoundError(), Wish(verb="create", user=alice, assistant=id), but=(socket,))


def test_somebody_elses_assistant(alice: User) -> None:
    eve = User.objects.create_user("eve")
    assistant = assistant_store.create_assistant(owner_id=alice.pk, name="Pilot")
    expect(AssistantNotFoundError(), Wish(verb="create", user=eve, assistant=assistant.id), but=(socket,))


def test_a_key_for_reading(alice: User, session: SessionRecord) -> None:
    error = PermissionDenied("This API key is read-only. Create one with '--scope all' to write.")
    expect(error, Wish(verb="turn", user=alice, session_id=session.id, scope="read"), but=(command,))
