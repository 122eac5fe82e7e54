"""Lines of a file and a search in it, at the REST door."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from files_app.lines import MOST_HITS, MOST_LINES, read_lines, search_file
from files_app.listing import FileSearchOut, LinesOut, lines_out, search_out
from mnesis_core.line_patterns import Mode
from mnesis_core.search import LONGEST_QUERY
from sessions_app.asking import owner_id
from sessions_app.schemas import ErrorOut

router = Router(tags=["files"])

ERRORS = {401: ErrorOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut, 429: ErrorOut}


@router.get("/files/{file_id}/lines", response={200: LinesOut, **ERRORS}, summary="Read lines of a file")
def read_file_lines(
    request: HttpRequest,
    file_id: str,
    first: Annotated[int, Field(ge=1, le=2**53)] = 1,
    limit: Annotated[int, Field(ge=1, le=MOST_LINES)] = 200,
) -> Any:
    """Lines from number ``first`` on (the first is 1), however long the file is; fewer than ``limit`` where they are long."""
    found = read_lines(file_id, first_line=first, lines=limit, owner_id=owner_id(request))
    return lines_out(found)


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
    return search_out(found)
