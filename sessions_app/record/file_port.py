"""The port to the app that stores files: texts as files of a session, and contents of its files.

``files_app`` plugs in when Django is ready, so that summaries and files need not import each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mnesis_core.context.entries import Picture
from mnesis_core.files.pictures import PictureRule
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.records import SessionRecord
from mnesis_core.text import bytes_of_text
from sessions_app.record.change import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStore:
    put_content: Callable[[bytes], str]  # stores bytes and returns their id; waits for the disk
    store_reference: Callable[..., str]  # writes the reference to a stored content in a change
    prepare_file: Callable[..., dict[str, Any]]  # stores bytes and says what they are; waits for the disk
    add_file: Callable[..., str]  # writes the reference to prepared bytes in a change, and has them explored
    read_content: Callable[[str, str, int, int], bytes]  # (session, content, first byte, most bytes); raises NotFound
    find_pictures: Callable[..., dict[str, Picture]]  # of some files of a session, under a rule; may make them


PreparedText = dict[str, Any]
"""The reference to a text whose content is already on disk, before the lock of its session is taken."""

PreparedFile = dict[str, Any]

_stores: list[FileStore] = []


def use(store: FileStore) -> None:
    _stores[:] = [store]


def prepare_text(text: str, *, file_id: str, path: str, about: str) -> PreparedText:
    """Store the content of a text, of which the search finds ``about``. Call it before a session's lock is taken.

    :raises ValueError: no app stores files.
    """
    data = bytes_of_text(text)
    return {
        "content_id": _store().put_content(data),
        "path": path,
        "file_type": "text",
        "token_count": estimate_text(text),
        "exploration_summary": about,
        "size": len(data),
        "file_id": file_id,
    }


def keep_text(record: Change, prepared: PreparedText) -> None:
    _store().store_reference(record, **prepared)


def prepare_file(data: bytes, *, owner_id: int, path: str, file_id: str) -> PreparedFile:
    """Store bytes that are to be a file of a session. Call it before the session's lock is taken.

    :raises RequestTooLarge: they are more than a file may have.
    :raises FileQuotaExceeded: the account's files would take more than they may.
    :raises ValueError: no app stores files.
    """
    return {**_store().prepare_file(data, owner_id=owner_id, path=path), "file_id": file_id}


def add_file(record: Change, prepared: PreparedFile) -> None:
    _store().add_file(record, **prepared)


def read_content(session_id: str, content_id: str, offset: int, limit: int) -> bytes:
    """Return at most ``limit`` bytes of a content of a session's file, from ``offset`` on.

    :raises NotFound: the session has no such content, or it is not stored here.
    :raises ValueError: no app stores files.
    """
    return _store().read_content(session_id, content_id, offset, limit)


def find_pictures(
    session: SessionRecord, file_ids: Sequence[str], rule: PictureRule, *, makes: bool = False
) -> dict[str, Picture]:
    """Return the pictures that a model is shown under a rule, by the ids of their files.

    :param makes: whether to make those that are missing, which may take seconds each
    :raises ValueError: no app stores files.
    """
    return _store().find_pictures(session, file_ids, rule, makes=makes)


def _store() -> FileStore:
    if not _stores:
        raise ValueError("no app keeps files: files_app is not installed")
    return _stores[0]
