"""Every list at the REST endpoint goes on by the cursor that it gives, and writes times in one form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app.endpoints.jsonrpc import METHODS
from agents_app.turns import lifecycle
from mnesis_core.messages import Message, TextPart
from mnesis_core.text import write_time
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.schemas import JSONEncoder
from tests.support.documents.openapi_document import openapi_document
from tests.support.people.cast import make_user

MESSAGES = 5


def schema_of(answer: dict[str, Any]) -> dict[str, Any]:
    """What a 200 holds, with its reference followed."""
    content = answer.get("content", {}).get("application/json", {}).get("schema", {})
    name = content.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = openapi_document()["components"]["schemas"].get(name, content)
    return found


def goes_on(answer: dict[str, Any]) -> bool:
    """Whether it may have another page: ``next_cursor`` is there, and not always null."""
    cursor = schema_of(answer).get("properties", {}).get("next_cursor")
    return cursor is not None and cursor.get("type") != "null"


def parameters_of_lists() -> dict[str, set[str]]:
    """The names of the parameters of each list, by its path."""
    return {
        path: {parameter["name"] for parameter in call["get"].get("parameters", [])}
        for path, call in openapi_document()["paths"].items()
        if "get" in call and goes_on(call["get"]["responses"].get(200, {}))
    }


@pytest.fixture
def ines(db: None) -> User:
    return make_user("ines")


@pytest.fixture
def session_id(ines: User) -> str:
    session = lifecycle.create_session(owner=ines)
    with change(session.id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        for number in range(MESSAGES):
            message = Message(role="user", parts=(TextPart(text=f"Number {number}"),))
            message_store.append_message(record, turn_id=turn_id, message=message)
    return session.id


@pytest.mark.slow
def test_every_list_takes_the_cursor_that_it_gives() -> None:
    lists = parameters_of_lists()
    assert len(lists) >= 10
    assert {path for path, names in lists.items() if "cursor" not in names} == set()


def test_every_list_that_is_called_by_name_takes_the_cursor_that_it_gives() -> None:
    schemas = {name: method.params.model_json_schema()["properties"] for name, method in METHODS.items()}
    paged = {name for name, properties in schemas.items() if {"after", "limit"} <= set(properties)}
    assert paged == {name for name in paged if "cursor" in schemas[name]} != set()


@pytest.mark.parametrize(("what", "count"), [("messages", MESSAGES), ("events", None)])
def test_following_the_cursor_reads_everything_once(ines: User, session_id: str, what: str, count: int | None) -> None:
    client = Client()
    client.force_login(ines)
    whole = client.get(f"/api/sessions/{session_id}/{what}").json()["items"]
    assert count is None or len(whole) == count
    read: list[Any] = []
    cursor: int | None = 0
    while cursor is not None:
        assert len(read) < len(whole)
        page = client.get(f"/api/sessions/{session_id}/{what}", {"cursor": cursor, "limit": 2}).json()
        read, cursor = read + page["items"], page["next_cursor"]
    assert read == whole


@pytest.mark.parametrize("microseconds", [0, 999, 1_000, 123_456])
def test_a_time_always_has_its_milliseconds(microseconds: int) -> None:
    time = datetime(2026, 11, 23, 19, 24, 40, microseconds, tzinfo=UTC)
    written = f"2026-11-23T19:24:40.{microseconds // 1000:03d}Z"
    assert (write_time(time), JSONEncoder().encode([time])) == (written, f'["{written}"]')


def test_the_rest_endpoint_writes_whole_seconds_with_milliseconds(ines: User) -> None:
    session_store.create_session(owner=ines, model="demo", created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    client = Client()
    client.force_login(ines)
    assert client.get("/api/sessions").json()["items"][0]["created_at"] == "2026-01-02T03:04:05.000Z"
