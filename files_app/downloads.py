"""The bytes of a file as a download, however large it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

from files_app.contents import content_size, read_content
from mnesis_core.files.lines import Span
from mnesis_core.records import AssistantFileRecord, FileReference, ProjectFileRecord
from mnesis_core.text import printable

CHUNK_BYTES = 1_048_576

Kept = FileReference | ProjectFileRecord | AssistantFileRecord


def download(file: Kept, span: Span, *, size: int, is_range: bool) -> StreamingHttpResponse:
    headers = headers_of(file) | {"Accept-Ranges": "bytes", "Content-Length": str(max(span.end - span.first, 0))}
    if is_range:
        headers["Content-Range"] = f"bytes {span.first}-{span.end - 1}/{size}"
    chunks = _chunks(file.content_id, span.first, span.end)
    status = 206 if is_range else 200
    return StreamingHttpResponse(chunks, status=status, content_type="application/octet-stream", headers=headers)


def download_whole(file: Kept) -> StreamingHttpResponse:
    size = content_size(file.content_id)
    return download(file, Span(first=0, end=size), size=size, is_range=False)


def headers_of(file: Kept) -> dict[str, str]:
    # Never shown in place of our pages: the content is other people's.
    name = printable(file.path).rpartition("/")[2] or file.id
    return {
        "Content-Disposition": content_disposition_header(as_attachment=True, filename=name) or "attachment",
        "Cache-Control": "private, no-store",
        "X-Accel-Buffering": "no",
        "ETag": etag_of(file),
    }


def etag_of(file: Kept) -> str:
    return f'"{file.content_id}"'


async def _chunks(content_id: str, first: int, end: int) -> AsyncIterator[bytes]:
    for begin in range(first, end, CHUNK_BYTES):
        yield await asyncio.to_thread(read_content, content_id, begin, min(CHUNK_BYTES, end - begin))
