"""``POST /rpc``: who may ask, and what HTTP says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.llm.model_store import create_key
from tests.support.record.talks import exchange, new_session

# Committed, because the methods run in threads with connections of their own.
pytestmark = pytest.mark.usefixtures("transactional_db")

LIST = {"jsonrpc": "2.0", "id": 1, "method": "session/list"}
CREATE = {"jsonrpc": "2.0", "id": 1, "method": "session/create"}


def program(user: User, scope: str = "all") -> Client:
    key = create_key(owner_id=user.pk, scope=scope)
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"})


def post(client: Client, body: Any, **headers: str) -> Any:
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    return client.post("/rpc", data=text, content_type="application/json", headers=headers)


def test_a_key_opens_the_endpoint(ada: User) -> None:
    made = post(program(ada), CREATE)
    assert made.status_code == 200
    assert made.headers["Content-Type"] == "application/json"
    session = made.json()["result"]
    assert post(program(ada), LIST).json()["result"]["items"][0]["id"] == session["id"]


def test_a_search_takes_its_filters_beside_its_words(ada: User) -> None:
    exchange(new_session(ada), "The marigold is orange.", "Noted.")
    for narrowed, hits in (
        ({}, 1),
        ({"speaker": "user"}, 1),
        ({"speaker": "assistant"}, 0),
        ({"until": "2020-01-01"}, 0),
    ):
        asked = {"jsonrpc": "2.0", "id": 1, "method": "search", "params": {"q": "marigold", "mode": "text", **narrowed}}
        assert len(post(program(ada), asked).json()["result"]["items"]) == hits, narrowed


def test_what_it_answers_is_what_the_rest_endpoint_answers(ada: User) -> None:
    client = program(ada)
    session_id = post(client, CREATE).json()["result"]["id"]
    read = {"jsonrpc": "2.0", "id": 1, "method": "session/read", "params": {"session_id": session_id}}
    assert post(client, read).json()["result"] == client.get(f"/api/sessions/{session_id}").json()
    assert post(client, LIST).json()["result"] == client.get("/api/sessions").json()


def test_only_notifications_have_no_answer(ada: User) -> None:
    response = post(program(ada), {"jsonrpc": "2.0", "method": "session/create"})
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("header", ["", "Bearer mns_x", "Bearer", "Basic YTpi"])
def test_nobody_is_not_signed_in(header: str) -> None:
    response = post(Client(), LIST, **({"Authorization": header} if header else {}))
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    body = response.json()
    assert (body["id"], body["error"]["code"], body["error"]["data"]["code"]) == (None, -32001, "NOT_SIGNED_IN")


def test_a_reading_key_may_only_read(ada: User) -> None:
    reader = program(ada, scope="read")
    assert post(reader, LIST).json()["result"]["items"] == []
    assert post(reader, CREATE).json()["error"]["data"]["code"] == "PERMISSION_DENIED"


def test_a_cookie_needs_its_csrf_token(ada: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ada)
    response = post(browser, LIST)
    assert response.status_code == 403
    assert response.json()["error"]["data"]["code"] == "PERMISSION_DENIED"
    browser.cookies["csrftoken"] = token = "a" * 32
    assert post(browser, LIST, **{"X-CSRFToken": token}).json()["result"]["items"] == []


def test_a_body_of_30_megabytes_is_too_large(ada: User) -> None:
    response = post(program(ada), b" " * 30_000_000)
    assert response.status_code == 413
    assert response.json()["error"]["data"]["code"] == "REQUEST_TOO_LARGE"


def test_only_post(ada: User) -> None:
    response = program(ada).get("/rpc")
    assert response.status_code == 405
    assert response.json()["error"]["code"] == "INVALID_REQUEST"
