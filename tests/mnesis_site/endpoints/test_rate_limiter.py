"""Who asks too fast is told so, and when to ask again, at every endpoint and in its own words; the pages count nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app.turns import lifecycle
from mnesis_core.config import override
from mnesis_core.errors import TooManyTurns
from mnesis_core.network.rate_limits import Bucket
from mnesis_site.asgi import application
from sessions_app.callers import RateLimiter, request_limiter
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from tests.mnesis_site.endpoints.test_sockets import open_socket

pytestmark = pytest.mark.both_databases

BURST = 3
CODE = "TOO_MANY_REQUESTS"


class Clock:
    """A clock that goes on when it is told to."""

    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    config = override(site_config(), {"requests": {"per_second": 0.5, "burst": BURST}})
    monkeypatch.setattr("sessions_app.callers.site_config", lambda: config)
    monkeypatch.setattr(request_limiter, "_clock", clock)
    monkeypatch.setattr(request_limiter, "_empty_at", {})
    return clock


@pytest.fixture
def alice(transactional_db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def program(alice: User) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_key(owner_id=alice.pk)}"})


def statuses(client: Client, path: str, count: int = BURST + 1) -> list[int]:
    return [client.get(path).status_code for _ in range(count)]


def test_a_key_that_asks_too_fast_is_refused_and_told_when_to_come_back(program: Client, clock: Clock) -> None:
    assert statuses(program, "/api/sessions") == [200] * BURST + [429]
    refused = program.get("/api/sessions")
    assert refused.headers["Retry-After"] == "2"
    error = refused.json()["error"]
    assert error["code"] == CODE
    assert error["details"] == {"per_second": 0.5, "burst": BURST, "retry_after": 2}
    clock.wait(2)
    assert statuses(program, "/api/sessions", 2) == [200, 429]


def test_endpoints_share_the_bucket_of_a_key_and_each_says_it_in_its_own_shape(program: Client) -> None:
    assert statuses(program, "/api/models", BURST) == [200] * BURST
    openai = program.get("/v1/models")
    assert (openai.status_code, openai.headers["Retry-After"]) == (429, "2")
    assert (openai.json()["error"]["code"], openai.json()["error"]["type"]) == (CODE, "rate_limit_error")
    rpc = program.post("/rpc", {"jsonrpc": "2.0", "id": 1, "method": "session/list"}, content_type="application/json")
    assert (rpc.status_code, rpc.headers["Retry-After"]) == (429, "2")
    assert rpc.json()["error"]["data"]["code"] == CODE


def test_one_key_s_haste_is_no_other_key_s_and_not_its_owner_s(alice: User, program: Client) -> None:
    assert statuses(program, "/api/models")[-1] == 429
    other = Client(headers={"Authorization": f"Bearer {create_key(owner_id=alice.pk)}"})
    assert other.get("/api/models").status_code == 200
    browser = Client()
    browser.force_login(alice)
    assert statuses(browser, "/api/models") == [200] * BURST + [429]


def test_pages_are_not_counted(alice: User) -> None:
    browser = Client()
    browser.force_login(alice)
    assert set(statuses(browser, "/", 5 * BURST)) == {200}
    assert browser.get("/api/models").status_code == 200


async def test_mcp_refuses_before_it_reads_a_message(alice: User) -> None:
    key = await db(create_key, owner_id=alice.pk)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
    scope = {"type": "http", "path": "/mcp", "method": "GET", "headers": headers}
    for _ in range(BURST + 1):
        sent.clear()
        await application(scope, receive, send)
    assert sent[0]["status"] == 429
    assert (b"retry-after", b"2") in sent[0]["headers"]
    assert json.loads(sent[1]["body"])["error"]["data"]["code"] == CODE


async def test_frames_of_a_socket_count_and_it_stays_open(alice: User, clock: Clock) -> None:
    session = await db(lifecycle.create_session, owner=alice)
    key = await db(create_key, owner_id=alice.pk)
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
    opened = open_socket(application, f"/ws/sessions/{session.id}", headers)
    await opened.send_input({"type": "websocket.connect"})

    async def ping() -> dict[str, Any]:
        await opened.send_input({"type": "websocket.receive", "text": '{"type": "ping", "id": 7}'})
        while True:
            frame = json.loads((await opened.receive_output(60)).get("text", "{}"))
            if frame.get("type") in ("pong", "error"):
                return frame

    told = [await ping() for _ in range(BURST + 1)]
    assert [frame["type"] for frame in told] == ["pong"] * BURST + ["error"]
    assert (told[-1]["error"]["code"], told[-1]["error"]["details"]["retry_after"]) == (CODE, 2)
    clock.wait(2)
    assert (await ping())["type"] == "pong"
    await opened.send_input({"type": "websocket.disconnect", "code": 1000})
    await opened.wait()


def test_too_many_turns_say_when_to_ask_again(alice: User, program: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*args: Any, **values: Any) -> None:
        raise TooManyTurns(limit=20, retry_after=5)

    monkeypatch.setattr(lifecycle, "start_turn", refuse)
    session = lifecycle.create_session(owner=alice)
    told = program.post(f"/api/sessions/{session.id}/turns", {"message": "Hi"}, content_type="application/json")
    assert (told.status_code, told.headers["Retry-After"], told.json()["error"]["code"]) == (429, "5", "TOO_MANY_TURNS")


def test_empty_buckets_are_forgotten(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("sessions_app.callers.MOST_BUCKETS", 2)
    limiter = RateLimiter(clock)
    ada, ben, cleo = (Bucket(name=(name,), attempts=1, seconds=60) for name in ("ada", "ben", "cleo"))
    assert [limiter.seconds_to_wait(bucket) for bucket in (ada, ben)] == [0, 0]
    clock.wait(60)
    assert [limiter.seconds_to_wait(bucket) for bucket in (cleo, cleo)] == [0, 60]
    assert [*limiter._empty_at] == [("cleo",)]


def test_no_more_buckets_are_kept_than_so_many_and_those_go_on_counting(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr("sessions_app.callers.MOST_BUCKETS", 100)
    limiter = RateLimiter(clock)
    for number in range(1000):
        limiter.seconds_to_wait(Bucket(name=(str(number),), attempts=2, seconds=60))
    assert len(limiter._empty_at) == 100
    assert [limiter.seconds_to_wait(Bucket(name=("7",), attempts=2, seconds=60)) for _ in range(2)] == [0, 60]
