"""Text of no known kind: its size and how it begins."""

from __future__ import annotations

from mnesis_core.exploration.findings import Findings, counted, shown
from mnesis_core.exploration.source import Source

VERSION = 1
FIRST_LINES = 5
LINE_CHARACTERS = 160
_TO_COUNT = 1_048_576
"""Bytes that are counted at a time."""


def explore(source: Source) -> Findings:
    """Count lines and bytes, and show the first lines that say something."""
    first: list[str] = []
    for line in source.lines():
        if line.strip():
            first.append(shown(line, characters=LINE_CHARACTERS))
        if len(first) == FIRST_LINES:
            break
    lines = count_lines(source)
    return Findings(lines=(f"{counted(lines, 'line')}, {counted(source.size, 'byte')}", "It begins:", *first))


def count_lines(source: Source) -> int:
    """The lines of a file, without decoding them; the last one needs no end."""
    lines, last = 0, b"\n"
    with source.path.open("rb") as file:
        while data := file.read(_TO_COUNT):
            lines += data.count(b"\n")
            last = data[-1:]
    return lines + (last != b"\n")
