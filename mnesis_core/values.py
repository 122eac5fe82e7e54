"""``dataclass`` for frozen values that are made by the thousand: frozen for the type checker, which sees the one of the
standard library, and made at run time as fast as one that is not.

A frozen dataclass sets each field by a call, which takes four times as long as setting it: reading a context would
spend more time on that than on its query. Two with the same content are equal and have one hash, as usual.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen, slots, kw_only):
        return dataclasses.dataclass(unsafe_hash=frozen, slots=slots, kw_only=kw_only)
