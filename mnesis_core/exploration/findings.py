"""What an exploration finds, and how it is put into words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
