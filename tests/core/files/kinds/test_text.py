"""What is said of text of no known kind."""

from __future__ import annotations

from mnesis_core.files.kinds import text
from tests.core.files.conftest import MakeSource

BOOK = b"""The Book

Chapter I
It was dark.
And chapter 2 is no heading.

Part two
========
More.

The end.
"""


def test_sizes_headings_beginning_and_end_are_told(source: MakeSource) -> None:
    assert text.explore(source("a.txt", BOOK)).lines == [
        "11 lines, 19 words, 4 paragraphs, 97 bytes",
        "Headings: Chapter I; Part two",
        "It begins:",
        "The Book",
        "Chapter I",
        "It was dark.",
        "And chapter 2 is no heading.",
        "Part two",
        "It ends: The end.",
    ]


def test_a_long_line_and_bytes_that_are_no_text_are_told(source: MakeSource) -> None:
    lines = text.explore(source("a.txt", b"x" * 5_000 + b"\xff\n")).lines
    assert lines[1:3] == ["Its longest line has 5,001 characters", "1 place in it is no UTF-8"]


def test_utf_16_is_read(source: MakeSource) -> None:
    assert text.explore(source("a.txt", "Grüße\n".encode("utf-16"))).lines[-1] == "Grüße"


def test_an_empty_file_has_no_lines(source: MakeSource) -> None:
    assert text.explore(source("a.txt", b"")).lines == ["0 lines, 0 words, 0 paragraphs, 0 bytes"]
