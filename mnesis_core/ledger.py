"""Canonical bodies, commitments and the hash chain of the ledger; no database.

Formats are those of RFC 8785 for the values allowed here (strings, integers below 2**53, booleans, null,
lists, objects; no floats), hashed as exact bytes and never serialised again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import orjson

GENESIS = "0" * 64
_BODY_TAG = b"mnesis/body/1\x00"
_ENTRY_TAG = b"mnesis/entry/1\x00"
MAX_INTEGER = 2**53 - 1
_EXACT = frozenset({str, bool, type(None)})


def new_salt() -> str:
    """32 random bytes as 64 hexadecimal digits."""
    return secrets.token_hex(32)


def row_key(salt: str, *, table: str, id: str) -> bytes:
    """The key of all commitments to one row, 32 bytes: whoever is shown it learns nothing about another row's."""
    return hashlib.sha256(f"mnesis/row/1/{salt}/{table}/{id}".encode()).digest()


def row_commitment(key: bytes, columns: Mapping[str, str | int]) -> str:
    """The commitment to columns of a row, by their names in the order of the alphabet: 64 hexadecimal digits.

    Why it hides and binds: docs/record.md.
    """
    return hashlib.sha256(key + orjson.dumps(columns, _like_nothing_that_was_written)).hexdigest()


def _like_nothing_that_was_written(value: Any) -> dict[str, str]:
    """An object, which no column holds: SQLite keeps bytes in any column, where somebody puts them there."""
    return {type(value).__name__: repr(value)}


def canonical_body(body: dict[str, Any], *, rows: list[list[Any]] | None = None) -> str:
    """The one way to write a body: keys sorted, no spaces. ``rows`` are its commitments to rows, if it has any.

    :raises ValueError: a value is a float, an integer beyond 2**53 or of a type that JSON has not.
    """
    _refuse_inexact(body)
    if rows:
        body = body | {"rows": rows}
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode()


def entry_hash(*, prev_hash: str, seq: int, type: str, body: str) -> str:
    """The hash of an entry, over the previous one's: 64 hexadecimal digits.

    Only the hash of type and body enters, so one entry can be proven without showing the others.
    """
    body_hash = hashlib.sha256(_BODY_TAG + type.encode() + b"\x00" + body.encode()).digest()
    return hashlib.sha256(_ENTRY_TAG + bytes.fromhex(prev_hash) + seq.to_bytes(8, "big") + body_hash).hexdigest()


def _refuse_inexact(value: Any) -> None:
    kind = type(value)
    if kind in _EXACT or isinstance(value, str):
        return
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise ValueError(f"{value} is beyond 2**53 and would not survive JSON")
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            if type(item) not in _EXACT:
                _refuse_inexact(item)
    else:
        raise ValueError(f"a ledger body holds no {kind.__name__}")
