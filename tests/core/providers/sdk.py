"""Validation against the types of the providers' own packages: every key known, every value of its type."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape, config=ConfigDict(extra="forbid"))


def accepts(shape: Any, value: Any) -> None:
    """Check a value against a shape made of TypedDicts.

    :raises pydantic.ValidationError: it has a key or a type that is not there.
    """
    _read(_adapter(shape).validate_python(value, strict=True))


def _read(value: Any) -> None:
    """What is declared as an ``Iterable`` is only checked while it is read."""
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            _read(item)
