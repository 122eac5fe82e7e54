"""What may be asked of a model: checked by name, merged by layer, and in OpenAI's wire form."""

from __future__ import annotations

import json

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.parameters import (
    EFFORTS,
    KEPT_NAMES,
    LONGEST_FORMAT,
    NO_PARAMETERS,
    Parameters,
    function_of,
    is_json_format,
    merge,
    read_parameters,
    read_stored,
    wire_form,
)

SCHEMA = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "number"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA, "strict": True}}
CHOICE = {"type": "function", "function": {"name": "weather"}}
ALL = {
    "temperature": 0.5,
    "top_p": 0.25,
    "max_output_tokens": 9,
    "effort": "high",
    "verbosity": "low",
    "stop": ["END", "\n"],
    "seed": -7,
    "tool_choice": CHOICE,
    "parallel_tool_calls": False,
    "response_format": FORMAT,
}


def deep(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"properties": value}
    return {"type": "json_schema", "json_schema": {"name": "r", "schema": value}}


def test_every_parameter_is_read_and_written_back() -> None:
    read = read_parameters(ALL)
    assert read.as_dict() == ALL
    assert read_parameters(json.loads(json.dumps(read.to_store()))) == read
    assert read_parameters({"temperature": 1, "stop": "END", "seed": None}) == Parameters(
        temperature=1.0, stop=("END",)
    )
    assert str(read_parameters({"temperature": -0.0}).temperature) == "0.0"


def test_a_schema_keeps_the_order_of_its_properties_wherever_it_is_stored() -> None:
    kept = json.dumps(read_parameters(ALL).to_store(), sort_keys=True)
    read = read_parameters(json.loads(kept)).response_format
    assert read is not None
    assert json.dumps(read) == json.dumps(FORMAT)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [-0.1, 2.1, "1", True, float("nan"), float("inf"), 10**400]),
        ("top_p", [-1, 1.1, [], None.__class__]),
        ("max_output_tokens", [0, -1, 10**8, 1.5, True, "9"]),
        ("effort", ["", "highest", 3, [], {}]),
        ("verbosity", ["none", 1]),
        ("stop", ["", [""], ["a"] * 5, ["x" * 101], [1], {}, 7, ["\x00"], ["\ud800"], [["a"]]]),
        ("seed", [2**53, -(2**53), 0.5, True, "1"]),
        ("tool_choice", ["", "any", 1, {}, {"type": "function"}, {"type": "function", "function": {"name": "a b"}}]),
        ("tool_choice", [{"type": "function", "function": "a"}, {"type": "allowed_tools", "allowed_tools": {}}]),
        ("parallel_tool_calls", [0, "true", []]),
        ("response_format", [1, [], {}, {"type": []}, {"type": "xml"}, {"type": "json_schema"}, "{", "1", deep(60)]),
        ("response_format", [FORMAT | {"json_schema": FORMAT["json_schema"] | {"name": "a b"}}]),  # type: ignore[operator]
        ("response_format", [FORMAT | {"json_schema": FORMAT["json_schema"] | {"strict": 1}}]),  # type: ignore[operator]
        ("response_format", [FORMAT | {"json_schema": FORMAT["json_schema"] | {"other": 1}}]),  # type: ignore[operator]
        ("response_format", [{"type": "json_schema", "json_schema": {"name": "r", "schema": {"title": "\x00"}}}]),
        ("response_format", [{"type": "json_schema", "json_schema": {"name": "r", "schema": {"title": "\ud800"}}}]),
        ("response_format", [{"type": "json_schema", "json_schema": {"schema": {"title": "x" * LONGEST_FORMAT}}}]),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, values: list[object], subtests) -> None:
    for value in values:
        with subtests.test(value=ascii(value)[:60]), pytest.raises(InvalidRequest) as refused:
            read_parameters({name: value})
        assert refused.value.details["field"] == f"parameters.{name}"


def test_a_format_nested_thousands_deep_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        read_parameters({"response_format": deep(3_000)})


def test_an_unknown_name_and_what_is_no_object_are_refused() -> None:
    for values, field in (({"heat": 1}, "parameters.heat"), ([], "parameters"), (None, "parameters")):
        with pytest.raises(InvalidRequest) as refused:
            read_parameters(values)
        assert refused.value.details["field"] == field
    with pytest.raises(InvalidRequest):
        read_parameters({"max_output_tokens": 5}, allowed=KEPT_NAMES)


def test_the_nearest_layer_wins_name_by_name() -> None:
    turn, session = Parameters(temperature=0.0), Parameters(temperature=1.0, stop=())
    entry = Parameters(stop=("END",), effort="low", parallel_tool_calls=False)
    expected = Parameters(temperature=0.0, stop=(), effort="low", parallel_tool_calls=False)
    assert merge(turn, session, entry) == expected
    assert merge() == NO_PARAMETERS


def test_the_wire_form_has_openais_names_and_nothing_that_is_the_default_there() -> None:
    wire = wire_form(read_parameters(ALL))
    assert (wire["reasoning_effort"], wire["max_tokens"], wire["stop"]) == ("high", 9, ["END", "\n"])
    assert wire["response_format"] == FORMAT
    assert wire_form(Parameters(tool_choice="auto", response_format={"type": "text"})) == {}
    assert wire_form(Parameters(temperature=0.0, seed=0)) == {"temperature": 0.0, "seed": 0}
    assert (function_of(CHOICE), function_of("required"), function_of(None)) == ("weather", "", "")
    assert not is_json_format(Parameters(response_format={"type": "text"}))


def test_what_is_stored_and_not_understood_any_more_is_passed_over() -> None:
    assert read_stored({"temperature": 0.5, "effort": "utmost", "heat": 1}) == Parameters(temperature=0.5)
    assert read_stored([]) == NO_PARAMETERS
    assert EFFORTS[0] == "none"
    assert EFFORTS[-1] == "max"
