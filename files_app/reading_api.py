"""Lines of a file and a search in it, at the REST door."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from files_app.lines import MOST_HITS, MOST_LINES, read_lines, search_file
from mnesis_core.file_lines import FileLine, LineHit
from mnesis_core.line_patterns import Mode
from mnesis_core.search import LONGEST_QUERY
from sessions_app.asking import owner_id
from sessions_app.schemas import ErrorOut

router = Router(tags=["files"])

ERRORS = {401: ErrorOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut}


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


@router.get("/files/{file_id}/lines", response={200: LinesOut, **ERRORS}, summary="Read lines of a file")
def read_file_lines(
    request: HttpRequest,
    file_id: str,
    first: Annotated[int, Field(ge=1, le=2**53)] = 1,
    limit: Annotated[int, Field(ge=1, le=MOST_LINES)] = 200,
) -> Any:
    """Lines from number ``first`` on (the first is 1), however long the file is; fewer than ``limit`` where they are long."""
    found = read_lines(file_id, first_line=first, lines=limit, owner_id=owner_id(request))
    return {"items": list(map(_line, found.lines)), "total": found.total, "next_line": found.next_line}


@router.get("/files/{file_id}/search", response={200: FileSearchOut, **ERRORS}, summary="Search in a file")
def search_in_file(
    request: HttpRequest,
    file_id: str,
    q: Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY)],
    mode: Mode = "text",
    limit: Annotated[int, Field(ge=1, le=MOST_HITS)] = 50,
    cursor: str | None = None,
) -> Any:
    """The next lines that match: words that must all be in a line, in any case, ``"in quotes"`` with their spaces.

    ``mode=regex`` takes a pattern in RE2's syntax, in which ``^`` and ``$`` are a line's ends. Each request looks for about
    a second and a half at most.
    """
    found = search_file(file_id, pattern=q, mode=mode, limit=limit, cursor=cursor, owner_id=owner_id(request))
    return {
        "items": list(map(_hit, found.hits)),
        "searched_bytes": found.searched_bytes,
        "size": found.size,
        "next_cursor": found.next_cursor,
    }


def _line(line: FileLine) -> dict[str, Any]:
    return {"number": line.number, "offset": line.offset, "text": line.text, "is_cut": line.is_cut}


def _hit(hit: LineHit) -> dict[str, Any]:
    return {
        "number": hit.number,
        "offset": hit.offset,
        "text": hit.text,
        "matches": list(hit.matches),
        "count": hit.count,
    }
