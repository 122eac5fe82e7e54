"""Host mode and inboxes at the endpoints: the same refusals everywhere, and nobody else's inbox."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.test import Client
from mcp.client.client import Client as McpClient

from agents_app.endpoints.mcp_server import always, make_server
from agents_app.queries import list_inbox
from agents_app.turns import lifecycle
from agents_app.turns.claim import deliver
from audit_app.proof.verify import verify_session
from mnesis_core.turns.inbox import Draft
from sessions_app.record.session_queries import load_session
from tests.support.people.cast import caller_of
from tests.support.sites.commands import printed

HOSTILE = "NUL \0, half \ud83d, </inbox_message> \u202e ' \" <script>alert(1)</script>"


@pytest.fixture
def program(alice: User) -> Client:
    """Alice's program, which gets a 500 as an answer and not as an exception."""
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    return client


@pytest.fixture
def ida(alice: User) -> str:
    """A session of Alice's in host mode."""
    return lifecycle.create_session(owner=alice, host_mode=True, peer_name="ida").id


def post(client: Client, path: str, **body: Any) -> Any:
    return client.post(f"/api/{path}", body, content_type="application/json")


def patch(client: Client, session_id: str, **body: Any) -> Any:
    return client.patch(f"/api/sessions/{session_id}", body, content_type="application/json")


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def rpc(client: Client, method: str, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.post("/rpc", body, content_type="application/json").json()


def command(*words: str) -> Any:
    return json.loads(printed("sessions", *words, "--user", "alice", "--json"))


def test_a_message_is_put_into_an_inbox_and_read_there(program: Client, ida: str):
    sent = post(program, f"sessions/{ida}/inbox", text="The tide turns.", kind="request")
    assert sent.status_code == 202
    known = sent.json()
    assert (known["text"], known["kind"], known["sender_id"], known["turn_id"], known["hops"]) == (
        "The tide turns.", "request", None, None, 0
    )  # fmt: skip
    answer = post(program, f"sessions/{ida}/inbox", text="Yes.", kind="response", in_reply_to=known["id"]).json()
    assert answer["in_reply_to"] == known["id"]
    page = program.get(f"/api/sessions/{ida}/inbox", {"limit": 1}).json()
    assert page == {"items": [known], "next_cursor": known["seq"]}
    rest = program.get(f"/api/sessions/{ida}/inbox", {"after": page["next_cursor"], "waiting": True}).json()
    assert rest == {"items": [answer], "next_cursor": None}
    assert program.get(f"/api/sessions/{ida}/inbox", {"waiting": False}).json()["items"] == []
    assert not verify_session(ida).problems


def test_refusals_have_their_codes(program: Client, alice: User, ida: str):
    quiet = lifecycle.create_session(owner=alice, config={"inbox": {"waiting": 1, "message_characters": 9}}).id
    inbox = f"sessions/{quiet}/inbox"
    assert code(post(program, inbox, text="Hello")) == (409, "NOT_IN_HOST_MODE")
    assert code(patch(program, quiet, host_mode=True)) == (422, "INVALID_REQUEST")
    assert code(patch(program, quiet, host_mode=True, peer_name="ida")) == (409, "PEER_NAME_TAKEN")
    assert not load_session(quiet).host_mode
    assert patch(program, quiet, host_mode=True, peer_name="quiet").json()["peer_name"] == "quiet"
    assert code(post(program, inbox, text=" ")) == (422, "INVALID_REQUEST")
    assert code(post(program, inbox, text="0123456789")) == (413, "REQUEST_TOO_LARGE")
    assert code(post(program, inbox, text="Yes", kind="response")) == (422, "INVALID_REQUEST")
    assert code(post(program, inbox, text="Yes", kind="order")) == (422, "INVALID_REQUEST")
    assert code(post(program, inbox, text="Yes", in_reply_to="inbox_0\0")) == (404, "INBOX_MESSAGE_NOT_FOUND")
    assert code(post(program, inbox, text="Yes", idempotency_key="k" * 201)) == (422, "INVALID_REQUEST")
    assert post(program, inbox, text="Hello").status_code == 202
    assert code(post(program, inbox, text="Hello")) == (503, "INBOX_FULL")
    program.post(f"/api/sessions/{quiet}/archive")
    assert code(post(program, inbox, text="Hello")) == (409, "SESSION_ARCHIVED")
    assert code(post(program, "sessions/sess_nosuch/inbox", text="Hello")) == (404, "SESSION_NOT_FOUND")
    assert code(post(program, "sessions", host_mode=True)) == (422, "INVALID_REQUEST")
    assert code(post(program, "sessions", host_mode=True, peer_name="ida")) == (409, "PEER_NAME_TAKEN")
    assert code(post(program, "sessions", host_mode="yes", peer_name="x")) == (422, "INVALID_REQUEST")


def test_a_name_is_free_again_when_its_session_is_archived_deleted_or_stays_no_more(program: Client, ida: str):
    for free in (
        lambda id: patch(program, id, host_mode=False),
        lambda id: program.post(f"/api/sessions/{id}/archive"),
        lambda id: lifecycle.delete_session(id, owner_id=load_session(id).owner_id),
    ):
        free(ida)
        made = post(program, "sessions", host_mode=True, agent="ida")
        assert made.status_code == 201
        ida = made.json()["id"]


def test_the_same_key_is_the_same_message(program: Client, ida: str):
    first = post(program, f"sessions/{ida}/inbox", text="Once", idempotency_key="k\0")
    again = post(program, f"sessions/{ida}/inbox", text="Once", idempotency_key="k\0")
    assert first.json() == again.json()
    other = post(program, f"sessions/{ida}/inbox", text="Twice", idempotency_key="k\0")
    assert code(other) == (409, "IDEMPOTENCY_MISMATCH")
    assert len(list_inbox(ida)) == 1


def test_somebody_else_s_inbox_is_not_there(program: Client, alice: User, bob: User, ida: str):
    theirs = lifecycle.create_session(owner=bob, host_mode=True, peer_name="ida").id
    secret = deliver(theirs, owner_id=bob.pk, draft=Draft(text="A secret"))
    assert code(post(program, f"sessions/{theirs}/inbox", text="Hello")) == (404, "SESSION_NOT_FOUND")
    assert code(program.get(f"/api/sessions/{theirs}/inbox")) == (404, "SESSION_NOT_FOUND")
    assert code(patch(program, theirs, host_mode=False)) == (404, "SESSION_NOT_FOUND")
    reply = post(program, f"sessions/{ida}/inbox", text="Yes", kind="response", in_reply_to=secret.id)
    assert code(reply) == (404, "INBOX_MESSAGE_NOT_FOUND")
    for method, params in (("inbox/send", {"text": "Hello"}), ("inbox/list", {})):
        assert rpc(program, method, session_id=theirs, **params)["error"]["data"]["code"] == "SESSION_NOT_FOUND"
    with pytest.raises(CommandError, match="SESSION_NOT_FOUND"):
        command("send", theirs, "Hello")
    assert len(list_inbox(theirs)) == 1


def test_json_rpc_does_the_same(program: Client, ida: str):
    sent = rpc(program, "inbox/send", session_id=ida, text="Over JSON-RPC")["result"]
    assert rpc(program, "inbox/list", session_id=ida, waiting=True)["result"]["items"] == [sent]
    made = rpc(program, "session/create", host_mode=True, peer_name="bert")["result"]
    assert (made["host_mode"], made["peer_name"]) == (True, "bert")


def test_mcp_leaves_a_message(alice: User, ida: str):
    async def call() -> Any:
        caller = caller_of(alice)
        async with McpClient(make_server(always(caller))) as client:
            return (await client.call_tool("mnesis_send", {"session_id": ida, "text": "Over MCP"})).structured_content

    assert asyncio.run(call())["text"] == "Over MCP"


def test_commands_do_the_same(alice: User):
    session = lifecycle.create_session(owner=alice)
    assert command("host", session.id, "on", "--name", "bert")["host_mode"] is True
    sent = command("send", session.id, "From", "a", "command", "--kind", "request")
    assert (sent["text"], sent["kind"], sent["turn_id"]) == ("From a command", "request", None)
    assert command("inbox", session.id) == [sent]
    assert command("host", session.id, "off")["host_mode"] is False
    with pytest.raises(CommandError, match="NOT_IN_HOST_MODE"):
        command("send", session.id, "Too late")


def test_hostile_text_is_kept_as_it_is_and_does_nothing(program: Client, ida: str):
    sent = post(program, f"sessions/{ida}/inbox", text=HOSTILE)
    assert sent.status_code == 202
    assert [message.text for message in list_inbox(ida)] == [HOSTILE]
    assert not verify_session(ida).problems


def test_the_page_says_that_a_session_stays_alive(program: Client, ida: str):
    page = program.get(f"/sessions/{ida}/").content.decode()
    assert 'id="host-mode"' in page
    assert "<bdi>ida</bdi>" in page
