"""JSON as the standard has it (RFC 8259), read in one way at every door, with words for what is wrong."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from mnesis_core.errors import InvalidRequest


def read_json(text: str | bytes) -> Any:
    """The value that a text holds.

    Python would also read NaN and Infinity, and 1e999 as infinity, which no database keeps.

    :raises InvalidRequest: the text is not JSON, not UTF-8 or nested too deeply; the message says where.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(_problem(error)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _problem(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "The body is nested too deeply."
    if isinstance(error, UnicodeDecodeError):
        return "The body is not UTF-8."
    if isinstance(error, json.JSONDecodeError):
        return f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
    return f"The body cannot be read: {error}."


def nests_within(value: Any, deepest: int) -> bool:
    """Whether at most so many objects and lists stand inside each other. Whatever reads a value does so by recursion."""
    if not isinstance(value, dict | list):
        return True
    held = value.values() if isinstance(value, dict) else value
    return deepest > 0 and all(nests_within(item, deepest - 1) for item in held)
