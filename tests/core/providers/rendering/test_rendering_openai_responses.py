"""Payloads for OpenAI Responses, checked against the types of OpenAI's own package."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from pydantic import ValidationError

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import ContextMessage, Prompt
from mnesis_core.providers.rendering import render
from tests.core.context import contexts as make
from tests.core.providers.rendering.test_rendering import any_prompt
from tests.core.providers.sdk import accepts


def rendered(*messages: ContextMessage) -> dict[str, Any]:
    return render(Prompt(messages=messages, tools=()), provider="openai_responses")


@given(any_prompt())
def test_every_payload_is_one_that_the_provider_accepts(prompt: Prompt) -> None:
    assert_accepted(render(prompt, provider="openai_responses"))


def assert_accepted(made: dict[str, Any]) -> None:
    assert set(made) <= {"instructions", "input", "tools"}
    accepts(list[ResponseInputItemParam], made["input"])
    accepts(list[FunctionToolParam], made.get("tools", []))
    assert made.get("instructions", "x").strip()
    for item in made["input"]:
        assert item.get("content", "x").strip()
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", item.get("call_id", "x"))
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", item.get("name", "x"))


def test_the_types_refuse_what_is_not_theirs() -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": "{}"}
    for item in (call | {"colour": 1}, call | {"arguments": {}}, {"type": "function_call_output"}):
        with pytest.raises(ValidationError):
            accepts(list[ResponseInputItemParam], [item])


def test_a_turn_reads_as_it_was() -> None:
    entries = make.entries_of(make.turn(1, "go", "I look.", make.tool(output="one"), "Found."))
    made = assemble(entries, system_prompt="Be brief.", tools=(make.CALCULATOR,), budget=make.budget(50_000))
    assert render(made, provider="openai_responses") == {
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": "go"},
            {"type": "message", "role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": '{"path": "a.txt"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "one"},
            {"type": "message", "role": "assistant", "content": "Found."},
        ],
        "tools": [
            {
                "type": "function",
                "name": "calculator",
                "description": "Works out a sum.",
                "parameters": make.CALCULATOR.parameters,
                "strict": False,
            }
        ],
    }


def test_a_later_system_message_stays_in_its_place() -> None:
    hello, kind = ContextMessage(role="user", text="hi"), ContextMessage(role="system", text="Be kind.")
    assert rendered(hello, kind)["input"][1] == {"type": "message", "role": "system", "content": "Be kind."}
