"""Payloads for Anthropic Messages, checked against the types of Anthropic's own package and the rules it tells of."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import ContextMessage, Prompt
from mnesis_core.messages import Part
from mnesis_core.providers.rendering import render
from tests.core.context import contexts as make
from tests.core.providers.rendering.test_rendering import any_prompt
from tests.core.providers.sdk import accepts


@cache
def types() -> tuple[Any, Any, Any]:
    """Return the types of messages, of tools and of blocks; importing them takes more than a second."""
    from anthropic.types import MessageParam, TextBlockParam, ToolParam, ToolResultBlockParam, ToolUseBlockParam

    # A message's own type also takes blocks as a reply brings them, with whatever keys.
    return list[MessageParam], list[ToolParam], list[TextBlockParam | ToolUseBlockParam | ToolResultBlockParam]


def rendered(*messages: ContextMessage) -> dict[str, Any]:
    return render(Prompt(messages=messages, tools=()), provider="anthropic")


def said(role: Any, text: str) -> ContextMessage:
    return ContextMessage(role=role, text=text)


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def turn(*parts: Part | str) -> list[dict[str, Any]]:
    """The messages of a turn with these parts."""
    entries = make.entries_of(make.turn(1, "go", *parts))
    made = assemble(entries, system_prompt="", tools=(), budget=make.budget(50_000))
    messages: list[dict[str, Any]] = render(made, provider="anthropic")["messages"]
    return messages


@given(any_prompt())
def test_every_payload_is_one_that_the_provider_accepts(prompt: Prompt) -> None:
    assert_accepted(render(prompt, provider="anthropic"))


def assert_accepted(made: dict[str, Any]) -> None:
    assert set(made) <= {"system", "messages", "tools"}
    messages, tools, blocks = types()
    accepts(messages, made["messages"])
    accepts(tools, made.get("tools", []))
    assert made.get("system", "x").strip()
    roles = [message["role"] for message in made["messages"]]
    assert roles == [("user", "assistant")[index % 2] for index in range(len(roles))]
    for message in made["messages"]:
        accepts(blocks, message["content"])
        assert message["content"]
        for block in message["content"]:
            assert_sound(block, message["role"])


def assert_sound(block: dict[str, Any], role: str) -> None:
    if block["type"] == "tool_use":
        assert role == "assistant"
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", block["id"])
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", block["name"])
    elif block["type"] == "tool_result":
        assert role == "user"
        assert block.get("content", "x").strip()
        assert block["content"] if block.get("is_error") else True
    else:
        assert block["text"].strip()


@given(any_prompt())
def test_results_come_first_in_the_message_after_their_calls(prompt: Prompt) -> None:
    messages = render(prompt, provider="anthropic")["messages"]
    for message, following in zip(messages, [*messages, {"content": []}][1:], strict=True):
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        first = following["content"][: len(calls)]
        assert [block.get("tool_use_id") for block in first] == calls
        rest = following["content"][len(calls) :]
        assert "tool_result" not in {block["type"] for block in rest}


def test_the_types_refuse_what_is_not_theirs() -> None:
    call = {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {}}
    for block in ({"type": "text", "text": "x", "colour": 1}, {"type": "text"}, call | {"input": "{}"}):
        with pytest.raises(ValidationError):
            accepts(types()[2], [block])


def test_the_system_prompt_stands_apart_and_a_later_one_in_its_place() -> None:
    assert rendered(said("system", "Be brief."), said("user", "hi"), said("system", "Be kind.")) == {
        "system": "Be brief.",
        "messages": [{"role": "user", "content": blocks("hi", "[System message]\nBe kind.")}],
    }


def test_neighbours_of_one_role_are_one_message() -> None:
    made = rendered(said("user", "a"), said("user", "b"), said("assistant", "c"), said("assistant", "d"))
    assert made["messages"] == [
        {"role": "user", "content": blocks("a", "b")},
        {"role": "assistant", "content": blocks("c", "d")},
    ]


def test_the_user_begins_even_where_the_assistant_did() -> None:
    assert rendered(said("assistant", "hi"))["messages"] == [
        {"role": "user", "content": blocks("[The conversation begins with the assistant.]")},
        {"role": "assistant", "content": blocks("hi")},
    ]


def test_calls_are_followed_by_their_results() -> None:
    first, second = make.tool(output="one"), make.tool(output="half", error="disk full", tool_call_id="call_2")
    assert turn("I look.", first, second, "Found.")[1:] == [
        {
            "role": "assistant",
            "content": [
                *blocks("I look."),
                {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "a.txt"}},
                {"type": "tool_use", "id": "call_2", "name": "read_file", "input": {"path": "a.txt"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "one"},
                {
                    "type": "tool_result",
                    "tool_use_id": "call_2",
                    "is_error": True,
                    "content": "half\nError: disk full",
                },
            ],
        },
        {"role": "assistant", "content": blocks("Found.")},
    ]


def test_an_unanswered_call_is_answered_as_an_error() -> None:
    [result] = turn(make.tool(output=None))[2]["content"]
    assert result["is_error"]
    assert result["content"] == "Error: interrupted: this call has no result."


def test_a_result_that_says_nothing_has_no_content() -> None:
    assert turn(make.tool(output=" "))[2]["content"] == [{"type": "tool_result", "tool_use_id": "call_1"}]
