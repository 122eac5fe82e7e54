"""Payloads for Gemini's generateContent, checked against the models of Google's own package and the rules it tells of."""

from __future__ import annotations

import re
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from pydantic import ValidationError

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import ContextMessage, Prompt
from mnesis_core.messages import Part
from mnesis_core.providers.rendering import SIGNATURE, render
from tests.core.context import contexts as make
from tests.core.providers.rendering.test_rendering import any_prompt


def rendered(*messages: ContextMessage) -> dict[str, Any]:
    return render(Prompt(messages=messages, tools=()), provider="gemini")


def said(role: Any, text: str) -> ContextMessage:
    return ContextMessage(role=role, text=text)


def turn(*parts: Part | str) -> list[dict[str, Any]]:
    """The contents of a turn with these parts."""
    entries = make.entries_of(make.turn(1, "go", *parts))
    made = assemble(entries, system_prompt="", tools=(), budget=make.budget(50_000))
    contents: list[dict[str, Any]] = render(made, provider="gemini")["contents"]
    return contents


@given(any_prompt())
def test_every_payload_is_one_that_the_provider_accepts(prompt: Prompt) -> None:
    assert_accepted(render(prompt, provider="gemini"))


def assert_accepted(made: dict[str, Any]) -> None:
    assert set(made) <= {"systemInstruction", "contents", "tools"}
    types.GenerateContentConfig.model_validate({name: made[name] for name in set(made) - {"contents"}})
    contents = [types.Content.model_validate(content) for content in made["contents"]]
    assert {content.role for content in contents} <= {"user", "model"}
    assert not contents or contents[0].role == "user"
    for content in contents:
        assert content.parts
        for part in content.parts:
            assert_sound(part, str(content.role))


def assert_sound(part: types.Part, role: str) -> None:
    named = part.function_call or part.function_response
    assert named is not None or (part.text or "").strip()
    if named is not None:
        assert role == ("model" if part.function_call else "user")
        assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_-]{0,63}", named.name or "")


@given(any_prompt())
def test_responses_are_the_content_after_their_calls(prompt: Prompt) -> None:
    contents = render(prompt, provider="gemini")["contents"]
    for content, following in zip(contents, [*contents, {"parts": []}][1:], strict=True):
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if calls:
            responses = [part["functionResponse"] for part in following["parts"]]
            assert [(item["id"], item["name"]) for item in responses] == [(item["id"], item["name"]) for item in calls]
            assert [part["functionCall"]["id"] for part in content["parts"] if "thoughtSignature" in part] == [
                calls[0]["id"]
            ]


def test_the_types_refuse_what_is_not_theirs() -> None:
    for part in ({"text": 1}, {"texts": "x"}, {"functionCall": {"name": "x", "args": "{}"}}):
        with pytest.raises(ValidationError):
            types.Content.model_validate({"role": "user", "parts": [part]})


def test_a_turn_reads_as_it_was() -> None:
    broken = make.tool(output=None, error="disk full", tool_call_id="call_2")
    named = [{"id": "call_1", "name": "read_file"}, {"id": "call_2", "name": "read_file"}]
    assert turn("I look.", make.tool(output="one"), broken, "Found.") == [
        {"role": "user", "parts": [{"text": "go"}]},
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {"functionCall": named[0] | {"args": {"path": "a.txt"}}, "thoughtSignature": SIGNATURE},
                {"functionCall": named[1] | {"args": {"path": "a.txt"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": named[0] | {"response": {"output": "one"}}},
                {"functionResponse": named[1] | {"response": {"error": "Error: disk full"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "Found."}]},
    ]


def test_the_signature_is_the_one_that_google_names() -> None:
    part = types.Part.model_validate({"text": "x", "thoughtSignature": SIGNATURE})
    assert part.thought_signature == b"skip_thought_signature_validator"


def test_system_prompt_and_tools_have_their_own_places() -> None:
    prompt = Prompt(messages=(said("system", "Be brief."), said("user", "hi")), tools=(make.CALCULATOR,))
    declared = {
        "name": "calculator",
        "description": "Works out a sum.",
        "parametersJsonSchema": make.CALCULATOR.parameters,
    }
    assert render(prompt, provider="gemini") == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [declared]}],
    }


def test_what_follows_a_result_is_a_content_of_its_own() -> None:
    with_call = [*make.turn(1, "go", make.tool(output="one")), make.message(3, "user", "and now?")]
    made = assemble(make.entries_of(with_call), system_prompt="", tools=(), budget=make.budget(50_000))
    contents = render(made, provider="gemini")["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user", "user"]
    assert contents[3]["parts"] == [{"text": "and now?"}]


def test_the_user_begins_even_where_the_model_did() -> None:
    assert [content["role"] for content in rendered(said("assistant", "hi"))["contents"]] == ["user", "model"]
