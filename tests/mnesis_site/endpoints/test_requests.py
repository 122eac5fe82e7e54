"""The id of a request: who may give it, and where it is told."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from mnesis_core.network.hosts import read_networks
from mnesis_site import asgi
from mnesis_site.middleware import HEADER
from sessions_app.llm.model_store import create_key
from sessions_app.models import Event
from sessions_app.record.actor import RequestOfLine, serving

pytestmark = pytest.mark.usefixtures("transactional_db")

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def program(ada: User) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_key(owner_id=ada.pk)}"}, raise_request_exception=False)


def made_by(program: Client, **headers: str) -> tuple[str, str]:
    """The id of a request that makes a session, as the answer and as the ledger tell it."""
    answer = program.post("/api/sessions", {}, content_type="application/json", headers=headers)
    assert answer.status_code == 201
    first = Event.objects.get(session_id=answer.json()["id"], seq=1)
    return answer.headers[HEADER], json.loads(first.body)["actor"]["request"]


def test_a_request_gets_an_id_which_answer_and_ledger_tell(program: Client) -> None:
    (first, told), (second, _) = made_by(program), made_by(program)
    assert first == told != second
    assert first.startswith("req_")


def test_a_trusted_proxy_gives_the_id(program: Client, settings: Settings) -> None:
    settings.TRUSTED_PROXIES = read_networks("127.0.0.1")
    assert made_by(program, X_Request_Id="a1b2c3d4e5f6", traceparent=TRACE) == ("req_a1b2c3d4e5f6",) * 2
    assert made_by(program, traceparent=TRACE) == ("req_4bf92f3577b34da6a3ce929d0e0e4736",) * 2


@pytest.mark.parametrize("given", ["a1b2c3d4e5f6", TRACE])
def test_other_clients_do_not(program: Client, settings: Settings, given: str) -> None:
    settings.TRUSTED_PROXIES = read_networks("10.0.0.0/8")
    for header in ("X-Request-Id", "traceparent"):
        answered, told = made_by(program, **{header: given})
        assert answered == told
        assert given not in answered


@pytest.mark.parametrize(
    "given", ["", "a" * 100_000, "12345678\x00", "12345678\r\nSet-Cookie: a=b", "\u202e12345678", "<b>12345678</b>"]
)
def test_what_cannot_be_an_id_is_replaced(program: Client, settings: Settings, given: str) -> None:
    settings.TRUSTED_PROXIES = read_networks("127.0.0.1")
    answered, told = made_by(program, X_Request_Id=given)
    assert answered == told
    assert len(answered) == 30
    assert answered.isascii()


async def ask(path: str, *, peer: str = "127.0.0.1", **request: Any) -> httpx2.Response:
    """Ask the whole site, with what stands in front of Django."""
    transport = httpx2.ASGITransport(app=asgi.application, client=(peer, 40_000))  # type: ignore[arg-type]
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
        return await client.request("POST", path, **request)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/sessions/x", 405),
        ("/mcp", 401),
        ("/rpc", 401),
        ("/v1/chat/completions", 401),
        ("/v1/messages", 401),
        ("/nowhere", 404),
    ],
)
async def test_every_answer_has_the_id_once(path: str, status: int, settings: Settings) -> None:
    settings.TRUSTED_PROXIES = read_networks("127.0.0.1")
    answer = await ask(path, json={}, headers={"X-Request-Id": "a1b2c3d4e5f6"})
    assert (answer.status_code, answer.headers.get_list(HEADER)) == (status, ["req_a1b2c3d4e5f6"])
    stranger = await ask(path, json={}, headers={"X-Request-Id": "a1b2c3d4e5f6"}, peer="192.0.2.7")
    assert "a1b2c3d4e5f6" not in stranger.headers[HEADER]


async def test_a_body_that_is_refused_has_it_too() -> None:
    answer = await ask("/api/sessions", content=b"x" * 2_000_000)
    assert answer.status_code == 413
    assert answer.headers[HEADER].startswith("req_")


def test_an_error_tells_it(program: Client) -> None:
    refused = program.post("/api/sessions", {"model": "nobody's"}, content_type="application/json")
    assert refused.json()["error"]["request"] == refused.headers[HEADER]


def test_a_line_of_the_log_tells_it() -> None:
    line = logging.LogRecord("mnesis", logging.WARNING, "", 0, "The tide is out", None, None)
    with serving(via="api", request="req_1"):
        RequestOfLine().filter(line)
    assert logging.Formatter("%(request_id)s%(name)s: %(message)s").format(line) == "req_1 mnesis: The tide is out"
