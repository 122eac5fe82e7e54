"""Contents of files in a session's lines: after all rows, each in pieces, as rows of a table that is none.

    {"table": "file_contents", "row": {"content_id": "<SHA-256>", "offset": 0, "data": "<base64>"}}

What is known of a file is a row like any other; without these lines its words would stay behind.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from files_app.contents import put_content, read_content
from files_app.queries import list_contents
from mnesis_core.errors import InvalidRequest
from mnesis_core.session_file import RowLine

CONTENTS = "file_contents"
PIECE_BYTES = 3 * 1_048_576
"""A multiple of three, so that only a content's last piece has padding."""
_COLUMNS = {"content_id": str, "offset": int, "data": str}

Kept = list[tuple[str, int]]
"""Contents and their sizes in bytes."""


def count_pieces(kept: Kept) -> int:
    """How many lines these contents take. An empty one takes one too."""
    return sum(len(_offsets(size)) for _, size in kept)


def pieces_of(kept: Kept) -> Iterator[dict[str, Any]]:
    """The lines of these contents."""
    for content_id, size in kept:
        for offset in _offsets(size):
            data = read_content(content_id, offset, PIECE_BYTES)
            yield {"content_id": content_id, "offset": offset, "data": b64encode(data).decode()}


def _offsets(size: int) -> range:
    return range(0, max(size, 1), PIECE_BYTES)


def piece_in(row: RowLine) -> bytes:
    """The bytes of a line.

    :raises InvalidRequest: it is not as ``pieces_of`` writes it.
    """
    values = row.values
    if {name: type(value) for name, value in values.items()} != _COLUMNS:
        raise InvalidRequest(f"Line {row.line}: this is no piece of a file.", line=row.line)
    try:
        return b64decode(values["data"], validate=True)
    except ValueError as error:
        raise InvalidRequest(f"Line {row.line}: this is no base64.", line=row.line) from error


class ContentsTaken:
    """Contents that come in, piece after piece. One is kept when it is whole and has the SHA-256 that is its name."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._content_id = ""
        self._data = bytearray()

    @cached_property
    def _wanted(self) -> set[str]:
        # Asked when the rows are there. Nothing else is kept: an import is no way to fill a disk.
        return set(list_contents(self._session_id))

    def take(self, rows: Iterable[RowLine]) -> None:
        """The next pieces.

        :raises InvalidRequest: no file of the session has such a content, or a piece before is missing or wrong.
        """
        for row in rows:
            self._take(row, row.values["content_id"])

    def _take(self, row: RowLine, content_id: str) -> None:
        if content_id not in self._wanted:
            raise InvalidRequest(f"Line {row.line}: no file of this session has this content.", line=row.line)
        if content_id != self._content_id:
            self.finish()
            self._content_id = content_id
        if row.values["offset"] != len(self._data):
            raise InvalidRequest(f"Line {row.line}: the piece before is missing.", line=row.line)
        self._data += piece_in(row)

    def finish(self) -> None:
        """Keep the content that is whole now.

        :raises InvalidRequest: it is not what its name says.
        """
        content_id, data = self._content_id, bytes(self._data)
        if content_id and hashlib.sha256(data).hexdigest() != content_id:
            raise InvalidRequest(f"The content {content_id} is not whole, or is another.")
        if content_id:
            put_content(data)
        self._content_id, self._data = "", bytearray()
