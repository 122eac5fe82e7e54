"""Sessions as files, from one state of the database.

As JSON Lines (``mnesis_core.transcripts.session_file``) a file holds every row of a session and then the contents of
its files, in pieces that look like rows of another table:

    {"table": "file_contents", "row": {"content_id": "<SHA-256>", "offset": 0, "data": "<base64>"}}

Such a file can be imported again. Markdown and HTML are for reading.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tempfile
import threading
import zipfile
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Literal

from django.apps import apps
from django.conf import settings
from django.db.models.query import QuerySet
from django.utils import translation
from django.utils.translation import gettext_noop

from audit_app.tables import session_tables
from audit_app.transfer.readable import entries_of, html_pieces, markdown_pieces, opening_of
from files_app.contents import find_size, put_content, read_content
from files_app.queries import list_contents
from mnesis_core.errors import InvalidRequest, SessionNotFoundError
from mnesis_core.transcripts.session_file import Header, RowLine, session_lines
from sessions_app.database.threads import snapshot, work
from sessions_app.ownership import owned_by
from sessions_app.record.session_queries import load_session, visible_sessions

CONTENTS = "file_contents"
PIECE_BYTES = 3 * 1_048_576  # a multiple of three, so only the last piece of a content has base64 padding
_COLUMNS = {"content_id": str, "offset": int, "data": str}

CHUNK_BYTES = 65_536
Readable = Literal["markdown", "html"]
Format = Literal["jsonl", Readable]
ENDINGS = {"jsonl": ".jsonl", "markdown": ".md", "html": ".html"}
Progress = Callable[[str, str, int, int], None]
"""Called with the verb, the session's id, rows done and rows in all."""


def piece_in(row: RowLine) -> bytes:
    """:raises InvalidRequest: the line is not as ``export_session`` writes it."""
    values = row.values
    if {name: type(value) for name, value in values.items()} != _COLUMNS:
        raise InvalidRequest(
            gettext_noop("Line %(line)s: this is no piece of a file."), {"line": str(row.line)}, line=row.line
        )
    try:
        return b64decode(values["data"], validate=True)
    except ValueError as error:
        raise InvalidRequest(
            gettext_noop("Line %(line)s: this is no base64."), {"line": str(row.line)}, line=row.line
        ) from error


class ContentsTaken:
    """Imports contents piece by piece. A content is kept when it is whole and has the SHA-256 that is its name."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._wanted: set[str] = set()
        self._content_id = ""
        self._data = bytearray()

    def take(self, rows: Iterable[RowLine]) -> None:
        """:raises InvalidRequest: no file of the session has such a content, or the piece before is missing or wrong."""
        # Read once the rows are there. Nothing else is kept, so an import cannot be used to fill a disk.
        self._wanted = self._wanted or set(list_contents(self._session_id))
        for row in rows:
            content_id = row.values["content_id"]
            if content_id not in self._wanted:
                raise InvalidRequest(
                    gettext_noop("Line %(line)s: no file of this session has this content."),
                    {"line": str(row.line)},
                    line=row.line,
                )
            if content_id != self._content_id:
                self.finish()
                self._content_id = content_id
            if row.values["offset"] != len(self._data):
                raise InvalidRequest(
                    gettext_noop("Line %(line)s: the piece before is missing."), {"line": str(row.line)}, line=row.line
                )
            self._data += piece_in(row)

    def finish(self) -> None:
        """:raises InvalidRequest: the current content is not whole, or its SHA-256 is not its name."""
        content_id, data = self._content_id, bytes(self._data)
        if content_id and hashlib.sha256(data).hexdigest() != content_id:
            raise InvalidRequest(
                gettext_noop("The content %(content_id)s is not whole, or is another."), {"content_id": content_id}
            )
        if content_id:
            put_content(data)
        self._content_id, self._data = "", bytearray()


def export_session(
    session_id: str, *, progress: Progress = lambda verb, what, done, total: None
) -> Generator[bytes, None, None]:
    """Yield the lines of a session, deleted or not, without keeping anyone from writing.

    :raises SessionNotFoundError: there is no such session.
    """
    with snapshot():
        session: Any = _sessions().filter(pk=session_id).first()
        if session is None:
            raise SessionNotFoundError(
                gettext_noop("there is no session %(session_id)s"), {"session_id": session_id}, session_id=session_id
            )
        pieces = [
            (id, offset)
            for id in list_contents(session_id)
            if (size := find_size(id)) is not None
            for offset in range(0, max(size, 1), PIECE_BYTES)  # an empty content takes a line, too
        ]
        counts = {name: table.rows(session_id).count() for name, table in session_tables().items()}
        counts[CONTENTS] = len(pieces)
        counts = {name: count for name, count in counts.items() if count}
        header = Header(session_id=session.id, event_seq=session.event_seq, head_hash=session.head_hash, rows=counts)

        def rows() -> Iterator[tuple[str, dict[str, Any]]]:
            for name in [name for name in counts if name != CONTENTS]:
                yield from ((name, values) for values in session_tables()[name].values(session_id))
            for id, offset in pieces:
                data = b64encode(read_content(id, offset, PIECE_BYTES)).decode()
                yield CONTENTS, {"content_id": id, "offset": offset, "data": data}

        total = sum(counts.values())
        for number, line in enumerate(session_lines(header, rows())):
            yield line
            progress("exported", session_id, min(number, total), total)


def export_readable(session_id: str, format: Readable) -> Generator[bytes, None, None]:
    """Yield a session for people to read, piece by piece, without keeping anyone from writing.

    It is in English, whatever the language of the page that asks for it.

    :raises SessionNotFoundError: there is no such session, or it was deleted.
    """
    write = markdown_pieces if format == "markdown" else html_pieces
    with snapshot():
        with translation.override(settings.LANGUAGE_CODE):
            session = load_session(session_id)
            pieces = write(opening_of(session), entries_of(session))
        while True:
            # Each by itself: the language of whoever takes the pieces stays as it is.
            with translation.override(settings.LANGUAGE_CODE):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece.encode()


def export_one(session_id: str, format: Format) -> Generator[bytes, None, None]:
    """:raises SessionNotFoundError: there is no such session."""
    return export_session(session_id) if format == "jsonl" else export_readable(session_id, format)


def export_all(*, owner_id: int, format: Format) -> Generator[bytes, None, None]:
    """Yield every session of a person but the deleted ones: as lines that can be imported, or as a zip of transcripts.

    Each session is from one state of the database. The transcript of one that is deleted meanwhile is left out.
    """
    sessions = _still_there(session_ids(owner_id=owner_id), format)
    if format == "jsonl":
        for _, pieces in sessions:
            yield from pieces
    else:
        yield from zip_pieces((f"{id}{ENDINGS[format]}", pieces) for id, pieces in sessions)


def _still_there(session_ids: Iterable[str], format: Format) -> Iterator[tuple[str, Iterator[bytes]]]:
    for session_id in session_ids:
        pieces = export_one(session_id, format)
        with suppress(SessionNotFoundError):
            yield session_id, chain([next(pieces)], pieces)


def zip_pieces(files: Iterable[tuple[str, Iterable[bytes]]]) -> Generator[bytes, None, None]:
    """Yield a zip of files, piece by piece."""
    out = _Written()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, pieces in files:
            with archive.open(path, "w", force_zip64=True) as member:
                for piece in pieces:
                    member.write(piece)
                    yield out.take()
    yield out.take()


class _Written(io.RawIOBase):
    """What was written since it was last taken. It has no position, so a zip is written to it from the front to the end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class Spool:
    """The bytes of an export for a response: one thread writes them to an unnamed file, which is read as it grows.

    The client gets the beginning at once and may read as slowly as it likes, since no transaction stays open for it. Django
    calls ``close`` when the request ends, however it ends.
    """

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces = pieces
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


def session_ids(*, owner_id: int | None = None) -> list[str]:
    """Return the ids of all sessions, deleted ones included, or of what a person has; parents come before their children."""
    rows = _sessions() if owner_id is None else visible_sessions().filter(owned_by(owner_id))
    return parents_first(dict(rows.order_by("created_at", "pk").values_list("id", "parent_id")))


def not_deleted(session_ids: list[str]) -> list[str]:
    deleted = set(_sessions().filter(deleted_at__isnull=False).values_list("id", flat=True))
    return [session_id for session_id in session_ids if session_id not in deleted]


def parents_first(parents: dict[str, str | None]) -> list[str]:
    """Order sessions so that they can be imported; otherwise keep the given order."""
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
    parents = dict(_sessions().values_list("id", "parent_id"))
    return {session_id: parents[session_id] for session_id in session_ids}


def _sessions() -> QuerySet[Any, Any]:
    return QuerySet(apps.get_model("sessions_app", "Session"))
