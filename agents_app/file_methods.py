"""Files at the doors that call by name."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from ninja import Field, Schema

from agents_app.methods import Table, method
from files_app.lines import MOST_HITS, MOST_LINES, read_lines, search_file
from files_app.listing import FileList, FileOut, FileSearchOut, LinesOut, file_out, file_page, lines_out, search_out
from files_app.queries import load_file_reference
from mnesis_core.line_patterns import Mode
from sessions_app.asking import Caller
from sessions_app.schemas import Limit


class ListFiles(Schema):
    """Of which session; without one, all of the caller's."""

    session_id: str | None = None
    limit: Limit = 50
    cursor: str | None = None


class OfFile(Schema):
    """Which file."""

    file_id: str


class ReadLines(OfFile):
    """Which of its lines: the first is 1."""

    first: Annotated[int, Field(ge=1, le=2**53)] = 1
    limit: Annotated[int, Field(ge=1, le=MOST_LINES)] = 200


class SearchFile(OfFile):
    """What to find in it."""

    q: Annotated[str, Field(min_length=1, max_length=1_000)]
    mode: Mode = "text"
    limit: Annotated[int, Field(ge=1, le=MOST_HITS)] = 50
    cursor: str | None = None


FILE_METHODS: Table = {}
_method = partial(method, FILE_METHODS)


@_method("files/list", result=FileList)
def list_files(caller: Caller, asked: ListFiles) -> dict[str, Any]:
    """Files, newest first."""
    return file_page(owner_id=caller.owner_id, **asked.dict())


@_method("files/read", result=FileOut)
def read_file(caller: Caller, asked: OfFile) -> dict[str, Any]:
    """What is known of a file."""
    return file_out(load_file_reference(asked.file_id, owner_id=caller.owner_id))


@_method("files/lines", result=LinesOut)
def read_file_lines(caller: Caller, asked: ReadLines) -> dict[str, Any]:
    """Lines of a file by their numbers."""
    found = read_lines(asked.file_id, first_line=asked.first, lines=asked.limit, owner_id=caller.owner_id)
    return lines_out(found)


@_method("files/search", result=FileSearchOut)
def search_in_file(caller: Caller, asked: SearchFile) -> dict[str, Any]:
    """The next lines of a file that match."""
    found = search_file(
        asked.file_id,
        pattern=asked.q,
        mode=asked.mode,
        limit=asked.limit,
        cursor=asked.cursor,
        owner_id=caller.owner_id,
    )
    return search_out(found)
