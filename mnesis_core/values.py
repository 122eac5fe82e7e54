"""Frozen values that are made by the thousand, and the ids of rows.

``dataclass`` is the standard library's for the type checker. At run time it makes no frozen class: that sets each field
by a call, which takes four times as long, and reading a context would spend more time on it than on its query. Two
values with the same content are equal and have one hash, as usual.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen, slots, kw_only):
        return dataclasses.dataclass(unsafe_hash=frozen, slots=slots, kw_only=kw_only)


# Prefixed ULIDs: unique everywhere, made once, never used for order (order is by ``seq``)

PREFIXES = (
    *("sess", "turn", "msg", "part", "call", "sum", "run", "file", "key", "text", "try", "mcp", "inbox", "upload"),
    "map",
    "import",
)
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_PATTERN = re.compile(rf"(?:{'|'.join(PREFIXES)})_[0-9A-HJKMNP-TV-Z]{{26}}")
_IN_TEXT = re.compile(rf"(?<![0-9A-Za-z_]){_PATTERN.pattern}(?![0-9A-Za-z])")


def new_id(prefix: str) -> str:
    """Return a new id such as ``sess_01J…``: the prefix, an underscore, a ULID (26 characters of Crockford base 32).

    :raises ValueError: the prefix is not one of ``PREFIXES``.
    """
    if prefix not in PREFIXES:
        raise ValueError(f"unknown id prefix {prefix!r}; known: {', '.join(PREFIXES)}")
    # 48 bits of milliseconds, 80 random ones.
    return _format_id(prefix, time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10)))


def first_id(prefix: str, seconds: float) -> str:
    """Return the id below all that are made from a time on, in seconds since 1970."""
    return _format_id(prefix, int(seconds * 1000) << 80)


def _format_id(prefix: str, number: int) -> str:
    # Two characters at a time, since a turn makes a dozen ids.
    return f"{prefix}_{''.join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])}"


def is_id(text: str) -> bool:
    return _PATTERN.fullmatch(text) is not None


def find_ids(text: str) -> tuple[str, ...]:
    """Return the ids in ``text``, each once, in order of appearance; linear in its length."""
    return tuple(dict.fromkeys(_IN_TEXT.findall(text)))
