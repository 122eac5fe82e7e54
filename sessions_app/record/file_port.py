"""The port to the app that stores files: texts as files of a session, and contents of its files.

``files_app`` plugs in when Django is ready, so that summaries and files need not import each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mnesis_core.llm.tokens import estimate_text
from mnesis_core.text import bytes_of_text
from sessions_app.record.change import Change


class StoreReference(Protocol):
    """Write the reference to a stored content."""

    def __call__(
        self,
        record: Change,
        *,
        content_id: str,
        path: str,
        file_type: str,
        token_count: int,
        exploration_summary: str,
        size: int,
        file_id: str,
    ) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStore:
    """The functions of the app that stores files."""

    put_content: Callable[[bytes], str]  # stores bytes and returns their id; waits for the disk
    store_reference: StoreReference
    read_content: Callable[[str, str, int, int], bytes]  # (session, content, first byte, most bytes); raises NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedText:
    """A text whose content is already on disk, before the lock of its session is taken."""

    file_id: str
    path: str
    about: str  # what the search finds of it
    content_id: str
    size: int  # bytes
    tokens: int


_stores: list[FileStore] = []


def use(store: FileStore) -> None:
    _stores[:] = [store]


def prepare_text(text: str, *, file_id: str, path: str, about: str) -> PreparedText:
    """Store the content of a text. Call it before a session's lock is taken.

    :raises ValueError: no app stores files.
    """
    data = bytes_of_text(text)
    return PreparedText(
        file_id=file_id,
        path=path,
        about=about,
        content_id=_store().put_content(data),
        size=len(data),
        tokens=estimate_text(text),
    )


def keep_text(record: Change, prepared: PreparedText) -> None:
    _store().store_reference(
        record,
        content_id=prepared.content_id,
        path=prepared.path,
        file_type="text",
        token_count=prepared.tokens,
        exploration_summary=prepared.about,
        size=prepared.size,
        file_id=prepared.file_id,
    )


def read_content(session_id: str, content_id: str, offset: int, limit: int) -> bytes:
    """Return at most ``limit`` bytes of a content of a session's file, from ``offset`` on.

    :raises NotFound: the session has no such content, or it is not stored here.
    :raises ValueError: no app stores files.
    """
    return _store().read_content(session_id, content_id, offset, limit)


def _store() -> FileStore:
    if not _stores:
        raise ValueError("no app keeps files: files_app is not installed")
    return _stores[0]
