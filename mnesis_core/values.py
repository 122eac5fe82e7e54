"""Frozen values that are made by the thousand.

``dataclass`` is the standard library's for the type checker. At run time it makes no frozen class: that sets each field
by a call, which takes four times as long, and reading a context would spend more time on it than on its query. Two
values with the same content are equal and have one hash, as usual.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen, slots, kw_only):
        return dataclasses.dataclass(unsafe_hash=frozen, slots=slots, kw_only=kw_only)
