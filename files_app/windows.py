"""Stretches of a text by line, from anywhere in it at once: where its lines are is counted once per content."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

from files_app.contents import content_size, read_content
from mnesis_core.text import text_of_bytes

BLOCK_BYTES = 65_536
READ_BYTES = 4_194_304
LONGEST_LINE = 4_000
"""Bytes of a line that are shown."""
MOST_HITS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTable:
    """Where the lines of a content are."""

    content_id: str
    size: int
    """Bytes."""
    breaks: tuple[int, ...]
    """Line breaks up to the end of each block."""
    total: int
    """Lines; a last one without a break is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line as it can be shown."""

    number: int
    """From 1."""
    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A line that has what was searched for."""

    line: int
    text: str


@lru_cache(maxsize=128)
def table_of(content_id: str) -> LineTable:
    """Count the lines of a content. Reads all of it, the first time: content never changes.

    :raises FileContentNotFound: it is not kept here.
    """
    size = content_size(content_id)
    breaks, before, last = [], 0, b""
    for offset in range(0, size, READ_BYTES):
        data = read_content(content_id, offset, READ_BYTES)
        for begin in range(0, len(data), BLOCK_BYTES):
            before += data.count(b"\n", begin, begin + BLOCK_BYTES)
            breaks.append(before)
        last = data[-1:]
    total = before + (size > 0 and last != b"\n")
    return LineTable(content_id=content_id, size=size, breaks=tuple(breaks), total=total)


def read_window(table: LineTable, *, first: int, limit: int) -> list[Line]:
    """At most ``limit`` lines from line ``first`` on (from 1), long ones cut."""
    last = min(first + limit - 1, table.total)
    if first > last:
        return []
    begin, end = _offset_of(table, first), _offset_of(table, last + 1)
    if end - begin > limit * LONGEST_LINE:
        return [_long_line(table, number) for number in range(first, last + 1)]
    lines = read_content(table.content_id, begin, end - begin).split(b"\n")
    return [_line(first + index, data) for index, data in enumerate(lines[: last - first + 1])]


def find_lines(table: LineTable, query: str) -> list[Hit]:
    """The first lines that hold a text, whatever its case (of ASCII letters), ``MOST_HITS`` at the most."""
    wanted = query.encode("utf-8", "replace").lower()
    numbers: dict[int, None] = {}
    offset, number, rest = 0, 1, b""
    while (offset < table.size or rest) and len(numbers) < MOST_HITS:
        data = rest + read_content(table.content_id, offset, READ_BYTES)
        offset += READ_BYTES
        # Whole lines: a text does not stand on two. One that is longer than a reading is searched in pieces.
        end = data.rfind(b"\n") + 1 or len(data)
        rest = data[end:] if offset < table.size else b""
        whole = data[:end] if offset < table.size else data
        _note(whole.lower(), wanted, number, numbers)
        number += whole.count(b"\n")
    return [Hit(line=found, text=_around(table, found, wanted)) for found in list(numbers)[:MOST_HITS]]


def _note(data: bytes, wanted: bytes, number: int, numbers: dict[int, None]) -> None:
    counted = 0
    place = data.find(wanted)
    while place >= 0 and len(numbers) < MOST_HITS:
        number += data.count(b"\n", counted, place)
        numbers[number] = None
        counted = place
        end = data.find(b"\n", place)
        place = data.find(wanted, end) if end >= 0 else -1


def _around(table: LineTable, number: int, wanted: bytes) -> str:
    begin = _offset_of(table, number)
    data = read_content(table.content_id, begin, min(LONGEST_LINE, _offset_of(table, number + 1) - begin))
    place = max(0, data.lower().find(wanted))
    return text_of_bytes(data[max(0, place - 40) : place + 160]).strip("\r\n\ufffd ")


def _offset_of(table: LineTable, number: int) -> int:
    """The byte where a line begins; the end for what lies beyond."""
    if number <= 1:
        return 0
    block = bisect_left(table.breaks, number - 1)
    if block == len(table.breaks):
        return table.size
    data = read_content(table.content_id, block * BLOCK_BYTES, BLOCK_BYTES)
    place = -1
    for _ in range(number - 1 - (table.breaks[block - 1] if block else 0)):
        place = data.index(b"\n", place + 1)
    return block * BLOCK_BYTES + place + 1


def _long_line(table: LineTable, number: int) -> Line:
    begin = _offset_of(table, number)
    length = min(LONGEST_LINE + 1, _offset_of(table, number + 1) - begin)
    return _line(number, read_content(table.content_id, begin, length).split(b"\n")[0])


def _line(number: int, data: bytes) -> Line:
    text = text_of_bytes(data[:LONGEST_LINE])
    return Line(number=number, text=text.removesuffix("\r"), is_cut=len(data) > LONGEST_LINE)
