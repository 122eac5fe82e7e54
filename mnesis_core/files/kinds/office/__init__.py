"""Checks shared by documents of office programs: zip archives of XML, which may unpack to an enormous size."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from mnesis_core.files.detection import list_bytes
from mnesis_core.files.source import Source, Unreadable, counted, shown

# Unpacked bytes of one part that is held whole; a tree of XML takes some ten times as much memory.
MOST_PART = 33_554_432
MOST_UNPACKED = 268_435_456
MOST_PARTS = 20_000
# What the libraries raise over parts that are not what they should be.
READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    SyntaxError,
    NotImplementedError,
)
_OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def check_parts(source: Source, needed: str, *, streamed: tuple[str, ...] = ()) -> None:
    """Check the sizes of all parts before any is read; none is read beyond the size claimed for it.

    :param needed: the prefix of a part's name that every document of this kind has
    :param streamed: prefixes of the names of parts that are read as a stream
    :raises Unreadable: it is no such document, encrypted, or too large
    """
    if source.head(8) == _OLD:
        raise Unreadable("it is encrypted with a password, or of an office program before 2007")
    parts = _parts(source)
    if not any(part.filename.startswith(needed) for part in parts):
        raise Unreadable(f"it has no {needed}")
    if len(parts) > MOST_PARTS:
        raise Unreadable(f"it has more than {MOST_PARTS:,} parts")
    held = [part for part in parts if not part.filename.startswith(streamed)]
    if sum(part.file_size for part in held) > MOST_UNPACKED:
        raise Unreadable(f"unpacked it is larger than {MOST_UNPACKED:,} bytes")
    if any(part.file_size > MOST_PART for part in held if part.filename.endswith((".xml", ".rels", ".vml"))):
        raise Unreadable(f"one of its parts is larger than {MOST_PART:,} bytes")


def _parts(source: Source) -> list[zipfile.ZipInfo]:
    if list_bytes(source) < 0:
        raise Unreadable("no readable zip archive: its end is missing, it may be cut off")
    if list_bytes(source) > MOST_PARTS * 200:
        raise Unreadable(f"it has more than {MOST_PARTS:,} parts")
    try:
        with zipfile.ZipFile(source.path) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise Unreadable(f"no readable zip archive: {shown(str(error))}") from None


def properties_of(properties: Any) -> Iterator[str]:
    for attribute, word in (
        ("title", "Title"),
        ("author", "Author"),
        ("creator", "Author"),
        ("modified", "Last changed"),
    ):
        value = getattr(properties, attribute, None)
        if value and str(value).strip():
            yield f"{word}: {shown(str(value), characters=160)}"


def pictures(number: int) -> list[str]:
    return [counted(number, "picture")] if number else []
