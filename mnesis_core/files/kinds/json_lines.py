"""JSON Lines: how many records, and which keys they have with values of which types."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from mnesis_core.files.kinds.text import count_lines
from mnesis_core.files.shapes import ShapeBuilder, shape_lines
from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

MOST_RECORDS = 20_000
"""That are parsed; the lines after them are counted."""
MOST_CHARACTERS = 67_108_864
RECORD_CHARACTERS = 8_388_608
"""A longer line is handed on in pieces, none of which is a record."""


@dataclass(slots=True)
class _Read:
    """What the parsed lines held."""

    builder: ShapeBuilder = field(default_factory=ShapeBuilder)
    records: int = 0
    broken: int = 0
    first_broken: str = ""
    ended: bool = False
    """Whether these were all lines."""


def explore(source: Source) -> Findings:
    """Parse the first records and count the rest.

    :raises Unreadable: no line of it, or less than half of them, is JSON.
    """
    read = _read(source)
    if read.records <= read.broken:
        raise Unreadable(f"not JSON Lines: {read.first_broken}" if read.first_broken else "not JSON Lines: it is empty")
    every = (
        counted(read.records, "record") if read.ended else f"{counted(count_lines(source), 'line')}, one record each"
    )
    broken = [f"{counted(read.broken, 'line is', 'lines are')} no JSON: {read.first_broken}"] if read.broken else []
    return Findings(
        lines=[every, *broken, *shape_lines(read.builder.root, name="Each record:")],
        covered="all of it" if read.ended else f"the first {read.records + read.broken:,} records; the others counted",
    )


def _read(source: Source) -> _Read:
    read = _Read()
    characters = 0
    for number, line in enumerate(source.lines(RECORD_CHARACTERS), start=1):
        if read.records + read.broken >= MOST_RECORDS or characters > MOST_CHARACTERS:
            return read
        characters += len(line)
        if line.strip("\x1e \t\r"):
            _take(read, line.strip("\x1e"), number)
    read.ended = True
    return read


def _take(read: _Read, line: str, number: int) -> None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        read.broken += 1
        read.first_broken = read.first_broken or f"line {number:,}: {shown(str(error))}"
        return
    read.records += 1
    read.builder.value(value)
