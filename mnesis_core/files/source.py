"""What an exploration finds, and how it is put into words."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

SUMMARY_CHARACTERS = 2_400
"""Of one summary, about 600 tokens."""
NAME_CHARACTERS = 80
"""Of one name, heading or value in a summary."""
MOST_NAMES = 20
"""In one list, as the reference has it."""
_JOINERS = "\u200c\u200d"
"""Within words of Persian and Hindi, and within emoji."""


class Unreadable(Exception):
    """A file is not what it is said to be, or more than is looked at; the message says so to whoever asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one kind's module says of a file."""

    lines: Sequence[str]
    """One fact each, the most important first: what does not fit is left out from the end."""
    covered: str = "all of it"
    """How much was looked at: ``all of it``, or ``the first 8 of 41 MB``, ``10,000 of 2,000,000 rows``."""


def shown(text: str, *, characters: int = NAME_CHARACTERS) -> str:
    """A name or value in one line, shortened, with ``�`` for what no reader sees: control characters, marks that turn
    the direction of writing, lone surrogates.
    """
    # What is far beyond the cut is never split: a name may be all of a file.
    line = " ".join(text[: characters * 8].split())
    line = line if line.isprintable() else "".join(map(_visible, line))
    return line if len(line) <= characters else line[: characters - 1] + "…"


def _visible(character: str) -> str:
    return character if character.isprintable() or character in _JOINERS else "\ufffd"


def listed(names: Iterable[str], *, most: int = MOST_NAMES) -> str:
    """Names in one line, each shortened, and how many more there are; ``none`` without any."""
    every = [shown(name) for name in names]
    if not every:
        return "none"
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def counted(number: int, one: str, many: str = "") -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


# A file that is explored: read in bounded pieces, never whole unless it is small.

HEAD_BYTES = 65_536
LINE_BYTES = 65_536
"""A longer line is handed on in pieces of this size: a file may be one line of 2 GB."""
PIECE_CHARACTERS = 262_144
WHOLE_BYTES = 16_777_216
"""What a parser may get that needs all of a file at once."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def encoding_of(head: bytes) -> str:
    """What the byte order mark says with which a text begins, else UTF-8."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file on this machine's disk."""

    path: Path
    """Where its bytes are; says nothing about its name."""
    name: str
    """What its owner calls it, with or without folders; never opened."""
    size: int
    """Bytes."""

    @property
    def suffix(self) -> str:
        """The ending of its name in lower case, with the dot; may be empty."""
        return PurePosixPath(self.name).suffix.lower()

    def head(self, limit: int = HEAD_BYTES) -> bytes:
        """The first bytes."""
        with self.path.open("rb") as file:
            return file.read(limit)

    @property
    def encoding(self) -> str:
        """What its byte order mark says, else UTF-8."""
        return encoding_of(self.head(4))

    def whole(self, limit: int = WHOLE_BYTES) -> bytes:
        """All bytes, for a parser that takes nothing less.

        :raises Unreadable: there are more than ``limit``.
        """
        if self.size > limit:
            raise Unreadable(f"larger than the {limit:,} bytes that are read of this kind")
        return self.path.read_bytes()

    def text(self, limit: int = WHOLE_BYTES) -> str:
        """All of it as text, with ``�`` for what is no character.

        :raises Unreadable: there are more than ``limit`` bytes.
        """
        return self.whole(limit).decode(self.encoding, "replace")

    def lines(self, limit: int = LINE_BYTES) -> Iterator[str]:
        """Its lines as text without their ends, one after the other; one longer than ``limit`` in pieces."""
        with self.path.open(encoding=self.encoding, errors="replace", newline="\n") as file:
            while line := file.readline(limit):
                yield line.rstrip("\r\n")

    def pieces(self, characters: int = PIECE_CHARACTERS) -> Iterator[str]:
        """All of it as text, in pieces that end anywhere."""
        with self.path.open(encoding=self.encoding, errors="replace", newline="") as file:
            while piece := file.read(characters):
                yield piece
