"""Contents of files in a session's lines: after all rows, each in pieces, as rows of a table that is none.

    {"table": "file_contents", "row": {"content_id": "<SHA-256>", "offset": 0, "data": "<base64>"}}

What is known of a file is a row like any other; without these lines its words would stay behind.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

from django.apps import apps
from django.db.models.query import QuerySet

from audit_app.tables import session_tables
from audit_app.transfer.readable import entries_of, opening_of
from audit_app.transfer.readable_formats import html_pieces, markdown_pieces
from files_app.contents import find_size, put_content, read_content
from files_app.queries import list_contents
from mnesis_core.errors import InvalidRequest, SessionNotFoundError
from mnesis_core.transcripts.session_file import Header, RowLine, session_lines
from sessions_app.database.threads import snapshot, work
from sessions_app.record.session_queries import load_session

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


# A session as a file, from one state of the database.
#
# As JSON Lines (``mnesis_core.session_file``) it is every row of it and its files, to be imported again; as Markdown and
# HTML it is what was said, to be read.

Readable = Literal["markdown", "html"]
Format = Literal["jsonl", Readable]

CHUNK_BYTES = 65_536

Progress = Callable[[str, str, int, int], None]
"""What is done, the session, rows done, rows in all."""


def export_session(
    session_id: str, *, progress: Progress = lambda verb, what, done, total: None
) -> Generator[bytes, None, None]:
    """A session's lines, one at a time, deleted or not; nobody is kept from writing meanwhile.

    :raises SessionNotFoundError: there is no such session.
    """
    with snapshot():
        kept = [(id, size) for id in list_contents(session_id) if (size := find_size(id)) is not None]
        header = _header_of(session_id, kept)
        total = sum(header.rows.values())
        yield from _told(session_lines(header, _rows(header, kept)), session_id, total, progress)


def export_readable(session_id: str, format: Readable) -> Generator[bytes, None, None]:
    """A session as people read it, piece by piece; nobody is kept from writing meanwhile.

    :raises SessionNotFoundError: there is no such session, or it was deleted.
    """
    with snapshot():
        session = load_session(session_id)
        pieces = markdown_pieces if format == "markdown" else html_pieces
        yield from (piece.encode() for piece in pieces(opening_of(session), entries_of(session.id)))


class Spool:
    """The bytes of an exported session for a response: written to an unnamed file by one thread, read while it grows.

    The client gets the beginning at once and may read as slowly as it likes: no transaction stays open for it. Django
    calls ``close`` when the request ends, however it ends.
    """

    def __init__(self, session_id: str, format: Format = "jsonl") -> None:
        self._pieces = export_session(session_id) if format == "jsonl" else export_readable(session_id, format)
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
        self._changed = threading.Condition()
        self._size = 0
        self._is_whole = self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        offset = 0
        writing = asyncio.ensure_future(work(self._write))
        while chunk := await asyncio.to_thread(self._read, offset):
            yield chunk
            offset += len(chunk)
        await writing  # a failure there breaks off the response

    def close(self) -> None:
        """Drop the file; a writer that is still at work stops."""
        with self._changed:
            self._is_closed = self._is_whole = True
            self._file.close()
            self._changed.notify_all()

    def _write(self) -> None:
        try:
            for piece in self._pieces:
                with self._changed:
                    if self._is_closed:
                        return
                    self._file.write(piece)
                    self._size += len(piece)
                    self._changed.notify_all()
        finally:
            self._pieces.close()  # ends its transaction in the thread that began it
            with self._changed:
                self._is_whole = True
                self._changed.notify_all()

    def _read(self, offset: int) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._size > offset or self._is_whole)
            return b"" if self._is_closed else os.pread(self._file.fileno(), CHUNK_BYTES, offset)


def _header_of(session_id: str, kept: Kept) -> Header:
    session: Any = _sessions().filter(pk=session_id).first()
    if session is None:
        raise SessionNotFoundError(f"there is no session {session_id}", session_id=session_id)
    counts = {name: table.rows(session_id).count() for name, table in session_tables().items()}
    counts[CONTENTS] = count_pieces(kept)
    rows = {name: count for name, count in counts.items() if count}
    return Header(session_id=session.id, event_seq=session.event_seq, head_hash=session.head_hash, rows=rows)


def session_ids(*, owner_id: int | None = None) -> list[str]:
    """Every session (of one person), deleted ones too; a parent comes before its children."""
    rows = _sessions() if owner_id is None else _sessions().filter(owner_id=owner_id)
    return parents_first(dict(rows.order_by("created_at", "pk").values_list("id", "parent_id")))


def not_deleted(session_ids: list[str]) -> list[str]:
    """Those of these sessions that people can still read."""
    deleted = set(_sessions().filter(deleted_at__isnull=False).values_list("id", flat=True))
    return [session_id for session_id in session_ids if session_id not in deleted]


def parents_first(parents: dict[str, str | None]) -> list[str]:
    """Sessions in an order in which they can be imported; otherwise as given."""
    ordered: dict[str, None] = {}
    for session_id in parents:
        line = []
        above: str | None = session_id
        while above in parents and above not in ordered and above not in line:
            line.append(above)
            above = parents[above]
        ordered.update(dict.fromkeys(reversed(line)))
    return list(ordered)


def parents_of(session_ids: list[str]) -> dict[str, str | None]:
    """The parent of each of these sessions."""
    parents = dict(_sessions().values_list("id", "parent_id"))
    return {session_id: parents[session_id] for session_id in session_ids}


def _rows(header: Header, kept: Kept) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in header.rows:
        rows = pieces_of(kept) if name == CONTENTS else session_tables()[name].values(header.session_id)
        yield from ((name, values) for values in rows)


def _told(lines: Iterator[bytes], session_id: str, total: int, progress: Progress) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        yield line
        progress("exported", session_id, min(number, total), total)


def _sessions() -> QuerySet[Any, Any]:
    return QuerySet(apps.get_model("sessions_app", "Session"))
