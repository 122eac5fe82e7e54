"""The file that is explored, and the findings of its explorer."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from mnesis_core.errors import fill, gettext_noop

SUMMARY_CHARACTERS = 2_400  # about 600 tokens
NAME_CHARACTERS = 80
MOST_NAMES = 20
HEAD_BYTES = 65_536
LINE_BYTES = 65_536  # A longer line is returned in pieces of this size: a file may be one line of 2 GB.
PIECE_CHARACTERS = 262_144
WHOLE_BYTES = 16_777_216  # The limit for parsers that need all of a file at once.
# Byte order marks, with the encoding of what follows.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_JOINERS = "\u200c\u200d"  # Used within words of Persian and Hindi, and within emoji.


class Unreadable(Exception):
    """A file is not what its kind says, or larger than is read. The message is shown to users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    lines: Sequence[str]  # One fact each, the most important first: what does not fit is left out from the end.
    covered: str = "all of it"  # How much was read: ``the first 8 of 41 MB``, ``10,000 of 2,000,000 rows``.


def shown(text: str, *, characters: int = NAME_CHARACTERS) -> str:
    """Return a name or value in one line, shortened, with ``�`` for characters without a visible form: control
    characters, marks that change the direction of writing, lone surrogates.
    """
    # What is far beyond the cut is never split: a name may be all of a file.
    line = " ".join(text[: characters * 8].split())
    if not line.isprintable():
        line = "".join(one if one.isprintable() or one in _JOINERS else "\ufffd" for one in line)
    return line if len(line) <= characters else line[: characters - 1] + "…"


def listed(names: Iterable[str], *, most: int = MOST_NAMES) -> str:
    """Return names in one line, each shortened, and how many more there are; ``none`` without any."""
    every = [shown(name) for name in names]
    if not every:
        return "none"
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def walk(items: Iterable[Any], inside: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """Yield items, each before all that is inside it, in order and without recursion."""
    waiting = list(items)[::-1]
    while waiting:
        yield (item := waiting.pop())
        waiting.extend(reversed(list(inside(item))))


def encoding_of(head: bytes) -> str:
    marked = next((name for mark, name in MARKS if head.startswith(mark)), "")
    # The names of codecs that leave out the mark.
    return "utf-8-sig" if marked == "utf-8" else marked[: len("utf-16")] or "utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that is explored: read in bounded pieces, never whole unless it is small."""

    path: Path  # says nothing about the file's name
    name: str  # What its owner calls it, with or without folders; never opened.
    size: int

    @property
    def suffix(self) -> str:
        """Return the ending of the name in lower case, with the dot; may be empty."""
        return PurePosixPath(self.name).suffix.lower()

    def read(self, start: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def head(self, limit: int = HEAD_BYTES) -> bytes:
        return self.read(0, limit)

    def covered_by(self, read: int) -> str:
        return "all of it" if read >= self.size else f"the first {read:,} of {self.size:,} bytes"

    @property
    def encoding(self) -> str:
        return encoding_of(self.head(4))

    def whole(self, limit: int = WHOLE_BYTES) -> bytes:
        """:raises Unreadable: there are more bytes than ``limit``"""
        if self.size > limit:
            raise Unreadable(
                fill(gettext_noop("larger than the %(most)s bytes that are read of this kind"), {"most": limit})
            )
        return self.path.read_bytes()

    def text(self, limit: int = WHOLE_BYTES) -> str:
        """Return ``whole`` as text, with ``�`` for invalid bytes."""
        return self.whole(limit).decode(self.encoding, "replace")

    def lines(self, limit: int = LINE_BYTES) -> Iterator[str]:
        """Yield the lines as text without their ends; one longer than ``limit`` in pieces."""
        with self.path.open(encoding=self.encoding, errors="replace", newline="\n") as file:
            while line := file.readline(limit):
                yield line.rstrip("\r\n")

    def feed(self, take: Callable[[str], None], *, most: int) -> str:
        """Have the first lines taken one by one, and return how much of the file they are."""
        every = self.lines()
        for line in islice(every, most):
            take(line)
        return "all of it" if next(every, None) is None else f"the first {most:,} lines"

    def pieces(self, characters: int = PIECE_CHARACTERS) -> Iterator[str]:
        """Yield all of it as text, in pieces that end anywhere."""
        with self.path.open(encoding=self.encoding, errors="replace", newline="") as file:
            while piece := file.read(characters):
                yield piece
