"""The list of entries at the end of a zip file, found without reading it: it may be as large as anybody makes it."""

from __future__ import annotations

import struct

from mnesis_core.exploration.source import Source

_TAIL = 65_557
"""The end record with its longest comment."""
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"


def list_bytes(source: Source) -> int:
    """How long the list says that it is; -1 where there is none."""
    tail = _tail(source)
    at, at_64 = tail.rfind(_END), tail.rfind(_END_64)
    if at < 0 or len(tail) < at + 22:
        return -1
    if at_64 >= 0 and len(tail) >= at_64 + 48:
        return int(struct.unpack_from("<Q", tail, at_64 + 40)[0])
    return int(struct.unpack_from("<L", tail, at + 12)[0])


def list_beginning(source: Source, limit: int) -> bytes:
    """The first bytes of the list, in which the first entries' names are."""
    tail, length = _tail(source), list_bytes(source)
    at = tail.rfind(_END_64) if _END_64 in tail else tail.rfind(_END)
    start = source.size - len(tail) + at - length
    if length < 0 or start < 0:
        return b""
    with source.path.open("rb") as file:
        file.seek(start)
        return file.read(min(limit, length))


def _tail(source: Source) -> bytes:
    with source.path.open("rb") as file:
        file.seek(max(0, source.size - _TAIL))
        return file.read(_TAIL)
