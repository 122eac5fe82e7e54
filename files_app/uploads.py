"""Uploads that may be broken off and gone on with (tus 1.0: core, creation, termination).

An upload is two files of this machine's data directory: what it is to be, and the bytes that came so far, whose number
is where to go on. It is no part of the record: only what came whole is.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from django.conf import settings

from files_app.ingest import check_room, keep_file
from files_app.roots import chunks_of
from mnesis_core.attachments import name_of_upload
from mnesis_core.errors import Conflict, RequestTooLarge, UploadNotFound
from mnesis_core.ids import is_id, new_id
from mnesis_core.record import FileReference

CHUNK_BYTES = 1_048_576
KEPT_SECONDS = 86_400.0
"""An upload that nobody went on with for so long is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that is coming in."""

    id: str
    owner_id: int
    session_id: str
    name: str
    size: int
    """Bytes that it is to have."""

    @property
    def offset(self) -> int:
        """Bytes that came so far."""
        return _bytes_of(self.id).stat().st_size


def begin_upload(session_id: str, *, owner_id: int, name: str, size: int) -> Upload:
    """Make room for a file of ``size`` bytes for a session.

    :raises MnesisError: see ``ingest.check_room``
    """
    check_room(session_id, owner_id=owner_id, size=size)
    _forget_old()
    upload = Upload(id=new_id("upload"), owner_id=owner_id, session_id=session_id, name=name_of_upload(name), size=size)
    _bytes_of(upload.id).touch(mode=0o600)
    _facts_of(upload.id).write_text(json.dumps(asdict(upload)))
    return upload


def load_upload(upload_id: str, *, owner_id: int) -> Upload:
    """An upload of one person's that is not whole yet.

    :raises UploadNotFound: there is none.
    """
    if not is_id(upload_id) or not upload_id.startswith("upload_"):
        raise UploadNotFound(upload_id=upload_id)
    try:
        upload = Upload(**json.loads(_facts_of(upload_id).read_text()))
    except (OSError, ValueError):
        raise UploadNotFound(upload_id=upload_id) from None
    if upload.owner_id != owner_id or not _bytes_of(upload_id).exists():
        raise UploadNotFound(upload_id=upload_id)
    return upload


def go_on(upload: Upload, *, offset: int, chunks: Iterable[bytes]) -> FileReference | None:
    """Add bytes; when all have come, keep the file and return its reference. What came of a broken request stays.

    :raises Conflict: ``offset`` is not where it goes on, or somebody else is at it.
    :raises RequestTooLarge: more bytes come than were announced; none of what is beyond is kept.
    """
    with _held(upload) as file:
        end = file.seek(0, os.SEEK_END)
        if offset != end:
            raise Conflict(f"this upload goes on at byte {end}", upload_id=upload.id, offset=end)
        for chunk in chunks:
            end += len(chunk)
            if end > upload.size:
                raise RequestTooLarge(f"more bytes come than the {upload.size:,} that were announced", field="body")
            file.write(chunk)
            file.flush()
        if end < upload.size:
            return None
        file.seek(0)
        kept = keep_file(
            upload.session_id, owner_id=upload.owner_id, path=upload.name, chunks=chunks_of(file, CHUNK_BYTES)
        )
        end_upload(upload)
        return kept


def end_upload(upload: Upload) -> None:
    """Forget an upload and what came of it."""
    for path in (_facts_of(upload.id), _bytes_of(upload.id)):
        path.unlink(missing_ok=True)


@contextmanager
def _held(upload: Upload) -> Iterator[IO[bytes]]:
    """The bytes, to be added to by nobody else meanwhile."""
    try:
        file = _bytes_of(upload.id).open("r+b")
    except FileNotFoundError:
        raise UploadNotFound(upload_id=upload.id) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict("another request is sending this upload", upload_id=upload.id) from None
        yield file


def _forget_old() -> None:
    """Remove what was left; the time of its last byte counts."""
    oldest = time.time() - KEPT_SECONDS
    for facts in _folder().glob("*.json"):
        came = facts.with_suffix("")
        with suppress(FileNotFoundError):
            if came.stat().st_mtime < oldest:
                came.unlink()
                facts.unlink()


def _bytes_of(upload_id: str) -> Path:
    return _folder() / upload_id


def _facts_of(upload_id: str) -> Path:
    return _folder() / f"{upload_id}.json"


def _folder() -> Path:
    folder = Path(settings.MNESIS["UPLOAD_FOLDER"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
