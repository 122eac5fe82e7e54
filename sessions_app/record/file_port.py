"""Texts that are kept as files of a session, and contents of its files, for apps that do not know who keeps files.

``files_app`` says how when Django is ready, as it does for the search; summaries and files stay strangers to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mnesis_core.llm.tokens import estimate_text
from mnesis_core.text import bytes_of_text
from sessions_app.record.change import Change


class StoreReference(Protocol):
    """Writes the reference to a content that is kept."""

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
class Keeper:
    """Who keeps files."""

    put_content: Callable[[bytes], str]
    """Keeps bytes and returns what they are called; waits for the disk."""
    store_reference: StoreReference
    read_content: Callable[[str, str, int, int], bytes]
    """Reads a session's content: the session, what the content is called, first byte, most bytes. Raises ``NotFound``
    where the session has none of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedText:
    """A text whose content is on disk already, before the lock of its session is taken."""

    file_id: str
    path: str
    about: str
    """What the search finds of it."""
    content_id: str
    size: int
    """Bytes."""
    tokens: int


_keepers: list[Keeper] = []


def use(keeper: Keeper) -> None:
    """Let this one keep files from now on."""
    _keepers[:] = [keeper]


def prepare_text(text: str, *, file_id: str, path: str, about: str) -> PreparedText:
    """Put the content of a text on disk. Call it before a session's lock is taken.

    :raises ValueError: no app keeps files.
    """
    data = bytes_of_text(text)
    return PreparedText(
        file_id=file_id,
        path=path,
        about=about,
        content_id=_keeper().put_content(data),
        size=len(data),
        tokens=estimate_text(text),
    )


def keep_text(record: Change, prepared: PreparedText) -> None:
    """Write the reference to a text, whose id was given before."""
    _keeper().store_reference(
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
    """At most ``limit`` bytes of a content that a file of a session has, from ``offset`` on.

    :raises NotFound: it has none, or the content is not kept here.
    :raises ValueError: no app keeps files.
    """
    return _keeper().read_content(session_id, content_id, offset, limit)


def _keeper() -> Keeper:
    if not _keepers:
        raise ValueError("no app keeps files: files_app is not installed")
    return _keepers[0]
