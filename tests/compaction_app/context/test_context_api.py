"""The context at its endpoint, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mnesis_core.messages import TextPart
from mnesis_core.providers.rendering import RENDERERS, digest
from tests.core.providers.rendering.rendered import Answered, Called, read
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool


def context(owner_client: Client, session_id: str, **parameters: Any) -> Any:
    answer = owner_client.get(f"/api/sessions/{session_id}/context", parameters)
    assert answer.status_code == 200, answer.content
    return json.loads(answer.content.decode())


@pytest.mark.parametrize("format", RENDERERS)
def test_every_format_shows_the_payload_that_its_digest_is_of(owner_client: Client, owner: User, format: str) -> None:
    session_id = new_session(owner)
    exchange(session_id, "What is in a.txt?", "A \x00 b.")
    found = context(owner_client, session_id, format=format)
    assert [item.text for item in read(found["payload"], format)] == ["What is in a.txt?", "A \x00 b."]
    assert found["digest"] == digest(found["payload"])
    assert "messages" not in found


def test_the_context_says_how_it_was_counted(owner_client: Client, owner: User) -> None:
    session_id = new_session(owner)
    exchange(session_id, "What is in a.txt?", "Rows.")
    found = context(owner_client, session_id)
    assert found["budget"]["window_source"] == "configured"
    assert found["estimate"].pop("tokens") > 10
    assert found["estimate"] == {"source": "estimated", "ratio": 1.0, "samples": 0, "error": None}


@pytest.mark.slow
def test_the_formats_are_those_that_can_be_rendered(owner_client: Client) -> None:
    document = owner_client.get("/api/openapi.json").json()
    [format] = [
        item
        for item in document["paths"]["/api/sessions/{session_id}/context"]["get"]["parameters"]
        if item["name"] == "format"
    ]
    assert format["schema"]["enum"] == ["mnesis", *RENDERERS]


def test_an_unknown_format_is_refused_with_the_known_ones(owner_client: Client, owner: User) -> None:
    answer = owner_client.get(f"/api/sessions/{new_session(owner)}/context", {"format": "morse"})
    assert answer.status_code in (400, 422)
    assert "'gemini'" in answer.content.decode()


@pytest.mark.parametrize("format", RENDERERS)
@pytest.mark.parametrize(
    "input",
    [
        '{"n": 1' + "0" * 300 + "}",
        '{"n": 1' + "0" * 6_000 + "}",
        '{"a":' * 900 + "1" + "}" * 900,
        '{"a":' * 3_000 + "1" + "}" * 3_000,
        '{"\\ud800": "\\ud800"}',
        HOSTILE,
    ],
    ids=["large number", "larger number", "deep", "deeper", "surrogates", "no object"],
)
def test_hostile_calls_are_shown_in_every_format(owner_client: Client, owner: User, format: str, input: str) -> None:
    session_id = new_session(owner)
    call = tool(input=input, output=HOSTILE, tool_name=HOSTILE)
    say(session_id, ("user", [TextPart(text=HOSTILE)]), ("assistant", [call]))
    said = read(context(owner_client, session_id, format=format)["payload"], format)
    assert [type(item) for item in said[-2:]] == [Called, Answered]
