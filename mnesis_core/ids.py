"""Prefixed ULIDs: unique everywhere, made once, never used for order (order is by ``seq``)."""

from __future__ import annotations

import re

from ulid import ULID

PREFIXES = ("sess", "turn", "msg", "part", "call", "sum", "run", "file", "key")
_PATTERN = re.compile(rf"(?:{'|'.join(PREFIXES)})_[0-9A-HJKMNP-TV-Z]{{26}}")


def new_id(prefix: str) -> str:
    """A new id such as ``sess_01J…``: the prefix, an underscore, 26 characters of Crockford base 32."""
    if prefix not in PREFIXES:
        raise ValueError(f"unknown id prefix {prefix!r}; known: {', '.join(PREFIXES)}")
    return f"{prefix}_{ULID()}"


def is_id(text: str) -> bool:
    """Whether ``text`` has the shape of an id of ours."""
    return _PATTERN.fullmatch(text) is not None
