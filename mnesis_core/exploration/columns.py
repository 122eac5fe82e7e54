"""What a table's columns hold: type, range, how many are empty or different. In bounded memory, a batch at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from mnesis_core.exploration.findings import shown

MOST_DIFFERENT = 1_000
"""Values of one column that are told apart."""
VALUE_CHARACTERS = 60
FEW_VALUES = 8
MISSING = frozenset(("", "NA", "N/A", "NULL", "null", "NaN", "nan", "None", "\\N"))
BOOLEANS = frozenset(
    ("true", "false", "True", "False", "TRUE", "FALSE", "yes", "no", "Yes", "No", "YES", "NO", "t", "f")
)
_NO_NUMBER = re.compile(r"[_a-df-zA-DF-Z]")
_DAY = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?:[ T]\d{1,2}:\d\d(?::\d\d)?)?")


class Column:
    """What was seen in one column."""

    def __init__(self) -> None:
        self.filled = 0
        self.missing = 0
        self.lowest: Any = None
        self.highest: Any = None
        self.longest = 0
        self.different: dict[str, int] = {}
        """Values and how often each was seen; more than ``MOST_DIFFERENT`` when there are more."""
        self._readers = list(_READERS)

    @property
    def type(self) -> str:
        """The narrowest that all values have."""
        if not self.filled:
            return "empty"
        return self._readers[0][0] if self._readers else "text"

    def saw(self, values: Sequence[str]) -> None:
        """A batch of values."""
        present = [value for value in values if value not in MISSING]
        self.missing += len(values) - len(present)
        if not present:
            return
        self.filled += len(present)
        self.longest = max(self.longest, max(map(len, present)))
        self._count(present)
        while self._readers and not self._read(present):
            if self._readers.pop(0)[0] != "integer":
                # An integer is a decimal too: what they span goes on.
                self.lowest = self.highest = None

    def _count(self, present: list[str]) -> None:
        if len(self.different) > MOST_DIFFERENT:
            return
        for value in present:
            cut = value[:VALUE_CHARACTERS]
            self.different[cut] = self.different.get(cut, 0) + 1
            if len(self.different) > MOST_DIFFERENT:
                return

    def _read(self, present: list[str]) -> bool:
        """Whether all of a batch, and what was seen before, is of the first type that is left."""
        read = self._readers[0][1](present)
        if read is None:
            return False
        if read and self.filled > len(present) and self.lowest is None:
            # A narrower type held the earlier values, and their range went with it.
            earlier = self._readers[0][1](list(self.different))
            if earlier is None:
                return False
            read = [*read, *earlier]
        if read:
            self.lowest = min(read) if self.lowest is None else min(self.lowest, min(read))
            self.highest = max(read) if self.highest is None else max(self.highest, max(read))
        return True

    def told(self) -> str:
        """Type, range or values, and how many are missing."""
        facts = [fact for fact in (self._span(), self._variety()) if fact]
        if self.missing and self.filled:
            facts.append(f"{self.missing:,} empty")
        return ", ".join([self.type, *facts])

    def _span(self) -> str:
        if self.lowest is None:
            return ""
        if isinstance(self.lowest, datetime):
            return f"{_day(self.lowest)} to {_day(self.highest)}"
        return f"{self.lowest:.12g} to {self.highest:.12g}"

    def _variety(self) -> str:
        if not self.filled:
            return ""
        count = len(self.different)
        if count > MOST_DIFFERENT:
            most = (
                f", up to {self.longest:,} characters"
                if self.type == "text" and self.longest > VALUE_CHARACTERS
                else ""
            )
            return f"over {MOST_DIFFERENT:,} different values{most}" if self.lowest is None else ""
        if count <= FEW_VALUES and count * 2 <= self.filled:
            frequent = sorted(self.different.items(), key=lambda pair: -pair[1])
            return "values " + "; ".join(f"{shown(value, characters=30)} ×{times:,}" for value, times in frequent)
        example = shown(next(iter(self.different)), characters=40)
        return f"{count:,} different" + (f" as {example}" if self.lowest is None else "")


def _day(moment: datetime) -> str:
    return moment.isoformat(" ").removesuffix(" 00:00:00")


def _booleans(values: list[str]) -> list[Any] | None:
    return [] if BOOLEANS.issuperset(values) else None


def _integers(values: list[str]) -> list[Any] | None:
    if _NO_NUMBER.search("".join(values)):
        return None
    return _each(int, values)


def _decimals(values: list[str]) -> list[Any] | None:
    if _NO_NUMBER.search("".join(values)):
        return None
    return _each(float, values)


def _moments(values: list[str]) -> list[Any] | None:
    read = _each(datetime.fromisoformat, values)
    return None if read is None else [moment.replace(tzinfo=None) for moment in read]


def _days(values: list[str]) -> list[Any] | None:
    return [] if all(map(_DAY.fullmatch, values)) else None


def _each(read: Callable[[str], Any], values: list[str]) -> list[Any] | None:
    try:
        return list(map(read, values))
    except ValueError:
        return None


_READERS: tuple[tuple[str, Callable[[list[str]], list[Any] | None]], ...] = (
    ("boolean", _booleans),
    ("integer", _integers),
    ("decimal", _decimals),
    ("date", _moments),
    ("date", _days),
)
"""The narrowest first."""


def is_typed(value: str) -> bool:
    """Whether a value is a number, date or truth value, which a column's name is not."""
    return any(read([value]) is not None for _, read in _READERS)
