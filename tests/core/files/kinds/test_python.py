"""Python source: what a module defines, and what is no Python."""

from __future__ import annotations

import pytest

from mnesis_core.files.detection import explore as explore_any
from mnesis_core.files.kinds.python import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource

MODULE = b'''"""Keeps things.

More.
"""
import os, sys
from . import near
from ..far import thing
LIMIT = 3
NAMES: tuple[str, ...] = ()
lower = 4
try:
    import fast
except ImportError:
    def fast(): ...

class Store(Base, metaclass=Meta):
    path: str
    class Inner: ...
    def __init__(self, path): pass
    async def load(self): pass

async def fetch(url: str, *, times=3, **more) -> bytes:
    def inside(): ...
def _own(): ...
def last(): ...

if __name__ == "__main__":
    pass
'''


def test_a_module_is_told_in_the_order_of_its_lines_with_what_is_private_last(source: MakeSource) -> None:
    assert explore(source("a.py", MODULE)).lines == (
        "Python, 28 lines: 1 class, 4 functions",
        "It says of itself: Keeps things.",
        "It runs as a program",
        "Imports: os, sys, ., ..far, fast",
        "Constants: LIMIT, NAMES",
        "14: def fast()",
        "16: class Store(Base): fields path; methods __init__, async load; classes Inner",
        "22: async def fetch(url: str, *, times=3, **more) -> bytes",
        "25: def last()",
        "24: def _own()",
    )


def test_an_empty_module_defines_nothing(source: MakeSource) -> None:
    assert explore(source("__init__.py", b"")).lines == ("Python, 0 lines: 0 classes, 0 functions",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x = 1\nprint 'two'\n", "not valid Python in line 2: Missing parentheses"),
        (b"x = '\xff'\n", "not valid Python"),
        (b"x = 1\x00", "not valid Python"),
        (b"(" * 200_000, "not valid Python in line 1: too many nested parentheses"),
        (b"# coding: no-such\n", "not valid Python"),
        (b"#" * 4_194_305, "larger than"),
    ],
)
def test_what_is_no_python_says_why(source: MakeSource, data: bytes, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        explore(source("a.py", data))


@pytest.mark.parametrize("data", [b"-" * 200_000 + b"1", b"x" + b".y" * 200_000, b"x" + b"+y" * 200_000])
def test_depth_leaves_a_description_of_the_text(source: MakeSource, data: bytes) -> None:
    found = explore_any(source("a.py", data))
    assert found.problem in ("it is nested too deeply", "it needs more memory than it may have")
    assert "It begins:" in found.summary


def test_a_warning_about_the_source_is_not_ours(source: MakeSource) -> None:
    assert explore(source("a.py", b"x = '\\d'\nA = 1 is 1\n")).lines[1] == "Constants: A"
