"""``docs/defects.md`` names every defect, and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", (ROOT / "docs/defects.md").read_text(), re.MULTILINE)


def test_every_defect_has_a_row() -> None:
    assert [number for number, _, _ in ROWS] == [str(number) for number in range(1, 41)]


@pytest.mark.parametrize("tests", [tests for _, _, tests in ROWS])
def test_the_tests_that_a_row_names_are_there(tests: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
    assert named
    for path, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"
