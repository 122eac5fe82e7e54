"""The lines of a file: read a window of bytes at a time, searched in linear time (RE2), and found by number or range."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import Literal

import re2

from mnesis_core.errors import InvalidRequest, RangeNotSatisfiable, gettext_noop
from mnesis_core.files.source import MARKS
from mnesis_core.records import FileReference
from mnesis_core.search.words import parse_pattern, refuse_long
from mnesis_core.text import LONGEST_CHARACTER, character_start

Mode = Literal["text", "regex"]
Read = Callable[[int, int], bytes]  # Takes an offset and a number of bytes.
WINDOW_BYTES = 131_072  # What a processor's cache holds: larger windows are slower.
SHOWN_CHARACTERS = 2_000
OVERLAP_BYTES = 4_096  # Pieces of a long line overlap, so that a match no longer than this is found wherever they end.
MOST_COUNTED = 1_000  # Matches counted in one line.
SHOWN_BYTES, BEFORE_BYTES = 400, 120  # Bytes of a line around its first match, and of those the ones before it.
_LARGEST_PROGRAM = 10_000
_STEPS = 50_000_000  # A window times a pattern's size: about what RE2 does in a second at its slowest.
_TERM = re.compile(r'"([^"]+)"|(\S+)')
_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLine:
    number: int
    offset: int  # the place of the line's first byte in the file
    text: str
    is_cut: bool  # True if the line is longer; a range of bytes reads the rest.


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLines:
    file: FileReference
    lines: tuple[FileLine, ...]
    total: int | None  # None while not all lines are counted; the next request continues counting.
    next_line: int | None  # None at the end of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class LineHit:
    number: int
    offset: int  # the place of the first match's first byte in the file
    text: str  # shortened around the first match
    matches: tuple[tuple[int, int], ...]  # positions in ``text``: the first character, and the one after the last
    count: int  # at most ``MOST_COUNTED``


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSearch:
    file: FileReference
    hits: tuple[LineHit, ...]
    searched_bytes: int
    size: int
    next_cursor: str | None  # None when all of the file was searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    name: str = "utf-8"
    mark: int = 0  # bytes of the byte order mark

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
        if self.name == "utf-8":
            return character_start(raw, index)
        return index - index % len(self.newline)

    def plain(self, raw: bytes) -> bytes:
        text = raw if self.name == "utf-8" else raw.decode(self.name, "replace").encode()
        return text.replace(b"\r\n", b"\n") if b"\r" in text else text

    def length(self, text: str) -> int:
        return len(text.encode(self.name, "replace"))


def encoding_of(head: bytes) -> Encoding:
    """Return the encoding that the byte order mark names; UTF-8 without one."""
    found = next(((mark, name) for mark, name in MARKS if head.startswith(mark)), (b"", "utf-8"))
    return Encoding(name=found[1], mark=len(found[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    line: int
    is_inside: bool = False  # The place is not the beginning of its line.
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Window:
    """Whole lines, or a piece of one that is longer.

    The text is UTF-8 with plain line ends, whatever the file has, so that a pattern runs over many lines at once. What is no
    character stays as it is until it is shown, as U+FFFD.
    """

    place: Place
    raw: bytes
    encoding: Encoding
    is_last: bool
    overlap: int = 0  # bytes at the beginning that the previous window had, too

    @cached_property
    def text(self) -> bytes:
        return self.encoding.plain(self.raw)

    @cached_property
    def after(self) -> Place:
        line = self.place.line + self.text.count(b"\n")
        return Place(line=line, offset=self.place.offset + len(self.raw), is_inside=not self.text.endswith(b"\n"))

    @cached_property
    def seen(self) -> int:
        return len(self.encoding.plain(self.raw[: self.overlap]))

    @cached_property
    def starts(self) -> list[int]:
        """Return where the lines begin in ``raw``."""
        encoding = self.encoding
        if encoding.name == "utf-8":
            return [0, *accumulate(len(line) + 1 for line in self.raw.split(b"\n"))]
        lines = self.raw.decode(encoding.name, "replace").split("\n")
        return [0, *accumulate(encoding.length(line) + len(encoding.newline) for line in lines)]

    def line_offset(self, index: int, start: int) -> int:
        """Return the offset in the file of the window's line ``index``, which begins at ``start`` of ``text``."""
        return self.place.offset + (start if self.text is self.raw else self.starts[index])

    def length(self, text: bytes) -> int:
        """Return the bytes that a piece of ``text`` within a line takes in the file."""
        return len(text) if self.encoding.name == "utf-8" else self.encoding.length(text.decode(errors="replace"))


def windows(
    read: Read, encoding: Encoding, place: Place, *, size: int, window_bytes: int = WINDOW_BYTES, overlap: int = 0
) -> Iterator[Window]:
    """Yield a file's windows from a place on.

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
    after: Place  # where counting continues
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePattern:
    patterns: tuple[re2._Regexp[bytes], ...]  # The longest, and so most likely the rarest, first.

    @property
    def window_bytes(self) -> int:
        """Return how many bytes to search in one step, so that none takes long."""
        size: int = sum(pattern.programsize for pattern in self.patterns)
        return max(2 * OVERLAP_BYTES, min(WINDOW_BYTES, _STEPS // max(size, 1)))

    def places(self, line: bytes) -> list[tuple[int, int]]:
        """Return where the matches are, in order; none unless every pattern has one."""
        found = [[match.span() for match in islice(one.finditer(line), MOST_COUNTED)] for one in self.patterns]
        places: list[tuple[int, int]] = []
        for first, last in sorted(chain(*found)) if all(found) else ():
            if not places or first >= places[-1][1]:
                places.append((first, last))
        return places[:MOST_COUNTED]


def parse_lines(text: str, mode: Mode) -> LinePattern:
    """Parse a regular expression, or terms that a line must all contain, anywhere and in any case.

    A term is a word or ``"in quotes"``. The ``*`` of ``begin*`` is ignored, since parts of words match anyway.

    :raises InvalidRequest: it is empty or too long, or RE2 does not accept it
    """
    if mode == "regex":
        parse_pattern(text)
        return LinePattern(patterns=(_compiled(text),))
    refuse_long(text)
    asked = [
        quoted or (word[:-1] if word.endswith("*") and word[:-1].isalnum() else word)
        for quoted, word in _TERM.findall(text)
    ]
    terms = sorted(dict.fromkeys(asked), key=len, reverse=True)
    return LinePattern(patterns=tuple(_compiled(f"(?i){re2.escape(term)}") for term in terms))


def _compiled(pattern: str) -> re2._Regexp[bytes]:
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True  # no match goes over the end of a line
    try:
        compiled = re2.compile(b"(?m)" + pattern.encode(), options)
    except (UnicodeEncodeError, re2.error):
        raise InvalidRequest(gettext_noop("RE2 does not know this pattern."), field="q") from None
    if compiled.programsize > _LARGEST_PROGRAM:
        raise InvalidRequest(gettext_noop("This pattern is too large. Repeat less in it."), field="q")
    return compiled


def hits_in(window: Window, pattern: LinePattern) -> Iterator[tuple[LineHit, Place]]:
    """Yield the lines of a window that match, each with the place from which the search continues."""
    text, first = window.text, pattern.patterns[0]
    at, counted, index = 0, 0, 0
    while at < len(text) and (match := first.search(text, at)):
        begin = text.rfind(b"\n", 0, match.start()) + 1
        if begin == len(text):
            return
        end = text.find(b"\n", begin)
        end = len(text) if end < 0 else end
        index += text.count(b"\n", counted, begin)
        counted, at = begin, end + 1
        line = text[begin:end]
        places = pattern.places(line)
        if window.seen and begin == 0:
            places = [place for place in places if place[1] > window.seen]
        if not places:
            continue
        after = window.after
        if end < len(text):
            after = Place(line=window.place.line + index + 1, offset=window.line_offset(index + 1, end + 1))
        offset = window.line_offset(index, begin) + window.length(line[: places[0][0]])
        excerpt, matches = _excerpt(line, places)
        number = window.place.line + index
        yield LineHit(number=number, offset=offset, text=excerpt, matches=matches, count=len(places)), after


def _excerpt(line: bytes, places: list[tuple[int, int]]) -> tuple[str, tuple[tuple[int, int], ...]]:
    is_long = len(line) > SHOWN_BYTES
    begin = character_start(line, max(0, places[0][0] - BEFORE_BYTES)) if is_long else 0
    end = character_start(line, min(len(line), begin + SHOWN_BYTES)) if is_long else len(line)
    lead, tail = "…" if begin else "", "…" if end < len(line) else ""

    def at(byte: int) -> int:
        return len(lead) + len(line[begin : min(byte, end)].decode(errors="replace"))

    matches = tuple((at(first), at(last)) for first, last in places if begin <= first < min(last, end))
    return f"{lead}{line[begin:end].decode(errors='replace')}{tail}", matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    first: int
    end: int  # the place after the last byte


def parse_range(header: str, *, size: int) -> Span | None:
    """Return the range that HTTP's ``Range`` asks for (RFC 9110, 14); None for the whole file, also for several ranges or
    malformed ones.

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
