"""Canonical bodies, commitments and the hash chain of the ledger; no database.

Formats are those of RFC 8785 for the values allowed here (strings, integers below 2**53, booleans, null,
lists, objects; no floats), hashed as exact bytes and never serialised again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
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


def column_text(name: str, text: str) -> str:
    """A column of a row, so that no two rows' columns, joined, are the same text; the length is in characters."""
    return f"{name}={len(text)}:{text}"


def row_text_names(text: str) -> list[str]:
    """The names of the columns in some joined ``column_text``."""
    names, start = [], 0
    while start < len(text):
        equals = text.index("=", start)
        colon = text.index(":", equals)
        names.append(text[start:equals])
        start = colon + 1 + int(text[equals + 1 : colon])
    return names


def row_commitment(salt: str, *, table: str, id: str, text: str) -> str:
    """The commitment to joined ``column_text``: 64 hexadecimal digits.

    The key is the row's own, made from the salt, so that one row can be proven without showing others.
    """
    key = hmac.digest(salt.encode(), f"{table}/{id}".encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


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
