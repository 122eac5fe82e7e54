"""The bytes of files, each content once, under its SHA-256 (decision: content never changes, so nor do files).

Contents are kept through Django's storages (``STORAGES["files"]``), so a site may put them elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, storages
from django.utils.translation import gettext_noop

from mnesis_core.errors import FileContentNotFound, RequestTooLarge
from mnesis_core.files.lines import Read

FIRST_AHEAD, MOST_AHEAD = 262_144, 8_388_608  # bytes requested at once from a remote storage
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ContentStorage(FileSystemStorage):
    """Files on this machine, each written whole or not at all."""

    def __init__(self, **options: Any) -> None:
        super().__init__(file_permissions_mode=0o600, directory_permissions_mode=0o700, **options)

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        return name  # an equal name means equal content

    def _save(self, name: str, content: File[bytes]) -> str:
        path = Path(self.path(name))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix="unfinished-")
        try:
            with os.fdopen(handle, "wb") as file:
                for chunk in content.chunks():
                    file.write(chunk)
                file.flush()
                # The row that names it is committed later: a power cut must not leave the name without the bytes.
                os.fsync(file.fileno())
            Path(unfinished).replace(path)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return name


def put_content(data: bytes) -> str:
    """Keep bytes and return their content id (SHA-256). Call it before taking a session's lock: it waits for the disk."""
    content_id = hashlib.sha256(data).hexdigest()
    storage, name = storages["files"], _name(content_id)
    if not storage.exists(name):
        storage.save(name, ContentFile(data))
    return content_id


def put_stream(chunks: Iterable[bytes], *, largest: int) -> tuple[str, int]:
    """Keep bytes that arrive in pieces, without holding all of them in memory; return their content id and size.

    :raises RequestTooLarge: there are more than ``largest``; nothing is kept.
    """
    digest, size = hashlib.sha256(), 0
    with tempfile.TemporaryFile() as file:
        for chunk in chunks:
            size += len(chunk)
            if size > largest:
                raise RequestTooLarge(
                    gettext_noop("The file is larger than the %(most)s bytes that are allowed."),
                    {"most": largest},
                    field="file",
                )
            digest.update(chunk)
            file.write(chunk)
        content_id = digest.hexdigest()
        storage, name = storages["files"], _name(content_id)
        if not storage.exists(name):
            file.seek(0)
            storage.save(name, File(file))
    return content_id, size


@contextmanager
def on_disk(content_id: str) -> Iterator[Path]:
    """Give a local path of a content for the length of the block.

    :raises FileContentNotFound: it is not kept here.
    """
    storage, name = storages["files"], _name(content_id)
    if not storage.exists(name):
        raise FileContentNotFound(content_id=content_id)
    try:
        yield Path(storage.path(name))
    except NotImplementedError:  # a remote storage
        with storage.open(name, "rb") as kept, tempfile.NamedTemporaryFile() as copy:
            shutil.copyfileobj(kept, copy)
            copy.flush()
            yield Path(copy.name)


def content_size(content_id: str) -> int:
    """:raises FileContentNotFound: it is not kept here."""
    try:
        return int(storages["files"].size(_name(content_id)))
    except OSError:
        raise FileContentNotFound(content_id=content_id) from None


def find_size(content_id: str) -> int | None:
    """Return the size in bytes, or ``None`` if the content is not kept here."""
    try:
        return content_size(content_id)
    except FileContentNotFound:
        return None


def read_content(content_id: str, offset: int, limit: int) -> bytes:
    """Return at most ``limit`` bytes from ``offset`` on, and none beyond the end.

    :raises FileContentNotFound: it is not kept here.
    """
    storage, name = storages["files"], _name(content_id)
    try:
        # A remote storage has a faster way to a piece than opening the whole.
        if read_piece := getattr(storage, "read_piece", None):
            return bytes(read_piece(name, offset, limit))
        with storage.open(name, "rb") as file:
            file.seek(offset)
            return bytes(file.read(limit))
    except OSError:
        raise FileContentNotFound(content_id=content_id) from None


@contextmanager
def reading(content_id: str) -> Iterator[Read]:
    """Give a function that reads ranges of a content for the length of the block, fast for ranges in sequence.

    :raises FileContentNotFound: it is not kept here.
    """
    storage, name = storages["files"], _name(content_id)
    begin, data, ahead = 0, b"", FIRST_AHEAD

    def read_ahead(offset: int, limit: int) -> bytes:
        # Each piece is twice as long as the one before, so reading in sequence takes few requests.
        nonlocal begin, data, ahead
        if not begin <= offset <= offset + limit <= begin + len(data):
            begin, data = offset, read_content(content_id, offset, max(limit, ahead))
            ahead = min(2 * ahead, MOST_AHEAD)
        return data[offset - begin : offset - begin + limit]

    if hasattr(storage, "read_piece"):
        yield read_ahead
        return
    try:
        file = storage.open(name, "rb")
    except OSError:
        raise FileContentNotFound(content_id=content_id) from None

    def read(offset: int, limit: int) -> bytes:
        file.seek(offset)
        return bytes(file.read(limit))

    with file:
        yield read


def is_whole(content_id: str) -> bool:
    """Read all of a content and say whether it still has the SHA-256 in its name.

    :raises FileContentNotFound: it is not kept here.
    """
    try:
        with storages["files"].open(_name(content_id), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == content_id
    except OSError:
        raise FileContentNotFound(content_id=content_id) from None


def _name(content_id: str) -> str:
    """:raises FileContentNotFound: it is not a SHA-256: an import may contain anything."""
    if not _SHA256.fullmatch(content_id):
        raise FileContentNotFound(content_id=content_id)
    # Two levels of folders keep each folder small.
    return f"{content_id[:2]}/{content_id[2:4]}/{content_id}"
