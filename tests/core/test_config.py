"""Every value has a default within its bounds; what is out of them is refused in words; the documentation agrees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from mnesis_core.config import BOUNDS, Config, override, override_as_stored
from mnesis_core.errors import InvalidRequest

PAGE = Path(__file__).parent.parent.parent / "docs" / "howto" / "inspect" / "tune-compaction.md"
ROW = re.compile(r"^\| `((?:budget|prune|compaction)\.\w+)` \| (.+?) \| (.*?) ?\| (.*?) ?\| (.+) \|$", re.MULTILINE)


def values(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            yield from values(value, f"{path}{item.name}.")
        else:
            yield f"{path}{item.name}", value


ALL = dict(values(Config()))
NUMBERS = {name: value for name, value in ALL.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def nested(name: str, value: Any) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {first: nested(rest, value)} if rest else {first: value}


def test_every_number_has_bounds_and_a_default_within_them() -> None:
    assert sorted(BOUNDS) == sorted(NUMBERS)
    for name, value in NUMBERS.items():
        assert BOUNDS[name][0] <= value <= BOUNDS[name][1], name


def test_a_number_out_of_its_bounds_is_refused_with_them() -> None:
    for name, number in NUMBERS.items():
        low, high = BOUNDS[name]
        for wrong in (low - 1, high + 1):
            with pytest.raises(InvalidRequest) as refused:
                override(Config(), nested(name, type(number)(wrong)))
            assert refused.value.message.startswith(f"{name} must lie between {low:,} and {high:,}, not ")


@pytest.mark.parametrize(
    ("stored", "understood"),
    [
        ({"turn": {"max_steps": 7, "gone": 1}, "gone": {"a": 1}}, {"turn": {"max_steps": 7}}),
        ({"turn": {"max_steps": 0}, "max_output_tokens": 9}, {"max_output_tokens": 9}),
        ({"turn": 5, "budget": {}, "fallbacks": "x"}, {}),
        (
            {"compaction": {"condense_min_fan_in": 20, "condense_fan_in": 20, "gone": 1}},
            {"compaction": {"condense_min_fan_in": 20, "condense_fan_in": 20}},
        ),
    ],
)
def test_of_a_stored_configuration_what_is_understood_still_counts(stored: Any, understood: Any) -> None:
    with pytest.raises(InvalidRequest):
        override(Config(), stored)
    assert override_as_stored(Config(), stored) == override(Config(), understood)


def test_nothing_is_no_number() -> None:
    with pytest.raises(InvalidRequest, match="must lie between"):
        override(Config(), {"compaction": {"spacing_fraction": float("nan")}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compaction": {"model": "x" * 201}}, "compaction.model may have 200 characters, not 201"),
        ({"prune": {"protected_tools": ["x"] * 101}}, "prune.protected_tools may have 100 texts of 200 characters"),
        ({"prune": {"protected_tools": ["x" * 201]}}, "prune.protected_tools may have 100 texts of 200 characters"),
        ({"compaction": {"max_rounds": 3}}, "compaction.max_rounds is not a setting; known here: auto, "),
        ({"compaction": {"auto": 1}}, "compaction.auto must be bool, not int"),
        ({"budget": {"target_fraction": 0.7}}, "budget.target_fraction must be below budget.soft_threshold_fraction"),
        ({"compaction": {"condense_fan_in": 3}}, "compaction.condense_min_fan_in must not be above"),
    ],
)
def test_other_values_have_bounds_too(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        override(Config(), changes)


def shown(value: Any) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case tuple():
            return ", ".join(value)
        case str():
            return value or "the session's own"
    return f"{value:,}".removesuffix(".0")


def test_the_documentation_has_every_setting_of_compaction_with_its_default_and_bounds() -> None:
    rows = {name: (default, bounds) for name, default, _, bounds, _ in ROW.findall(PAGE.read_text())}
    expected = {
        name: (shown(value), " to ".join(map(shown, BOUNDS[name])) if name in BOUNDS else "")
        for name, value in ALL.items()
        if name.split(".")[0] in ("budget", "prune", "compaction")
    }
    assert rows == expected


def test_the_documentation_has_a_unit_for_every_number() -> None:
    units = {name: unit for name, _, unit, _, _ in ROW.findall(PAGE.read_text())}
    assert [name for name in units if name in BOUNDS and not units[name]] == []
    for name, unit in units.items():
        assert ("_tokens" in name) is (unit == "tokens")
        assert ("_seconds" in name) is (unit == "seconds")
