"""The one reversible text codec: what both databases store is the same text.

PostgreSQL refuses NUL, and a lone surrogate cannot be written as UTF-8 at all. Both are escaped with
U+241B (SYMBOL FOR ESCAPE), which escapes itself, so that ``decode_text(encode_text(t)) == t`` for
every Python string.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import orjson

ESCAPE = "␛"
LONGEST_CHARACTER = 4
"""Bytes of one character in UTF-8, at most."""
_UNSAFE = re.compile(f"[\x00\ud800-\udfff{ESCAPE}]")
_UNSAFE_JSON = re.compile(rb"\\u0000|" + ESCAPE.encode())
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(f"{ESCAPE}([0-9A-F]{{4}})")


def encode_text(text: str) -> str:
    """Escape NUL, lone surrogates and the escape character itself."""
    if text.isascii() and "\0" not in text:  # at once, where the search below reads every character
        return text
    return _UNSAFE.sub(lambda match: f"{ESCAPE}{ord(match[0]):04X}", text)


def decode_text(text: str) -> str:
    """Undo ``encode_text``."""
    if ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def printable(text: str) -> str:
    """Text that can leave as UTF-8: every lone surrogate becomes U+FFFD. For doors, never for the record."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable_piece(text: str) -> str:
    """Likewise, and as many characters as before: for a piece whose place is counted in characters.

    Two halves of a pair, which came one after the other, ``printable`` makes one character of.
    """
    return _SURROGATE.sub("\ufffd", text)


def text_digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encode_json(value: Any) -> Any:
    """``encode_text`` on every string inside a JSON value, keys included."""
    # Written, what is to be escaped shows: looking is quicker than walking through it all.
    try:
        return _encoded(value) if _UNSAFE_JSON.search(orjson.dumps(value)) else value
    except orjson.JSONEncodeError:  # a lone surrogate, or an integer beyond 64 bits
        return _encoded(value)


def _encoded(value: Any) -> Any:
    if isinstance(value, str):
        return encode_text(value)
    if isinstance(value, dict):
        return {encode_text(str(key)): _encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(item) for item in value]
    return value


def decode_json(value: Any) -> Any:
    """Undo ``encode_json``."""
    if isinstance(value, str):
        return decode_text(value)
    if isinstance(value, dict):
        return {decode_text(key): decode_json(item) for key, item in value.items()}
    return [decode_json(item) for item in value] if isinstance(value, list) else value


def bytes_of_text(text: str) -> bytes:
    """UTF-8 of any Python string, so that ``text_of_bytes`` gives it back, a lone surrogate included."""
    return text.encode("utf-8", "surrogatepass")


def text_of_bytes(data: bytes) -> str:
    """The text of bytes; what is no UTF-8 becomes U+FFFD."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def character_start(data: bytes, index: int) -> int:
    """Where the UTF-8 character begins that ``data[index]`` is part of; ``index`` itself where that is no UTF-8."""
    for start in range(index, max(-1, index - LONGEST_CHARACTER), -1):
        if start >= len(data) or data[start] & 0xC0 != 0x80:
            return min(start, len(data))
    return index


def write_time(time: datetime) -> str:
    """A moment as every endpoint writes it: ISO 8601 in UTC, always with milliseconds, such as ``2026-11-23T19:24:40.000Z``."""
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
