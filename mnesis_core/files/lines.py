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

WINDOW_BYTES = 131_072
"""What a processor's cache holds: larger windows are slower."""
SHOWN_CHARACTERS = 2_000
"""Of one line."""
Read = Callable[[int, int], bytes]
"""So many bytes (the second) from an offset (the first) on."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLine:
    """A line of a file."""

    number: int
    """From 1."""
    offset: int
    """Of its first byte."""
    text: str
    """Without its end; at most ``SHOWN_CHARACTERS``."""
    is_cut: bool
    """True where it is longer; a range of bytes reads the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLines:
    """Some lines of a file."""

    file: FileReference
    lines: tuple[FileLine, ...]
    total: int | None
    """Lines of the whole file; None while they are not all counted: ask again, it goes on where it was."""
    next_line: int | None
    """Where to read on; None at the end of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineHit:
    """A line that a search found, or a piece of a very long one."""

    number: int
    offset: int
    """Of the first match's first byte in the file."""
    text: str
    """The line, shortened around the first match."""
    matches: tuple[tuple[int, int], ...]
    """Places in ``text``: (first, after the last) character."""
    count: int
    """Matches in the line, at most ``line_patterns.MOST_COUNTED``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSearch:
    """Lines that match, and how much of the file was searched for them and for the pages before."""

    file: FileReference
    hits: tuple[LineHit, ...]
    searched_bytes: int
    size: int
    next_cursor: str | None
    """None when everything was searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How a file's bytes become text."""

    name: str = "utf-8"
    mark: int = 0
    """Bytes of its byte order mark."""

    @property
    def newline(self) -> bytes:
        """A line's end."""
        return "\n".encode(self.name)

    def after_last_line(self, raw: bytes) -> int:
        """Where the last whole line ends; 0 if none does."""
        newline = self.newline
        found = raw.rfind(newline)
        while found % len(newline) and found >= 0:  # half of one sign and half of the next
            found = raw.rfind(newline, 0, found + len(newline) - 1)
        return found + len(newline) if found >= 0 else 0

    def boundary(self, raw: bytes, index: int) -> int:
        """The beginning of the character at an index, or before it."""
        if self.name == "utf-8":
            return character_start(raw, index)
        return index - index % len(self.newline)

    def plain(self, raw: bytes) -> bytes:
        """UTF-8 with plain line ends; the same bytes where they are that."""
        text = raw if self.name == "utf-8" else raw.decode(self.name, "replace").encode()
        return text.replace(b"\r\n", b"\n") if b"\r" in text else text

    def starts(self, raw: bytes) -> list[int]:
        """Where each line begins, and after the last one."""
        if self.name == "utf-8":
            return [0, *accumulate(len(line) + 1 for line in raw.split(b"\n"))]
        lines = raw.decode(self.name, "replace").split("\n")
        return [0, *accumulate(self.length(line) + len(self.newline) for line in lines)]

    def length(self, text: str) -> int:
        """Bytes that a text takes in the file."""
        return len(text.encode(self.name, "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a file."""

    line: int
    is_inside: bool = False
    """Not where the line begins."""
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Window:
    """A stretch of a file: whole lines, or a piece of one that is longer."""

    place: Place
    raw: bytes
    encoding: Encoding
    is_last: bool
    overlap: int = 0
    """Bytes at its beginning that the window before had too."""

    @cached_property
    def text(self) -> bytes:
        """UTF-8 with plain line ends."""
        return self.encoding.plain(self.raw)

    @cached_property
    def after(self) -> Place:
        """Where the next window begins."""
        line = self.place.line + self.text.count(b"\n")
        return Place(line=line, offset=self.place.offset + len(self.raw), is_inside=not self.text.endswith(b"\n"))

    @cached_property
    def seen(self) -> int:
        """Bytes of ``text`` that the window before had too."""
        return len(self.encoding.plain(self.raw[: self.overlap]))

    @cached_property
    def _starts(self) -> list[int]:
        return self.encoding.starts(self.raw)

    def line_offset(self, index: int, start: int) -> int:
        """Where in the file the window's line of this index begins, which begins at ``start`` of ``text``."""
        within = start if self.text is self.raw else self._starts[index]
        return self.place.offset + within

    def length(self, text: bytes) -> int:
        """Bytes that a piece of ``text`` within a line takes in the file."""
        return len(text) if self.encoding.name == "utf-8" else self.encoding.length(text.decode(errors="replace"))


def encoding_of(head: bytes) -> Encoding:
    """What a file's byte order mark says; UTF-8 where it has none."""
    found = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", "utf-8"))
    return Encoding(name=found[1], mark=len(found[0]))


def windows(
    read: Read, encoding: Encoding, place: Place, *, size: int, window_bytes: int = WINDOW_BYTES, overlap: int = 0
) -> Iterator[Window]:
    """A file from a place on.

    :param size: bytes of the file
    :param overlap: pieces of a long line begin so many bytes before the end of the one before
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
    """Where a window ends: after a line, or in a line that is too long at a character."""
    end = encoding.after_last_line(raw)
    return end if end > repeated else max(encoding.boundary(raw, len(raw) - LONGEST_CHARACTER), repeated + 1)


def lines_of(window: Window) -> Iterator[FileLine]:
    """The lines that begin in a window."""
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
    """The beginning of a line as text: more than ``SHOWN_CHARACTERS`` where it has more."""
    return line[: (SHOWN_CHARACTERS + 1) * LONGEST_CHARACTER].decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineIndex:
    """Which line stands about where: a place for each megabyte of a file, as far as it was walked. Derived from the bytes."""

    places: tuple[Place, ...]
    after: Place
    """Where counting goes on."""
    is_whole: bool = False

    @property
    def total(self) -> int | None:
        """Lines of the file; None while they are not all counted. What follows the last line's end is a line if there is any."""
        if not self.is_whole:
            return None
        return self.after.line if self.after.is_inside else self.after.line - 1

    def reaches(self, line: int) -> bool:
        """Whether it knows where to look for a line."""
        return self.is_whole or line < self.after.line

    def before(self, line: int) -> Place:
        """The last place known that is not behind a line's beginning."""
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
    """The range that a header asks for; ``None`` for all of it: also where it asks for several ranges, or is none.

    :raises RangeNotSatisfiable: there are no such bytes.
    """
    asked = _RANGE.fullmatch(header.strip())
    if asked is None or not any(asked.groups()):
        return None
    begin, end = asked.groups()
    if begin and end and int(end) < int(begin):
        return None
    span = _span(begin, end, size)
    if span.first >= span.end:
        raise RangeNotSatisfiable(size=size)
    return span


def _span(begin: str, end: str, size: int) -> Span:
    if not begin:
        return Span(first=max(0, size - int(end)), end=size)
    return Span(first=int(begin), end=min(int(end) + 1, size) if end else size)
