"""Frozen values that are made by the thousand.

``dataclass`` is the standard library's for the type checker. At run time it makes no frozen class: that sets each field
by a call, which takes four times as long, and reading a context would spend more time on it than on its query. Two
values with the same content are equal and have one hash, as usual.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen, slots, kw_only):
        return dataclasses.dataclass(unsafe_hash=frozen, slots=slots, kw_only=kw_only)


R = TypeVar("R")


def record_of(kind: type[R], row: Any, /, **given: Any) -> R:
    """Return a value of the dataclass ``kind``: fields that are not given are the row's attributes of the same names."""
    names, read = _reader_of(kind, *given)  # type: ignore[arg-type]  # classes are hashable
    return kind(**dict(zip(names, read(row), strict=True)), **given)


@cache
def _reader_of(kind: Any, *given: str) -> tuple[tuple[str, ...], attrgetter[Any]]:
    # Two names at least, since ``attrgetter`` returns a bare value for one.
    names = tuple(field.name for field in dataclasses.fields(kind) if field.name not in given)
    return names, attrgetter(*names)
