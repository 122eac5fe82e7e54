"""Taking in files: their bytes are kept once, a session gets a reference to them, and a worker explores them.

Files of this machine may be taken in by path only from under the site's roots (``MNESIS_FILE_ROOTS``). Each folder on the
way is opened from the one before, without following symbolic links, since a link could replace a folder after a check.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO

from django.conf import settings
from django.contrib.auth import get_user_model
from django_q.tasks import async_task

from files_app.contents import on_disk, put_stream, read_content
from files_app.exploring import TASK
from files_app.queries import bytes_of_person, is_waiting, load_file_reference
from files_app.store import store_file_reference
from mnesis_core.errors import FileNotAllowed, FileQuotaExceeded, RequestTooLarge, SessionArchived
from mnesis_core.files.detection import detect
from mnesis_core.files.references import SAMPLE_BYTES, estimate_tokens
from mnesis_core.files.source import Source
from mnesis_core.records import FileReference
from mnesis_core.text import text_of_bytes
from sessions_app.conf import default_model, get_spec, site_config
from sessions_app.record import session_store
from sessions_app.record.change import Change, change
from sessions_app.record.session_queries import load_session

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe must not wait for its writer; a pipe is refused below.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_allowed(path: str) -> IO[bytes]:
    """Open an ordinary file under one of the roots.

    :raises FileNotAllowed: it is under no root, is reached by a link, is not an ordinary file, or does not exist.
    """
    wanted = PurePosixPath(path)
    if "\0" not in path and ".." not in wanted.parts:
        for root in settings.MNESIS["FILE_ROOTS"]:
            if wanted.is_relative_to(root) and wanted != PurePosixPath(root):
                return _open_below(root, wanted.relative_to(root).parts, path)
    raise FileNotAllowed(path=path)


def _open_below(root: Path, steps: tuple[str, ...], path: str) -> IO[bytes]:
    try:
        with ExitStack() as opened:
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, folder)
            for step in steps[:-1]:
                folder = os.open(step, _FOLDER, dir_fd=folder)
                opened.callback(os.close, folder)
            handle = os.open(steps[-1], _FILE, dir_fd=folder)
    except (OSError, ValueError):
        raise FileNotAllowed(path=path) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotAllowed(path=path)
    return os.fdopen(handle, "rb")


CHUNK_BYTES = 1_048_576


def chunks_of(file: IO[bytes], size: int) -> Iterator[bytes]:
    while data := file.read(size):
        yield data


def keep_file(session_id: str | None, *, owner_id: int, path: str, chunks: Iterable[bytes]) -> FileReference:
    """Keep a file that arrives in pieces, for a session, or for a new session named after the file.

    The same content at the same path is the existing file; another content is its next version.

    :raises SessionNotFoundError: there is no such session, or it belongs to another account.
    :raises SessionArchived: it takes nothing new.
    :raises ModelNotFoundError: the account may not use a new session's model.
    :raises RequestTooLarge: the file is larger than files may be.
    :raises FileQuotaExceeded: the account's files would take more than they may.
    """
    if session_id:
        check_room(session_id, owner_id=owner_id, size=0)
    content_id, size = put_stream(chunks, largest=_room(owner_id))
    if not session_id:
        alias = default_model()
        get_spec(alias, user_id=owner_id)
        owner = get_user_model().objects.get(pk=owner_id)
        session_id = session_store.create_session(owner=owner, model=alias, title=path.rpartition("/")[2])
    return refer(session_id, owner_id=owner_id, path=path, content_id=content_id, size=size)


def _room(owner_id: int) -> int:
    """Return the bytes that an account's files may still take, capped by the largest size of a file."""
    config = site_config().files
    left = max(0, config.quota_bytes - bytes_of_person(owner_id)) if config.quota_bytes else config.largest_bytes
    return min(left, config.largest_bytes)


def keep_path(session_id: str | None, *, owner_id: int, path: str) -> FileReference:
    """Keep a file of this machine, under one of the site's roots, as it is now.

    :raises FileNotAllowed: it may not be taken in.
    :raises MnesisError: see ``keep_file``
    """
    with open_allowed(path) as file:
        return keep_file(session_id, owner_id=owner_id, path=path, chunks=chunks_of(file, CHUNK_BYTES))


def check_room(session_id: str, *, owner_id: int, size: int) -> None:
    """Check that a session may get a file of ``size`` bytes; raises like ``keep_file``."""
    if load_session(session_id, owner_id=owner_id).archived_at is not None:
        raise SessionArchived(session_id=session_id)
    if size > site_config().files.largest_bytes:
        raise RequestTooLarge(
            f"The file is larger than the {site_config().files.largest_bytes:,} bytes that are allowed.", field="size"
        )
    if size > _room(owner_id):
        raise FileQuotaExceeded()


def refer(session_id: str, *, owner_id: int, path: str, content_id: str, size: int) -> FileReference:
    with on_disk(content_id) as place:
        kind = detect(Source(path=place, name=path, size=size))
        sample = read_content(content_id, 0, SAMPLE_BYTES)
    tokens = estimate_tokens(text_of_bytes(sample), sampled=len(sample), size=size)
    with change(session_id) as record:
        if record.archived:
            raise SessionArchived(session_id=session_id)
        file_id = add_file(record, content_id=content_id, path=path, file_type=kind.name, token_count=tokens, size=size)
        return load_file_reference(file_id, owner_id=owner_id)


def add_file(record: Change, *, content_id: str, path: str, file_type: str, token_count: int, size: int) -> str:
    """Write a reference to a kept content, and queue its exploration in the same transaction."""
    file_id = store_file_reference(
        record,
        content_id=content_id,
        path=path,
        file_type=file_type,
        token_count=token_count,
        exploration_summary=None,
        size=size,
    )
    if is_waiting(file_id):
        async_task(TASK, file_id, owner_id=record.owner_id)
    return file_id
