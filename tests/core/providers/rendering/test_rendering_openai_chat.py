"""Payloads for OpenAI Chat Completions, checked against the types of OpenAI's own package."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import TypeAdapter

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import ContextEntry
from mnesis_core.messages import Part
from mnesis_core.providers.rendering import digest, render
from tests.core.context import contexts as make

MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])
TOOLS = TypeAdapter(list[ChatCompletionToolParam])


def payload(entries: list[ContextEntry], usable: int = 50_000) -> dict[str, Any]:
    made = assemble(entries, system_prompt="Be brief.", tools=(make.CALCULATOR,), budget=make.budget(usable))
    return render(made)


def answered(*parts: Part | str) -> list[dict[str, Any]]:
    """What a turn with these parts renders to, after system prompt and question."""
    messages: list[dict[str, Any]] = payload(make.entries_of(make.turn(1, "go", *parts)))["messages"]
    return messages[2:]


def call(call_id: str, arguments: str = '{"path": "a.txt"}', name: str = "read_file") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@given(make.contexts(), st.sampled_from([300, 3_000, 60_000]))
def test_every_payload_is_one_that_the_provider_accepts(entries: list[ContextEntry], usable: int) -> None:
    made = payload(entries, usable)
    MESSAGES.validate_python(made["messages"], strict=True)
    TOOLS.validate_python(made.get("tools", []), strict=True)
    json.dumps(made, ensure_ascii=False).encode()
    for message in made["messages"]:
        for item in message.get("tool_calls", ()):
            assert isinstance(json.loads(item["function"]["arguments"]), dict)
            assert item["function"]["name"]


def test_a_plain_conversation_reads_as_it_was() -> None:
    made = payload(make.entries_of(make.turn(1, "hello", "hi")))
    assert made == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "calculator",
                    "description": "Works out a sum.",
                    "parameters": make.CALCULATOR.parameters,
                },
            }
        ],
    }


def test_without_tools_the_payload_names_none() -> None:
    made = assemble(make.entries_of(make.turn(1, "hello", "hi")), system_prompt="", tools=(), budget=make.budget(5_000))
    assert render(made) == {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}


def test_calls_are_followed_by_their_results() -> None:
    first, second = make.tool(output="one"), make.tool(output="two", tool_call_id="call_2")
    assert answered("I look.", first, second, "Found.") == [
        {"role": "assistant", "content": "I look.", "tool_calls": [call("call_1"), call("call_2")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "two"},
        {"role": "assistant", "content": "Found."},
    ]


def test_a_call_without_text_has_null_content() -> None:
    assert answered(make.tool())[0]["content"] is None


def test_an_unanswered_call_is_answered_as_interrupted() -> None:
    assert answered(make.tool(output=None))[1]["content"] == "Error: interrupted: this call has no result."


def test_an_error_is_shown_as_one_beside_what_was_put_out() -> None:
    assert answered(make.tool(output="half", error="disk full"))[1]["content"] == "half\nError: disk full"


@pytest.mark.parametrize("given_id", ["", "call_1"])
def test_calls_without_an_id_of_their_own_get_one(given_id: str) -> None:
    made = answered(make.tool(), make.tool(tool_call_id=given_id))
    assert [item["id"] for item in made[0]["tool_calls"]] == ["call_1", "part_0002_1"]
    assert [item["tool_call_id"] for item in made[1:]] == ["call_1", "part_0002_1"]


def test_invalid_arguments_are_sent_inside_an_object() -> None:
    made = answered(make.tool(input='{"path": '))
    assert made[0]["tool_calls"] == [call("call_1", '{"invalid_arguments": "{\\"path\\": "}')]


@pytest.mark.parametrize(("name", "sent"), [("", "unnamed"), ("my tool!", "my_tool_"), ("x" * 70, "x" * 64)])
def test_a_tool_name_becomes_one_that_is_accepted(name: str, sent: str) -> None:
    assert answered(make.tool(name=name))[0]["tool_calls"][0]["function"]["name"] == sent


def test_a_lone_surrogate_is_replaced_and_nothing_else_is() -> None:
    assert answered("a\ud800b\x00é")[0]["content"] == "a\ufffdb\x00é"


def test_the_digest_is_of_the_canonical_json() -> None:
    assert digest({"b": [1, "é"], "a": None}) == digest({"a": None, "b": [1, "é"]})
    assert digest({"b": [1, "é"], "a": None}) == hashlib.sha256('{"a":null,"b":[1,"é"]}'.encode()).hexdigest()
    assert digest({"a": "\ud800"}) != digest({"a": "\ud801"})


def test_the_same_record_gives_the_same_bytes() -> None:
    entries = make.entries_of(make.turn(1, "go", make.tool()), make.summary(9, "before", first=0, last=0))
    assert digest(payload(entries)) == digest(payload([replace(entry) for entry in reversed(entries)]))
