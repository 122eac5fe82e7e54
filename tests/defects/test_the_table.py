"""``docs/defects.md`` names every defect, and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.documents.named_tests import missing_tests, named_tests

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", (ROOT / "docs/defects.md").read_text(), re.MULTILINE)


def test_every_defect_has_a_row() -> None:
    assert [number for number, _, _ in ROWS] == [str(number) for number in range(1, 41)]


def test_the_tests_that_the_rows_name_are_there() -> None:
    assert all(named_tests(tests) for _, _, tests in ROWS)
    assert not missing_tests(tests for _, _, tests in ROWS)
