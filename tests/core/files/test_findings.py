"""Names in a summary."""

from __future__ import annotations

import pytest

from mnesis_core.files.source import listed, shown


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("two\nlines\u2028three", "two lines three"),
        ("a\u202egpj.exe", "a\ufffdgpj.exe"),
        ("\x1b[31mred\x00", "\ufffd[31mred\ufffd"),
        ("half \ud800", "half \ufffd"),
        ("क\u200dष", "क\u200dष"),
        ("x" * 100_000, "x" * 79 + "…"),
        (" " * 100_000, ""),
    ],
)
def test_a_hostile_name_is_one_short_line(name: str, line: str) -> None:
    assert shown(name) == line


def test_a_list_says_how_many_more_there_are() -> None:
    assert listed(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert listed([]) == "none"
