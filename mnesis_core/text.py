"""The one reversible text codec: what both databases store is the same text.

PostgreSQL refuses NUL, and a lone surrogate cannot be written as UTF-8 at all. Both are escaped with
U+241B (SYMBOL FOR ESCAPE), which escapes itself, so that ``decode_text(encode_text(t)) == t`` for
every Python string.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

ESCAPE = "␛"
_UNSAFE = re.compile(f"[\x00\ud800-\udfff{ESCAPE}]")
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


def text_digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encode_json(value: Any) -> Any:
    """``encode_text`` on every string inside a JSON value, keys included."""
    if isinstance(value, str):
        return encode_text(value)
    if isinstance(value, dict):
        return {encode_text(str(key)): encode_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_json(item) for item in value]
    return value


def decode_json(value: Any) -> Any:
    """Undo ``encode_json``."""
    if isinstance(value, str):
        return decode_text(value)
    if isinstance(value, dict):
        return {decode_text(key): decode_json(item) for key, item in value.items()}
    return [decode_json(item) for item in value] if isinstance(value, list) else value
