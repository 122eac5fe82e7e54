"""HTTP's ``Range`` (RFC 9110, 14): which bytes of a file a program wants."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mnesis_core.errors import RangeNotSatisfiable

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
