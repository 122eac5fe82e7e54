"""What a caller asks of one turn alone: checked, and kept letter by letter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.errors import InvalidRequest, RequestTooLarge
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.llm.parameters import EFFORTS, Parameters
from mnesis_core.spending import TurnLimits
from mnesis_core.turns.options import MOST_TOOLS, TurnOptions, check_options, read_options, write_options

NAMED = {"type": "json_schema", "json_schema": {"name": "r", "schema": {"properties": {"z": {}, "a": {}}}}}
ANY = st.text(st.characters(), max_size=20)
JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), ANY), lambda item: st.dictionaries(ANY, item))
SPECS = st.builds(ToolSpec, name=ANY, description=ANY, parameters=st.dictionaries(ANY, JSON, max_size=3))
PARAMETERS = st.builds(
    Parameters,
    temperature=st.none() | st.floats(0, 2).map(lambda number: number + 0.0),
    top_p=st.none() | st.floats(0, 1).map(lambda number: number + 0.0),
    max_output_tokens=st.none() | st.integers(1, 9_999),
    effort=st.none() | st.sampled_from(EFFORTS),
    verbosity=st.none() | st.sampled_from(["low", "high"]),
    stop=st.none() | st.lists(st.sampled_from(["\n", "END", "ß"]), max_size=4).map(tuple),
    seed=st.none() | st.integers(-(2**53) + 1, 2**53 - 1),
    tool_choice=st.sampled_from([None, "auto", "none", "required", {"type": "function", "function": {"name": "a"}}]),
    parallel_tool_calls=st.none() | st.booleans(),
    response_format=st.sampled_from([None, {"type": "json_object"}, NAMED]),
)
OPTIONS = st.builds(
    TurnOptions,
    tools=st.lists(SPECS, max_size=3).map(tuple),
    system_prompt=st.none() | ANY,
    limits=st.none() | st.builds(TurnLimits, tokens=st.none() | st.integers(0, 9), seconds=st.none() | st.floats(0, 9)),
    on_doom_loop=st.none() | st.sampled_from(["continue", "stop"]),
    host_mode=st.none() | st.booleans(),
    parameters=PARAMETERS,
)


@given(OPTIONS)
def test_they_are_read_as_they_were_written_whatever_they_hold(options):
    text = write_options(options)
    assert read_options(text) == options
    assert text.isascii()
    assert "\x00" not in text


def test_nothing_asked_is_nothing_written():
    assert write_options(TurnOptions()) == ""
    assert read_options("") == TurnOptions()


def spec(name: str = "a", **parameters: object) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters=dict(parameters))


def deep(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("options", "error", "field"),
    [
        (TurnOptions(tools=(spec(""),)), InvalidRequest, "tools.0.name"),
        (TurnOptions(tools=(spec("a b"),)), InvalidRequest, "tools.0.name"),
        (TurnOptions(tools=(spec("a\n"),)), InvalidRequest, "tools.0.name"),
        (TurnOptions(tools=(spec("x" * 65),)), InvalidRequest, "tools.0.name"),
        (TurnOptions(tools=(spec(), spec())), InvalidRequest, "tools.1.name"),
        (TurnOptions(tools=tuple(spec(f"t{n}") for n in range(MOST_TOOLS + 1))), InvalidRequest, "tools"),
        (TurnOptions(tools=(spec(number=float("nan")),)), InvalidRequest, "tools"),
        (TurnOptions(tools=(spec(text="x" * 400_000),)), RequestTooLarge, "tools"),
        (TurnOptions(system_prompt="x" * 11), RequestTooLarge, "system_prompt"),
        (TurnOptions(on_doom_loop="maybe"), InvalidRequest, "on_doom_loop"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, error, field):
    with pytest.raises(error) as refused:
        check_options(options, characters=10)
    assert refused.value.details["field"] == field


@pytest.mark.parametrize("levels", [101, 100_000])
def test_what_is_nested_too_deep_is_refused(levels):
    with pytest.raises(InvalidRequest):
        check_options(TurnOptions(tools=(spec(**deep(levels)),)), characters=10)
    check_options(TurnOptions(tools=(spec(**deep(99)),)), characters=10)


def test_what_may_be_passes():
    check_options(TurnOptions(tools=(spec("a-B_9"),), system_prompt="", on_doom_loop="stop"), characters=10)
    assert json.loads(write_options(TurnOptions(system_prompt=""))) == {"system_prompt": ""}
