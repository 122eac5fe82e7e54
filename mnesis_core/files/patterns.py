"""The patterns of a search in a file's lines, in time linear in the file's size (RE2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal

import re2

from mnesis_core.errors import InvalidRequest
from mnesis_core.files.lines import WINDOW_BYTES, LineHit, Place, Window
from mnesis_core.search import parse_pattern, refuse_long
from mnesis_core.text import character_start

Mode = Literal["text", "regex"]
# Matches counted in one line.
MOST_COUNTED = 1_000
# Pieces of a long line overlap, so that a match no longer than this is found wherever they end.
OVERLAP_BYTES = 4_096
SHOWN_BYTES, BEFORE_BYTES = 400, 120
_LARGEST_PROGRAM = 10_000
# A window times a pattern's size: about what RE2 does in a second at its slowest.
_STEPS = 50_000_000
_ASKED = re.compile(r'"([^"]+)"|(\S+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePattern:
    """Patterns that a line must all match."""

    # The longest, and so most likely the rarest, first.
    patterns: tuple[re2._Regexp[bytes], ...]

    @property
    def window_bytes(self) -> int:
        """Return how many bytes to search in one step, so that none takes long."""
        size: int = sum(pattern.programsize for pattern in self.patterns)
        return max(2 * OVERLAP_BYTES, min(WINDOW_BYTES, _STEPS // max(size, 1)))

    def places(self, line: bytes) -> list[tuple[int, int]]:
        """Return where the matches are, in order; none unless every pattern has one."""
        found = [[match.span() for match in islice(one.finditer(line), MOST_COUNTED)] for one in self.patterns]
        return list(islice(_apart(sorted(chain(*found))), MOST_COUNTED)) if all(found) else []


def _apart(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    end = 0
    for first, last in places:
        if first >= end:
            yield first, last
            end = last


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
        for quoted, word in _ASKED.findall(text)
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
        raise InvalidRequest("RE2 does not know this pattern.", field="q") from None
    if compiled.programsize > _LARGEST_PROGRAM:
        raise InvalidRequest("This pattern is too large. Repeat less in it.", field="q")
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
        places = pattern.places(text[begin:end])
        if window.seen and begin == 0:
            places = [place for place in places if place[1] > window.seen]
        if places:
            after = window.after
            if end < len(text):
                after = Place(line=window.place.line + index + 1, offset=window.line_offset(index + 1, end + 1))
            yield _hit(window, index, begin, text[begin:end], places), after


def _hit(window: Window, index: int, begin: int, line: bytes, places: list[tuple[int, int]]) -> LineHit:
    text, matches = _excerpt(line, places)
    return LineHit(
        number=window.place.line + index,
        offset=window.line_offset(index, begin) + window.length(line[: places[0][0]]),
        text=text,
        matches=matches,
        count=len(places),
    )


def _excerpt(line: bytes, places: list[tuple[int, int]]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a line around its first match, of at most ``SHOWN_BYTES``, and the matches' positions in it."""
    is_long = len(line) > SHOWN_BYTES
    begin = character_start(line, max(0, places[0][0] - BEFORE_BYTES)) if is_long else 0
    end = character_start(line, min(len(line), begin + SHOWN_BYTES)) if is_long else len(line)
    lead, tail = "…" if begin else "", "…" if end < len(line) else ""

    def at(byte: int) -> int:
        return len(lead) + len(line[begin : min(byte, end)].decode(errors="replace"))

    matches = tuple((at(first), at(last)) for first, last in places if begin <= first < min(last, end))
    return f"{lead}{line[begin:end].decode(errors='replace')}{tail}", matches
