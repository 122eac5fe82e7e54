"""Output schemas: what they find, and that neither a schema nor a value makes a check long."""

from __future__ import annotations

from typing import Any

import pytest

from mnesis_core.errors import InvalidSchema
from mnesis_core.maps.schema import compile_schema

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": False}
TREE = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"in": {"$ref": "#/$defs/t"}}}}}


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (PERSON, {"name": "Ada", "age": 36}, ""),
        (PERSON, {"name": "Ada", "age": "36"}, "'36' is not of type 'integer' at $.age"),
        (PERSON, {"name": "Ada"}, "'age' is a required property at $"),
        (PERSON, {"name": "Ada", "age": 1, "x": 1}, "the property 'x' is not allowed at $"),
        (
            PERSON,
            {"name": 1, "age": True},
            "1 is not of type 'string' at $.name; True is not of type 'integer' at $.age",
        ),
        (PERSON, [], "[] is not of type 'object' at $"),
        (True, {"any": "thing"}, ""),
        (False, 1, "False schema does not allow 1 at $"),
        ({"enum": ["a", "b"]}, "c", "'c' is not one of ['a', 'b'] at $"),
        ({"pattern": "^[a-c]+$"}, "abd", "'abd' does not match '^[a-c]+$' at $"),
        ({"pattern": "x"}, "\ud800", "'\\ud800' does not match 'x' at $"),
        ({"patternProperties": {"^n": {"type": "number"}}, "additionalProperties": False}, {"n1": 1}, ""),
        (
            {"patternProperties": {"^n": {"type": "number"}}, "additionalProperties": {"type": "null"}},
            {"n1": "1", "x": 1},
            "'1' is not of type 'number' at $.n1; 1 is not of type 'null' at $.x",
        ),
        ({"uniqueItems": True}, [1, True, "1", {"a": 1}, {"a": True}, [1]], ""),
        ({"uniqueItems": True}, [{"a": [1, 2]}, {"a": [1.0, 2]}], "two of the items are the same at $"),
        ({"multipleOf": 0.5}, 10**400, "a number in it is too large to be checked"),
        (TREE, {"in": {"in": {"in": 3}}}, "3 is not of type 'object' at $.in.in.in"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]},
            [1],
            "1 is not of type 'string' at $[0]",
        ),
        ({"anyOf": [{"type": "string"}, {"required": ["a"], "type": "object"}]}, {}, "'a' is a required property at $"),
        ({"format": "date"}, "no date", ""),
    ],
)
def test_what_a_schema_says_of_a_value(schema: Any, value: Any, problem: str) -> None:
    assert compile_schema(schema).problem(value) == problem


def test_what_is_wrong_is_seen_of_a_long_value_and_of_many_mistakes() -> None:
    problem = compile_schema({"items": {"type": "integer"}}).problem(["long" * 10_000] * 1_000)
    assert problem.count("is not of type 'integer'") == 5
    assert problem.endswith("; and more")
    assert len(problem) < 2_000


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "must be a JSON object"),
        ([], "must be a JSON object"),
        ("string", "must be a JSON object"),
        ({"type": "sting"}, "'sting' is not valid"),
        ({"properties": []}, "is not of type 'object'"),
        ({"required": "name"}, "is not of type 'array'"),
        ({"minimum": float("nan")}, "not JSON"),
        ({"const": object()}, "not JSON"),
        ({"$ref": "https://example.com/schema.json"}, "must lead to a schema in it"),
        ({"$ref": "file:///etc/passwd"}, "must lead to a schema in it"),
        ({"$ref": "#/$defs/none"}, "must lead to a schema in it"),
        ({"$ref": "#/type", "type": "object"}, "must lead to a schema in it"),
        ({"$ref": "#"}, "without end"),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
            "without end",
        ),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "must be one of"),
        ({"$schema": 7}, "must be one of"),
        ({"items": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}, "at its beginning only"),
        ({"items": {"$id": "https://example.com"}}, "at its beginning only"),
        ({"unevaluatedProperties": False}, "unevaluatedProperties is not known"),
        ({"properties": {"a": {"$dynamicRef": "#a"}}}, "dynamicRef is not known"),
        ({"pattern": "(?=a)b"}, "RE2 does not know it"),
        ({"pattern": r"(a)\1"}, "RE2 does not know it"),
        ({"pattern": "("}, "RE2 does not know it"),
        ({"pattern": "\ud800"}, "RE2 does not know it"),
        ({"patternProperties": {"((a{1,900}){1,900}){1,900}": {}}}, "cannot be used"),
        ({"pattern": "[a-z]{1,900}[^a]{1,900}"}, "too large"),
        ({"description": "x" * 200_001}, "longer than"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Any, words: str) -> None:
    with pytest.raises(InvalidSchema, match=words):
        compile_schema(schema)


@pytest.mark.parametrize("depth", [41, 200, 3_000])
def test_a_deep_schema_is_refused(depth: int) -> None:
    schema: Any = {}
    for _ in range(depth):
        schema = {"items": schema}
    with pytest.raises(InvalidSchema, match="nests more than 40"):
        compile_schema(schema)


def _doubling(levels: int) -> dict[str, Any]:
    """Each definition asks the next one twice: two to the power of so many checks."""
    names = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**names, f"d{levels}": {"type": "object"}}}


WIDE_TREE = {
    "$ref": "#/$defs/t",
    "$defs": {"t": {"anyOf": [{"properties": {"c": {"$ref": "#/$defs/t"}}, "required": [str(n)]} for n in range(5)]}},
}


def _nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"c": value}
    return value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (_doubling(30), {}),
        (WIDE_TREE, _nested(30)),
        ({"items": {"enum": list(range(20_000))}}, [19_999] * 100_000),
        ({"anyOf": [{"type": "null"}] * 5_000}, "a" * 200_000),
        ({"items": {"uniqueItems": True}}, [list(range(1_000))] * 1_000),
        ({"patternProperties": {f"k{n}x": True for n in range(1_000)}}, {f"k{n}": n for n in range(10_000)}),
        ({"items": {"pattern": "(a|b|ab)*c"}}, ["ab" * 100_000 + "c"] * 1_000),
    ],
)
def test_no_check_goes_on_for_long(schema: Any, value: Any) -> None:
    problem = compile_schema(schema).problem(value, most_steps=30_000)
    assert "too long to check" in problem or "too deeply" in problem


def test_a_clever_pattern_ends() -> None:
    assert compile_schema({"pattern": "^(a+)+$"}).problem("a" * 5_000 + "!")


@pytest.mark.parametrize("depth", [3_000, 41])
def test_a_deep_value_is_named(depth: int) -> None:
    assert compile_schema(TREE).problem(_nested(depth)) == "it nests more than 40 objects and lists"


def test_a_value_as_deep_as_allowed_is_checked() -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"c": {"$ref": "#/$defs/t"}}, "type": "object"}}}
    assert compile_schema(tree).problem(_nested(38)) == ""


def test_a_large_value_is_checked() -> None:
    schema = {"items": PERSON}
    assert compile_schema(schema).problem([{"name": "Ada", "age": n} for n in range(20_000)]) == ""


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (POINT, True),
        (PERSON, False),
        ({**POINT, "required": []}, False),
        ({**POINT, "additionalProperties": True}, False),
        ({**POINT, "minProperties": 1}, False),
        ({"type": "array", "items": PERSON}, None),
        ({"anyOf": [PERSON]}, None),
        (True, None),
    ],
)
def test_a_provider_is_given_objects_and_held_to_what_it_can_promise(schema: Any, strict: bool | None) -> None:
    given = compile_schema(schema).response_format
    assert (given and given["json_schema"]["strict"]) == strict
    assert given is None or given["json_schema"]["schema"] == schema


def test_the_schema_given_is_not_changed() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    compile_schema(schema)
    assert "$schema" in schema
