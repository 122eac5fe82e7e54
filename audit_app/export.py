"""A session as a file, from one state of the database.

As JSON Lines (``mnesis_core.session_file``) it is every row of it and its files, to be imported again; as Markdown and
HTML it is what was said, to be read.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any, Literal

from django.apps import apps
from django.db.models.query import QuerySet

from audit_app.file_contents import CONTENTS, Kept, count_pieces, pieces_of
from audit_app.readable import entries_of, opening_of
from audit_app.readable_html import html_pieces
from audit_app.readable_markdown import markdown_pieces
from audit_app.session_tables import session_tables
from files_app.contents import find_size
from files_app.queries import list_contents
from mnesis_core.errors import SessionNotFoundError
from mnesis_core.session_file import Header, session_lines
from sessions_app.database import snapshot, work
from sessions_app.queries import load_session

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
