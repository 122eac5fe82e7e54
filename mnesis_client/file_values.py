"""Files as the server says them: JSON objects with known fields."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class File(TypedDict):
    """What is known of a file. ``size`` in bytes; ``state`` is ``waiting`` until it was explored."""

    id: str
    session_id: str
    content_id: str
    path: str
    file_type: str
    token_count: int
    state: Literal["waiting", "explored"]
    exploration_summary: str
    exploration: dict[str, Any] | None
    size: int | None
    created_at: str


class FileLine(TypedDict):
    """A line without its end; ``offset`` is the byte where it begins. ``is_cut``: it is longer."""

    number: int
    offset: int
    text: str
    is_cut: bool


class FileLines(TypedDict):
    """Lines in order; ``total`` of the whole file, ``None`` while they are not all counted."""

    items: list[FileLine]
    total: int | None
    next_line: int | None


class LineHit(TypedDict):
    """A line that matches, shortened around its first match, which is at byte ``offset``."""

    number: int
    offset: int
    text: str
    matches: list[tuple[int, int]]
    count: int


class FileFound(TypedDict):
    """A page of lines that match; ``next_cursor`` is ``None`` when all of the file was searched."""

    items: list[LineHit]
    searched_bytes: int
    size: int
    next_cursor: str | None


class FileSearchOptions(TypedDict, total=False):
    """How a file is searched."""

    mode: Literal["text", "regex"]
    limit: int
    cursor: str
