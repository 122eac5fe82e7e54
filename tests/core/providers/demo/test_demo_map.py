"""The demo model in an operator: its answers fit the schema that it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from mnesis_core.maps.prompts import item_prompt, judge, map_payload
from mnesis_core.maps.schema import compile_schema
from mnesis_core.maps.values import OperatorSpec
from mnesis_core.providers.demo import answer


def _answered(schema: Any, item: str = "The harbour of Rotterdam has 3 sides, negative ones.") -> str:
    spec = OperatorSpec(template="Of this: {{ item }}", schema=schema)
    return answer(map_payload(spec, item)["messages"]).text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a", "n"]},
        {"properties": {"b": {"type": "boolean"}, "no": {"type": "null"}}, "required": ["b", "no"]},
        {"enum": ["positive", "negative"]},
        {"type": "array", "items": {"type": "number", "minimum": 5}, "minItems": 2},
        {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {"type": "string", "maxLength": 3}}},
        {"type": ["string", "null"]},
        {"const": {"x": 1}},
        {},
    ],
)
def test_its_answers_fit(schema: Any) -> None:
    assert judge(_answered(schema), compile_schema(schema)).kind is None


def test_it_takes_what_the_item_says() -> None:
    assert _answered({"enum": ["positive", "negative"]}) == '"negative"'
    assert _answered({"type": "integer"}) == "3"
    assert _answered(None).startswith("Of this: The harbour")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"in": {"$ref": "#/$defs/t"}}}}},
        {"minItems": 9**9, "type": "array"},
    ],
)
def test_no_schema_makes_it_large(schema: Any) -> None:
    assert len(_answered(schema)) < 1_000


def test_commands_work_here_too() -> None:
    spec = OperatorSpec(template="{{ item }}", schema={"type": "string"})
    assert answer(map_payload(spec, "!fail 500")["messages"]).failure == "500"


def test_as_a_sub_agent_it_uses_a_tool_and_then_answers_as_asked() -> None:
    spec = OperatorSpec(template='!tool calculator {"expression": "{{ item }} * 7"}', schema={"type": "integer"})
    offered = [{"type": "function", "function": {"name": "calculator", "description": "Sums.", "parameters": {}}}]
    asked: list[dict[str, Any]] = [{"role": "user", "content": item_prompt(spec, 6)}]
    [call] = answer(asked, offered).tool_calls
    assert (call.name, call.arguments) == ("calculator", '{"expression": "6 * 7"}')
    told = [*asked, {"role": "assistant", "content": ""}, {"role": "tool", "content": "42"}]
    assert answer(told, offered).text == "42"
