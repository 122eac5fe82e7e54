"""What a request may hold has bounds: in its schema, else where it is checked before it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mnesis_core.transcripts.values import ParseResult, Report, Transcript
from sessions_app.llm.model_store import create_key
from sessions_app.record.histories import store_transcripts
from sessions_app.record.session_queries import load_session
from tests.support.documents.openapi_document import openapi_document

CHECKED_BELOW = {
    "by limits.message_characters or limits.title_characters": {
        "message", "parts", "parts[]", "system_prompt", "title", "user", "assistant", "text", "output", "error", "input", "results[].output",
        "results[].error", "caption", "data",
    },
    "by the columns of a recorded turn": {"tool_name", "tool_call_id", "finish_reason", "cost", "provider", "kind", "prompt"},
    "by turn_options": {"tools", "tools[]", "name", "description", "parameters"},
    "by the settings that there are": {"config"},
    "by agents_app.turns.claim": {"note", "peer_name"},
    "by inbox.message_characters": {"inbox.text"},
    "by operators: template, schema, lines of items": {"template", "output_schema", "items"},
    "because what has this name must be there": {
        "model", "parent_id", "session_id", "file_id", "files[]", "at_message_id", "before_message_id", "in_reply_to", "path",
    },
    "by files.import_bytes": {"file"},
}  # fmt: skip
"""Names of fields without bounds in their schema, by what bounds them."""


def unbounded(schema: dict[str, Any], name: str, seen: frozenset[str]) -> Iterator[str]:
    """The names of fields in which something of any length may stand."""
    if reference := schema.get("$ref"):
        kind = reference.rpartition("/")[2]
        if kind not in seen:
            yield from unbounded(openapi_document()["components"]["schemas"][kind], name, seen | {kind})
        return
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from unbounded(choice, name, seen)
    match schema.get("type"):
        case "string" if not {"maxLength", "enum", "const", "pattern", "format"} & schema.keys():
            yield name
        case "array":
            yield from () if "maxItems" in schema else (name,)
            yield from unbounded(schema.get("items", {}), f"{name}[]", seen)
        case "object":
            yield from unbounded_object(schema, name, seen)


def unbounded_object(schema: dict[str, Any], name: str, seen: frozenset[str]) -> Iterator[str]:
    if (more := schema.get("additionalProperties")) and "maxProperties" not in schema:
        yield name
    if isinstance(more, dict):
        yield from unbounded(more, f"{name}{{}}", seen)
    for key, value in schema.get("properties", {}).items():
        yield from unbounded(value, key, seen)


@pytest.mark.slow
def test_every_field_of_a_request_has_bounds() -> None:
    found = {
        field
        for path in openapi_document()["paths"].values()
        for operation in path.values()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        for field in unbounded(content["schema"], "", frozenset())
    }
    assert found - set().union(*CHECKED_BELOW.values()) == set()


@pytest.fixture
def alice(transactional_db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def program(alice: User) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_key(owner_id=alice.pk)}"})


MANY = {f"key {number}": "value" for number in range(65)}


@pytest.mark.parametrize("labels", [MANY, {"k" * 201: "v"}, {"k": "v" * 201}])
def test_labels_are_few_and_short(program: Client, labels: dict[str, str]) -> None:
    made = program.post("/api/sessions", {"labels": {"k" * 200: "v" * 200}}, content_type="application/json")
    assert made.status_code == 201
    path = f"/api/sessions/{made.json()['id']}"
    asked = {"jsonrpc": "2.0", "id": 1, "method": "session/create", "params": {"labels": labels}}
    for refused in (
        program.post("/api/sessions", {"labels": labels}, content_type="application/json"),
        program.patch(path, {"labels": labels}, content_type="application/json"),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "INVALID_REQUEST")
    by_rpc = program.post("/rpc", asked, content_type="application/json").json()["error"]
    assert by_rpc["data"]["code"] == "INVALID_REQUEST"


def test_a_refusal_does_not_repeat_a_name_of_any_length(program: Client) -> None:
    refused = program.post("/api/sessions", {"labels": {"k" * 1_000_000: "v"}}, content_type="application/json")
    assert refused.status_code == 422
    assert len(json.dumps(refused.json())) < 2_000


def test_an_import_keeps_the_labels_that_it_has(alice: User) -> None:
    result = ParseResult(
        transcripts=(Transcript(external_id="1", format="locomo", labels=MANY),),
        report=Report(format="locomo", read={}, stored={}),
    )
    stored = store_transcripts(result, owner=alice, model="demo")
    assert len(load_session(stored.sessions["1"]).labels) == len(MANY)
