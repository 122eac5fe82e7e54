"""Files at the REST endpoint: what is known of one, its bytes, its lines and a search in them."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_noop
from ninja import Router, Schema, Status
from pydantic import BeforeValidator, Field, ValidationError

from files_app.contents import content_size, find_size
from files_app.downloads import CHUNK_BYTES, download, download_whole, etag_of, headers_of
from files_app.given_store import drop_project_file, keep_project_file, list_project_files, load_project_file
from files_app.intake import keep_file, keep_path
from files_app.queries import (
    MOST_HITS,
    MOST_LINES,
    list_files,
    load_file_reference,
    read_lines,
    read_range,
    search_file,
)
from mnesis_core.errors import InvalidRequest
from mnesis_core.files.lines import Mode, Span, parse_range
from mnesis_core.files.references import name_of_upload
from mnesis_core.search.words import LONGEST_QUERY
from mnesis_core.text import LONGEST_CHARACTER, read_json
from sessions_app.callers import Asker, owner_id
from sessions_app.operations import by_name
from sessions_app.record.project_store import load_own_project
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import ErrorOut, Out, Text, page_of


def _given_as(name: str, value: dict[str, str], **others: dict[str, str]) -> dict[str, Any]:
    """Return the JSON schema of a request that gives a file as ``name``, and may have the other properties."""
    return {"schema": {"type": "object", "required": [name], "properties": {**others, name: value}}}


router = Router(tags=["files"])

ERRORS = {401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
KEEPING = ERRORS | {400: ErrorOut, 409: ErrorOut, 413: ErrorOut}
READING = ERRORS | {409: ErrorOut}
MOST_BYTES = 8 * CHUNK_BYTES  # of one range
# What OpenAPI says of bytes, and of the two ways to give a file.
_TEXT, _BINARY = {"type": "string"}, {"type": "string", "format": "binary"}
CONTENT = {"content": {"application/octet-stream": {"schema": _BINARY}}}
_WAYS = {
    "multipart/form-data": _given_as("file", _BINARY, session_id=_TEXT),
    "application/json": _given_as("path", _TEXT, session_id=_TEXT),
}
UPLOAD = {"requestBody": {"required": True, "content": _WAYS}}
FILE = {"requestBody": {"required": True, "content": {"multipart/form-data": _given_as("file", _BINARY)}}}


class ProseOut(Out):
    """How a model was asked to describe a text: by which prompt, how many bytes of it, and why it says nothing.

    ``call_id`` is null where it was not asked, or about another file of the same content.
    """

    model: str
    prompt: str
    call_id: str | None
    bytes: int
    problem: str


class ExplorationOut(Out):
    """How a file was explored: ``covered`` says how much of it was looked at, ``problem`` why not as what it is.

    ``prose`` is null where no model was asked to describe it.
    """

    explorer: str
    covered: str
    problem: str
    seconds: float
    peak_bytes: int
    prose: ProseOut | None = None


class FileOut(Out):
    """What is known of a file. ``size`` in bytes; null where its content is not kept here.

    ``state``: ``waiting`` until a worker has explored it.
    """

    id: str
    session_id: str
    content_id: str
    path: Text
    file_type: Text
    token_count: int
    state: Annotated[
        Literal["waiting", "explored"],
        Field(validation_alias="is_explored"),
        BeforeValidator(lambda is_explored: "explored" if is_explored else "waiting"),
    ]
    exploration_summary: Text
    exploration: ExplorationOut | None
    size: Annotated[int | None, Field(validation_alias="content_id"), BeforeValidator(find_size)]
    created_at: datetime


class FileList(Out):
    """A page of files."""

    items: list[FileOut]
    next_cursor: str | None


class ProjectFileOut(Out):
    """A file of a project. Each of its sessions gets it with its next message, as if it were attached there."""

    id: str
    path: Text
    size: int
    content_id: str
    added_at: datetime


class ProjectFileList(Out):
    """The files of a project, at most fifty."""

    items: list[ProjectFileOut]
    next_cursor: None = None


class RemovedFile(Out):
    """A file that the project does not have any more."""

    id: str
    removed: bool


class LineOut(Out):
    """A line without its end, ``offset`` the byte where it begins. ``is_cut``: it is longer, read on by bytes."""

    number: int
    offset: int
    text: str
    is_cut: bool


class LinesOut(Out):
    """Lines in order. ``total``: lines of the whole file; null while they are not all counted, then ask again."""

    items: Annotated[list[LineOut], Field(validation_alias="lines")]
    total: int | None
    next_line: int | None


class LineHitOut(Out):
    """A line that matches, shortened around its first match, which is at byte ``offset``; ``count``: matches in it.

    ``matches``: (first, after the last) character of ``text``.
    """

    number: int
    offset: int
    text: str
    matches: list[tuple[int, int]]
    count: int


class FileSearchOut(Out):
    """Lines that match, in order. The file was searched up to byte ``searched_bytes`` of ``size``.

    ``next_cursor`` goes on; null when everything was searched. A page may have no hits and still go on.
    """

    items: Annotated[list[LineHitOut], Field(validation_alias="hits")]
    searched_bytes: int
    size: int
    next_cursor: str | None


class PathIn(Schema):
    """A file of the server's machine, under one of the folders that ``MNESIS_FILE_ROOTS`` names."""

    session_id: str | None = None
    path: str


@by_name("files/list")
@router.get("/files", response={200: FileList, **ERRORS}, summary="List files, the newest first")
def get_files(
    request: Asker,
    session_id: str | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
    cursor: str | None = None,
) -> Any:
    """Your files, or those of one session."""
    return file_page(owner_id=owner_id(request), session_id=session_id, limit=limit, cursor=cursor)


def file_page(*, owner_id: int, session_id: str | None, limit: int, cursor: str | None) -> dict[str, Any]:
    """Return a page of a person's files, or of those of one of their sessions, newest first.

    :raises SessionNotFoundError: there is no such session, or it belongs to another person.
    """
    if session_id is not None:
        load_session(session_id, owner_id=owner_id)
    files = list_files(owner_id=owner_id, session_id=session_id, before=cursor, limit=limit + 1)
    return page_of(files, limit, attrgetter("id"))


@router.post("/files", response={201: FileOut, **KEEPING}, summary="Upload a file", openapi_extra=UPLOAD)
def upload_file(request: HttpRequest) -> Any:
    """Keep a file: multipart with ``file``, or JSON with ``path``, and the ``session_id`` that it is for.

    Without a session the file gets a new one, named after it; the answer has its id. A path is one of the server's
    machine, under a folder that the site allows (``MNESIS_FILE_ROOTS``). A worker explores the file; ``state`` says when
    it has. Large files: ``/uploads``, which can be interrupted and continued.
    """
    owner = owner_id(request)
    if request.content_type != "multipart/form-data":
        body = read_json(request.body)
        try:
            asked = PathIn.model_validate(body)
        except ValidationError:
            raise InvalidRequest(gettext_noop("send multipart with file, or JSON with path")) from None
        return Status(201, keep_path(asked.session_id, owner_id=owner, path=asked.path))
    file = request.FILES.get("file")
    if file is None:
        raise InvalidRequest(
            gettext_noop("send file, and session_id if it is for a session that is there"), field="file"
        )
    name, session_id = name_of_upload(file.name or ""), request.POST.get("session_id")
    return Status(201, keep_file(session_id, owner_id=owner, path=name, chunks=file.chunks()))


@by_name("files/read")
@router.get("/files/{file_id}", response={200: FileOut, **ERRORS}, summary="Describe a file")
def read_file(request: Asker, file_id: str) -> Any:
    """One file: its path, type and size; ``content_id`` is the SHA-256 of its bytes."""
    return load_file_reference(file_id, owner_id=owner_id(request))


@router.get(
    "/files/{file_id}/content",
    response=ERRORS | {416: ErrorOut},
    summary="Read a file",
    openapi_extra={
        "responses": {200: CONTENT | {"description": "All of it"}, 206: CONTENT | {"description": "A range"}}
    },
)
def read_file_content(
    request: HttpRequest,
    file_id: str,
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Field(ge=LONGEST_CHARACTER, le=MOST_BYTES)] | None = None,
) -> Any:
    """The bytes of a file: all of them, or a range (206).

    A range is asked for by HTTP's ``Range``, exact and of any length, as programs do that go on with a download
    (``If-Range`` with the ``ETag`` is kept to); or with ``limit``: then it begins and ends between characters of UTF-8, so
    up to three bytes earlier than ``offset``. ``Content-Range`` says where it is.
    """
    if limit is None:
        file = load_file_reference(file_id, owner_id=owner_id(request))
        size, wanted = content_size(file.content_id), None
        if offset == 0 and request.headers.get("If-Range", etag_of(file)) == etag_of(file):
            wanted = parse_range(request.headers.get("Range", ""), size=size)
        return download(file, wanted or Span(first=offset, end=size), size=size, is_range=wanted is not None)

    found = read_range(file_id, offset=offset, limit=limit, owner_id=owner_id(request))
    # HTTP has no word for a range of nothing.
    last = found.offset + len(found.data) - 1
    place = f"bytes {found.offset}-{last}/{found.size}" if found.data else f"bytes */{found.size}"
    headers = headers_of(found.file) | {"Content-Range": place}
    return HttpResponse(found.data, status=206, content_type="application/octet-stream", headers=headers)


@by_name("files/lines")
@router.get("/files/{file_id}/lines", response={200: LinesOut, **READING}, summary="Read lines of a file")
def read_file_lines(
    request: Asker,
    file_id: str,
    first: Annotated[int, Field(ge=1, le=2**53)] = 1,
    limit: Annotated[int, Field(ge=1, le=MOST_LINES)] = 200,
) -> Any:
    """Lines from number ``first`` on (the first is 1), however long the file is; fewer than ``limit`` where they are long."""
    return read_lines(file_id, first_line=first, lines=limit, owner_id=owner_id(request))


@by_name("files/search")
@router.get("/files/{file_id}/search", response={200: FileSearchOut, **READING}, summary="Search in a file")
def search_in_file(
    request: Asker,
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
    return search_file(file_id, pattern=q, mode=mode, limit=limit, cursor=cursor, owner_id=owner_id(request))


@by_name("project_files/list")
@router.get("/projects/{project_id}/files", response={200: ProjectFileList, **ERRORS}, summary="List a project's files")
def get_project_files(request: Asker, project_id: str) -> Any:
    """In the order in which they were added."""
    return {"items": list_project_files(project_id, user_id=owner_id(request))}


@router.post(
    "/projects/{project_id}/files",
    response={201: ProjectFileOut, 403: ErrorOut, **KEEPING},
    summary="Add a file to a project",
    openapi_extra=FILE,
)
def add_project_file(request: HttpRequest, project_id: str) -> Any:
    """Multipart with ``file``. One of the same name takes the place of the other, also in sessions that have that one."""
    owner = owner_id(request)
    load_own_project(project_id, owner_id=owner)
    file = request.FILES.get("file")
    if file is None:
        raise InvalidRequest(gettext_noop("send multipart with file"), field="file")
    name = name_of_upload(file.name or "")
    return Status(201, keep_project_file(project_id, owner_id=owner, path=name, chunks=file.chunks()))


@by_name("project_files/remove")
@router.delete(
    "/projects/{project_id}/files/{project_file_id}",
    response={200: RemovedFile, 403: ErrorOut, **ERRORS},
    summary="Remove a file from a project",
)
def delete_project_file(request: Asker, project_id: str, project_file_id: str) -> Any:
    """Sessions that have it already keep it."""
    drop_project_file(project_id, project_file_id, owner_id=owner_id(request))
    return {"id": project_file_id, "removed": True}


@router.get(
    "/projects/{project_id}/files/{project_file_id}/content",
    response=ERRORS,
    summary="Read a project's file",
    openapi_extra={"responses": {200: CONTENT}},
)
def read_project_file(request: HttpRequest, project_id: str, project_file_id: str) -> Any:
    """All of its bytes, for any member."""
    file = load_project_file(project_id, project_file_id, user_id=owner_id(request))
    return download_whole(file)
