"""The lines that items of a run are about, read out of its input where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from files_app.contents import read_content, reading
from mnesis_core.errors import FileContentNotFound
from mnesis_core.operators.values import ItemRecord
from mnesis_core.record import FileReference

NEAR = 4_194_304
"""Bytes: lines that are further from the first one are not looked up for the sake of a list."""


def read_input(file: FileReference | None, item: ItemRecord, *, most: int) -> str:
    """The line of an item, ``most`` bytes of it at the most; empty where the input is not kept here."""
    if file is None:
        return ""
    with suppress(FileContentNotFound):
        return _text(read_content(file.content_id, item.offset, min(item.length, most)))
    return ""


def read_inputs(file: FileReference | None, items: Sequence[ItemRecord], *, most: int) -> dict[int, str]:
    """How the lines of some items begin, by their numbers; those that are too far apart are absent."""
    if file is None or not items:
        return {}
    near = [item for item in items if item.offset - items[0].offset < NEAR]
    with suppress(FileContentNotFound), reading(file.content_id) as read:
        return {item.number: _text(read(item.offset, min(item.length, most))) for item in near}
    return {}


def _text(data: bytes) -> str:
    return data.decode(errors="replace").rstrip("\r\n")
