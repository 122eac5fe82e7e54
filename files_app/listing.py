"""Files as every door says them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from ninja import Schema

from files_app.contents import find_size
from files_app.queries import list_files
from mnesis_core.file_lines import FileLines, FileSearch
from mnesis_core.record import FileReference
from mnesis_core.text import printable
from sessions_app.queries import load_session


class ProseOut(Schema):
    """How a model was asked to describe a text: by which prompt, how many bytes of it, and why it says nothing.

    ``call_id`` is null where it was not asked, or about another file of the same content.
    """

    model: str
    prompt: str
    call_id: str | None
    bytes: int
    problem: str


class ExplorationOut(Schema):
    """How a file was explored: ``covered`` says how much of it was looked at, ``problem`` why not as what it is.

    ``prose`` is null where no model was asked to describe it.
    """

    explorer: str
    covered: str
    problem: str
    seconds: float
    peak_bytes: int
    prose: ProseOut | None = None


class FileOut(Schema):
    """What is known of a file. ``size`` in bytes; null where its content is not kept here.

    ``state``: ``waiting`` until a worker has explored it.
    """

    id: str
    session_id: str
    content_id: str
    path: str
    file_type: str
    token_count: int
    state: Literal["waiting", "explored"]
    exploration_summary: str
    exploration: ExplorationOut | None
    size: int | None
    created_at: datetime


class FileList(Schema):
    """A page of files."""

    items: list[FileOut]
    next_cursor: str | None


class LineOut(Schema):
    """A line without its end, ``offset`` the byte where it begins. ``is_cut``: it is longer, read on by bytes."""

    number: int
    offset: int
    text: str
    is_cut: bool


class LinesOut(Schema):
    """Lines in order. ``total``: lines of the whole file; null while they are not all counted, then ask again."""

    items: list[LineOut]
    total: int | None
    next_line: int | None


class LineHitOut(Schema):
    """A line that matches, shortened around its first match, which is at byte ``offset``; ``count``: matches in it.

    ``matches``: (first, after the last) character of ``text``.
    """

    number: int
    offset: int
    text: str
    matches: list[tuple[int, int]]
    count: int


class FileSearchOut(Schema):
    """Lines that match, in order. The file was searched up to byte ``searched_bytes`` of ``size``.

    ``next_cursor`` goes on; null when everything was searched. A page may have no hits and still go on.
    """

    items: list[LineHitOut]
    searched_bytes: int
    size: int
    next_cursor: str | None


def file_page(*, owner_id: int, session_id: str | None, limit: int, cursor: str | None) -> dict[str, Any]:
    """A person's files, or those of one of their sessions, newest first.

    :raises SessionNotFoundError: there is no such session, or it belongs to somebody else.
    """
    if session_id is not None:
        load_session(session_id, owner_id=owner_id)
    files = list_files(owner_id=owner_id, session_id=session_id, before=cursor, limit=limit + 1)
    more = len(files) > limit
    return {"items": [file_out(file) for file in files[:limit]], "next_cursor": files[limit - 1].id if more else None}


def file_out(file: FileReference) -> dict[str, Any]:
    """A file as this door says it."""
    return {
        "id": file.id,
        "session_id": file.session_id,
        "content_id": file.content_id,
        "path": printable(file.path),
        "file_type": printable(file.file_type),
        "token_count": file.token_count,
        "state": "explored" if file.is_explored else "waiting",
        "exploration_summary": printable(file.exploration_summary),
        "exploration": file.exploration,
        "size": find_size(file.content_id),
        "created_at": file.created_at,
    }


def lines_out(found: FileLines) -> dict[str, Any]:
    """Lines as every door says them."""
    return {
        "items": [asdict(line) for line in found.lines],
        "total": found.total,
        "next_line": found.next_line,
    }


def search_out(found: FileSearch) -> dict[str, Any]:
    """A page of lines that match as every door says it."""
    return {
        "items": [asdict(hit) for hit in found.hits],
        "searched_bytes": found.searched_bytes,
        "size": found.size,
        "next_cursor": found.next_cursor,
    }
