"""Text as an inspector shows it: what a reader could not see, or would be misled by, becomes a visible mark.

Control characters (a return before a line break is none), lone surrogates, bidirectional controls ("Trojan Source", CVE-2021-42574), zero-width and
tag characters. Line breaks and tabs stay. Give it decoded text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HIDDEN = re.compile(
    "(?P<hidden>"
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)"
    "|[\ud800-\udfff]"
    "|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
    "|[\u00ad\u180e\u200b\u2060-\u2064\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
    # Joiners are part of many scripts and of emoji; after ASCII or another invisible character they hide something.
    "|(?<![^\x00-\x7f\u200b-\u200f])[\u200c\u200d]"
    ")(?P=hidden)*"
)
_SPACES = re.compile(r"[\t\n ]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stretch of text: as it is, or a mark that stands for one hidden character, perhaps repeated."""

    text: str
    is_mark: bool = False
    code: str = ""
    """``U+202E`` for a mark."""
    count: int = 1
    """How many of these characters stand here in a row."""


def visible_runs(text: str) -> list[Run]:
    """Divide text into what can be shown as it is and marks for what cannot."""
    return list(_runs(text))


def visible_text(text: str) -> str:
    """The same as one line for tables and titles: marks in brackets, white space collapsed."""
    line = "".join(f"[{run.text}]" if run.is_mark else run.text for run in _runs(text))
    return _SPACES.sub(" ", line).strip()


def without_hidden(text: str) -> str:
    """A text without what a reader could not see or would be misled by."""
    return _HIDDEN.sub("", text)


def excerpt(text: str, length: int) -> str:
    """The beginning of a text on one visible line of at most ``length`` characters."""
    # Cut first: a text of 20 MB is not made visible for the sake of a table cell.
    line = visible_text(text[: length * 4])
    return line if len(line) <= length and len(text) <= length * 4 else line[: length - 1].rstrip() + "…"


def _runs(text: str) -> Iterator[Run]:
    end = 0
    for found in _HIDDEN.finditer(text):
        if found.start() > end:
            yield Run(text=text[end : found.start()])
        yield _mark(found["hidden"], len(found[0]))
        end = found.end()
    if end < len(text):
        yield Run(text=text[end:])


def _mark(character: str, count: int) -> Run:
    code = f"U+{ord(character):04X}"
    # U+2400 and what follows are pictures of the control characters, in the same order.
    name = chr(0x2400 + ord(character)) if ord(character) < 0x20 else code
    return Run(text=name if count == 1 else f"{name} x{count}", is_mark=True, code=code, count=count)
