"""Lines of a file that may be of any size and hold anything: walked in windows of whole lines, never read whole.

A window's text is UTF-8 with plain line ends, whatever the file has, so that a pattern runs over many lines at once. A line
longer than a window comes in pieces. What is no character stays as it is until it is shown, as U+FFFD.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from mnesis_core.errors import RangeNotSatisfiable
from mnesis_core.records import FileReference
from mnesis_core.text import LONGEST_CHARACTER, character_start

# What a processor's cache holds: larger windows are slower.
WINDOW_BYTES = 131_072
SHOWN_CHARACTERS = 2_000
# Takes an offset and a number of bytes.
Read = Callable[[int, int], bytes]
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLine:
    number: int
    # Of the line's first byte in the file.
    offset: int
    text: str
    # True if the line is longer; a range of bytes reads the rest.
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLines:
    file: FileReference
    lines: tuple[FileLine, ...]
    # None while not all lines are counted; the next request continues counting.
    total: int | None
    # None at the end of the file.
    next_line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineHit:
    number: int
    # Of the first match's first byte in the file.
    offset: int
    # Shortened around the first match.
    text: str
    # Positions in ``text``: the first character, and the one after the last.
    matches: tuple[tuple[int, int], ...]
    # At most ``patterns.MOST_COUNTED``.
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSearch:
    file: FileReference
    hits: tuple[LineHit, ...]
    searched_bytes: int
    size: int
    # None when all of the file was searched.
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    name: str = "utf-8"
    # Bytes of the byte order mark.
    mark: int = 0

    @property
    def newline(self) -> bytes:
        return "\n".encode(self.name)

    def after_last_line(self, raw: bytes) -> int:
        """Return where the last whole line ends; 0 if there is none."""
        newline = self.newline
        found = raw.rfind(newline)
        while found % len(newline) and found >= 0:  # half of one sign and half of the next
            found = raw.rfind(newline, 0, found + len(newline) - 1)
        return found + len(newline) if found >= 0 else 0

    def boundary(self, raw: bytes, index: int) -> int:
        """Return the beginning of the character at an index."""
        if self.name == "utf-8":
            return character_start(raw, index)
        return index - index % len(self.newline)

    def plain(self, raw: bytes) -> bytes:
        """Return the text in UTF-8 with plain line ends."""
        text = raw if self.name == "utf-8" else raw.decode(self.name, "replace").encode()
        return text.replace(b"\r\n", b"\n") if b"\r" in text else text

    def starts(self, raw: bytes) -> list[int]:
        """Return where each line begins, and where the last one ends."""
        if self.name == "utf-8":
            return [0, *accumulate(len(line) + 1 for line in raw.split(b"\n"))]
        lines = raw.decode(self.name, "replace").split("\n")
        return [0, *accumulate(self.length(line) + len(self.newline) for line in lines)]

    def length(self, text: str) -> int:
        """Return the bytes that a text takes in the file."""
        return len(text.encode(self.name, "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    line: int
    # The place is not the beginning of its line.
    is_inside: bool = False
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Window:
    """A part of a file: whole lines, or a piece of one that is longer."""

    place: Place
    raw: bytes
    encoding: Encoding
    is_last: bool
    # Bytes at the beginning that the previous window had, too.
    overlap: int = 0

    @cached_property
    def text(self) -> bytes:
        return self.encoding.plain(self.raw)

    @cached_property
    def after(self) -> Place:
        line = self.place.line + self.text.count(b"\n")
        return Place(line=line, offset=self.place.offset + len(self.raw), is_inside=not self.text.endswith(b"\n"))

    @cached_property
    def seen(self) -> int:
        """Return the bytes of ``text`` that the previous window had, too."""
        return len(self.encoding.plain(self.raw[: self.overlap]))

    @cached_property
    def _starts(self) -> list[int]:
        return self.encoding.starts(self.raw)

    def line_offset(self, index: int, start: int) -> int:
        """Return the offset in the file of the window's line ``index``, which begins at ``start`` of ``text``."""
        within = start if self.text is self.raw else self._starts[index]
        return self.place.offset + within

    def length(self, text: bytes) -> int:
        """Return the bytes that a piece of ``text`` within a line takes in the file."""
        return len(text) if self.encoding.name == "utf-8" else self.encoding.length(text.decode(errors="replace"))


def encoding_of(head: bytes) -> Encoding:
    """Return the encoding that the byte order mark names; UTF-8 without one."""
    found = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", "utf-8"))
    return Encoding(name=found[1], mark=len(found[0]))


def windows(
    read: Read, encoding: Encoding, place: Place, *, size: int, window_bytes: int = WINDOW_BYTES, overlap: int = 0
) -> Iterator[Window]:
    """Yield a file's windows from a place on.

    :param size: the file's bytes
    :param overlap: pieces of a long line begin this many bytes before the end of the previous one
    """
    repeated = min(overlap, place.offset - encoding.mark) if place.is_inside else 0
    while place.offset < size:
        raw = read(place.offset - repeated, window_bytes + repeated)
        is_last = place.offset - repeated + len(raw) >= size or len(raw) <= repeated
        piece = raw if is_last else raw[: _cut(raw, encoding, repeated)]
        begin = Place(line=place.line, offset=place.offset - repeated, is_inside=place.is_inside or repeated > 0)
        window = Window(place=begin, raw=piece, encoding=encoding, is_last=is_last, overlap=repeated)
        yield window
        if is_last:
            return
        place = window.after
        repeated = len(piece) - encoding.boundary(piece, max(len(piece) - overlap, 1)) if place.is_inside else 0


def _cut(raw: bytes, encoding: Encoding, repeated: int) -> int:
    end = encoding.after_last_line(raw)
    return end if end > repeated else max(encoding.boundary(raw, len(raw) - LONGEST_CHARACTER), repeated + 1)


def lines_of(window: Window) -> Iterator[FileLine]:
    """Yield the lines that begin in a window."""
    lines = window.text.split(b"\n")
    if window.text.endswith(b"\n"):
        lines.pop()
    start = 0
    for index, line in enumerate(lines):
        if index or not window.place.is_inside:
            is_broken = index == len(lines) - 1 and window.after.is_inside and not window.is_last
            shown = shortened(line)
            yield FileLine(
                number=window.place.line + index,
                offset=window.line_offset(index, start),
                text=shown[:SHOWN_CHARACTERS],
                is_cut=is_broken or len(shown) > SHOWN_CHARACTERS,
            )
        start += len(line) + 1


def shortened(line: bytes) -> str:
    """Return the beginning of a line as text, longer than ``SHOWN_CHARACTERS`` if the line is."""
    return line[: (SHOWN_CHARACTERS + 1) * LONGEST_CHARACTER].decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineIndex:
    """A place for each megabyte of a file, as far as it was walked, to find a line quickly. Derived from the bytes."""

    places: tuple[Place, ...]
    # Counting continues here.
    after: Place
    is_whole: bool = False

    @property
    def total(self) -> int | None:
        """Return the number of lines; None while not all are counted. Text after the last line end is a line."""
        if not self.is_whole:
            return None
        return self.after.line if self.after.is_inside else self.after.line - 1

    def reaches(self, line: int) -> bool:
        return self.is_whole or line < self.after.line

    def before(self, line: int) -> Place:
        """Return the last known place not behind a line's beginning."""
        found = bisect_right(self.places, (line, False), key=lambda place: (place.line, place.is_inside))
        return self.places[max(found - 1, 0)]


# HTTP's ``Range`` (RFC 9110, 14): which bytes of a file a program wants.

_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Bytes from ``first`` to before ``end``."""

    first: int
    end: int


def parse_range(header: str, *, size: int) -> Span | None:
    """Return the range that a header asks for; None for the whole file, also for several or malformed ranges.

    :raises RangeNotSatisfiable: the file has no such bytes
    """
    asked = _RANGE.fullmatch(header.strip())
    if asked is None or not any(asked.groups()):
        return None
    begin, end = asked.groups()
    if begin and end and int(end) < int(begin):
        return None
    if begin:
        span = Span(first=int(begin), end=min(int(end) + 1, size) if end else size)
    else:
        span = Span(first=max(0, size - int(end)), end=size)
    if span.first >= span.end:
        raise RangeNotSatisfiable(size=size)
    return span
