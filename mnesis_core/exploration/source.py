"""A file that is explored: read in bounded pieces, never whole unless it is small."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mnesis_core.exploration.findings import Unreadable

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
