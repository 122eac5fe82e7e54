"""Tests that a page of the documentation names as ``tests/path.py::test_name``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return the path and name of each test that is named in a text."""
    return re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)


def missing_tests(texts: Iterable[str]) -> list[str]:
    """Return the named tests that do not exist."""
    named = {test for text in texts for test in named_tests(text)}
    sources = {path: (ROOT / path).read_text() if (ROOT / path).is_file() else "" for path, _ in named}
    return sorted(
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"^(async )?def {name}\(", sources[path], re.MULTILINE)
    )
