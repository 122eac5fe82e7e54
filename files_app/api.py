"""Files at the REST door: what is known of one, and its bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header
from ninja import Router, Schema
from pydantic import Field

from files_app.contents import content_size, find_size, read_content
from files_app.queries import load_file_reference, read_range
from mnesis_core.record import FileReference
from mnesis_core.text import LONGEST_CHARACTER, printable
from sessions_app.asking import owner_id
from sessions_app.schemas import ErrorOut

router = Router(tags=["files"])

ERRORS = {401: ErrorOut, 404: ErrorOut, 422: ErrorOut}
CHUNK_BYTES = 1_048_576
MOST_BYTES = 8 * CHUNK_BYTES
"""Of one range."""
CONTENT = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
"""What OpenAPI says of bytes."""


class FileOut(Schema):
    """What is known of a file. ``size`` in bytes; null where its content is not kept here."""

    id: str
    session_id: str
    content_id: str
    path: str
    file_type: str
    token_count: int
    exploration_summary: str
    size: int | None
    created_at: datetime


@router.get("/files/{file_id}", response={200: FileOut, **ERRORS}, summary="Describe a file")
def read_file(request: HttpRequest, file_id: str) -> Any:
    """One file: its path, type and size; ``content_id`` is the SHA-256 of its bytes."""
    file = load_file_reference(file_id, owner_id=owner_id(request))
    return {
        "id": file.id,
        "session_id": file.session_id,
        "content_id": file.content_id,
        "path": printable(file.path),
        "file_type": printable(file.file_type),
        "token_count": file.token_count,
        "exploration_summary": printable(file.exploration_summary),
        "size": find_size(file.content_id),
        "created_at": file.created_at,
    }


@router.get(
    "/files/{file_id}/content",
    response=ERRORS,
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
    """The bytes of a file: all of them, or with ``limit`` a range (206).

    A range of UTF-8 begins and ends between characters, so it may begin up to three bytes earlier than ``offset``;
    ``Content-Range`` says where it is.
    """
    if limit is None:
        file = load_file_reference(file_id, owner_id=owner_id(request))
        size = content_size(file.content_id)
        chunks = _chunks(file.content_id, offset, size)
        return StreamingHttpResponse(chunks, content_type="application/octet-stream", headers=_headers(file))
    found = read_range(file_id, offset=offset, limit=limit, owner_id=owner_id(request))
    # HTTP has no word for a range of nothing.
    last = found.offset + len(found.data) - 1
    place = f"bytes {found.offset}-{last}/{found.size}" if found.data else f"bytes */{found.size}"
    headers = _headers(found.file) | {"Content-Range": place}
    return HttpResponse(found.data, status=206, content_type="application/octet-stream", headers=headers)


def _headers(file: FileReference) -> dict[str, str]:
    # Never shown in our pages' place: the content is other people's.
    name = printable(file.path).rpartition("/")[2] or file.id
    disposition = content_disposition_header(as_attachment=True, filename=name) or "attachment"
    return {"Content-Disposition": disposition, "Cache-Control": "private, no-store", "X-Accel-Buffering": "no"}


async def _chunks(content_id: str, offset: int, size: int) -> AsyncIterator[bytes]:
    for begin in range(offset, size, CHUNK_BYTES):
        yield await asyncio.to_thread(read_content, content_id, begin, CHUNK_BYTES)
