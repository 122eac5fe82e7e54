"""Resumable uploads by the tus protocol, version 1.0.0: core, creation and termination (https://tus.io/protocols/resumable-upload).

An upload is two files in the data directory: its facts, and the bytes so far, whose number is the offset to continue at.
Only the finished file becomes part of the record; the answer to the last bytes names it (``Mnesis-File``).
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_noop
from ninja import Router

from files_app.intake import check_room, chunks_of, keep_file
from mnesis_core.errors import Conflict, InvalidRequest, RequestTooLarge, UploadNotFound
from mnesis_core.files.references import name_of_upload
from mnesis_core.records import FileReference, is_id, new_id
from sessions_app.callers import owner_id
from sessions_app.conf import site_config
from sessions_app.schemas import ErrorOut

CHUNK_BYTES = 1_048_576
KEPT_SECONDS = 86_400.0  # an upload is forgotten a day after its last byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    id: str
    owner_id: int
    session_id: str
    name: str
    size: int

    @property
    def offset(self) -> int:
        return _bytes_of(self.id).stat().st_size


def begin_upload(session_id: str, *, owner_id: int, name: str, size: int) -> Upload:
    """:raises MnesisError: see ``intake.check_room``."""
    check_room(session_id, owner_id=owner_id, size=size)
    oldest = time.time() - KEPT_SECONDS
    for facts in _folder().glob("*.json"):
        content = facts.with_suffix("")
        with suppress(FileNotFoundError):
            if content.stat().st_mtime < oldest:
                content.unlink()
                facts.unlink()
    upload = Upload(id=new_id("upload"), owner_id=owner_id, session_id=session_id, name=name_of_upload(name), size=size)
    _bytes_of(upload.id).touch(mode=0o600)
    _facts_of(upload.id).write_text(json.dumps(asdict(upload)))
    return upload


def load_upload(upload_id: str, *, owner_id: int) -> Upload:
    """:raises UploadNotFound: there is none."""
    if not is_id(upload_id) or not upload_id.startswith("upload_"):
        raise UploadNotFound(upload_id=upload_id)
    try:
        upload = Upload(**json.loads(_facts_of(upload_id).read_text()))
    except (OSError, ValueError):
        raise UploadNotFound(upload_id=upload_id) from None
    if upload.owner_id != owner_id or not _bytes_of(upload_id).exists():
        raise UploadNotFound(upload_id=upload_id)
    return upload


def append_chunk(upload: Upload, *, offset: int, chunks: Iterable[bytes]) -> FileReference | None:
    """Append bytes; once all have come, keep the file and return its reference. The bytes of a broken request stay.

    :raises Conflict: ``offset`` is not the end of the bytes so far, or another request is sending.
    :raises RequestTooLarge: more bytes come than were announced; those beyond are not kept.
    """
    try:
        file = _bytes_of(upload.id).open("r+b")
    except FileNotFoundError:
        raise UploadNotFound(upload_id=upload.id) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(gettext_noop("another request is sending this upload"), upload_id=upload.id) from None
        end = file.seek(0, os.SEEK_END)
        if offset != end:
            raise Conflict(
                gettext_noop("this upload goes on at byte %(end)s"), {"end": str(end)}, upload_id=upload.id, offset=end
            )
        for chunk in chunks:
            end += len(chunk)
            if end > upload.size:
                raise RequestTooLarge(
                    gettext_noop("more bytes come than the %(size)s that were announced"),
                    {"size": upload.size},
                    field="body",
                )
            file.write(chunk)
            file.flush()
        if end < upload.size:
            return None
        file.seek(0)
        kept = keep_file(upload.session_id, owner_id=upload.owner_id, path=upload.name, chunks=chunks_of(file))
        end_upload(upload)
        return kept


def end_upload(upload: Upload) -> None:
    for path in (_facts_of(upload.id), _bytes_of(upload.id)):
        path.unlink(missing_ok=True)


def _bytes_of(upload_id: str) -> Path:
    return _folder() / upload_id


def _facts_of(upload_id: str) -> Path:
    return _folder() / f"{upload_id}.json"


def _folder() -> Path:
    folder = Path(settings.MNESIS["UPLOAD_FOLDER"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


router = Router(tags=["files"])

VERSION = "1.0.0"
ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 409: ErrorOut, 413: ErrorOut, 422: ErrorOut, 429: ErrorOut}
PIECE = {
    "requestBody": {"content": {"application/offset+octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


@router.post("/uploads", response={201: None, **ERRORS}, summary="Begin an upload (tus)")
def create_upload(request: HttpRequest) -> Any:
    """Make room for a file: ``Upload-Length`` in bytes, ``Upload-Metadata`` with ``filename`` and ``session_id``."""
    facts = _metadata(request.headers.get("Upload-Metadata", ""))
    if "session_id" not in facts:
        raise InvalidRequest(gettext_noop("Upload-Metadata must name session_id"), field="Upload-Metadata")
    upload = begin_upload(
        facts["session_id"],
        owner_id=owner_id(request),
        name=facts.get("filename", ""),
        size=_number(request, "Upload-Length"),
    )
    place = request.build_absolute_uri(f"{request.path.rstrip('/')}/{upload.id}")
    return _answer(201, {"Location": place, "Upload-Offset": "0"})


@router.api_operation(["HEAD"], "/uploads/{upload_id}", response={200: None, **ERRORS}, summary="Where to go on (tus)")
def look_at_upload(request: HttpRequest, upload_id: str) -> Any:
    """``Upload-Offset``: how many bytes came."""
    return _answer(200, _where(load_upload(upload_id, owner_id=owner_id(request))) | {"Cache-Control": "no-store"})


@router.patch(
    "/uploads/{upload_id}", response={204: None, **ERRORS}, summary="Go on with an upload (tus)", openapi_extra=PIECE
)
def send_upload(request: HttpRequest, upload_id: str) -> Any:
    """Add the body's bytes at ``Upload-Offset``; with the last of them the answer names the file in ``Mnesis-File``."""
    upload = load_upload(upload_id, owner_id=owner_id(request))
    if request.content_type not in ("", "application/offset+octet-stream"):
        raise InvalidRequest(gettext_noop("Content-Type must be application/offset+octet-stream"), field="Content-Type")
    kept = append_chunk(
        upload, offset=_number(request, "Upload-Offset"), chunks=iter(lambda: request.read(CHUNK_BYTES), b"")
    )
    if kept is not None:
        return _answer(204, {"Upload-Offset": str(upload.size), "Mnesis-File": kept.id})
    return _answer(204, _where(upload))


@router.delete("/uploads/{upload_id}", response={204: None, **ERRORS}, summary="Give an upload up (tus)")
def delete_upload(request: HttpRequest, upload_id: str) -> Any:
    """Forget what came so far."""
    end_upload(load_upload(upload_id, owner_id=owner_id(request)))
    return _answer(204, {})


@router.api_operation(["OPTIONS"], "/uploads", response={204: None, **ERRORS}, summary="What uploads may be (tus)")
def upload_options(request: HttpRequest) -> Any:
    """The version, extensions and largest size."""
    return _answer(
        204,
        {
            "Tus-Version": VERSION,
            "Tus-Extension": "creation,termination",
            "Tus-Max-Size": str(site_config().files.largest_bytes),
        },
    )


def _where(upload: Upload) -> dict[str, str]:
    return {"Upload-Offset": str(upload.offset), "Upload-Length": str(upload.size)}


def _answer(status: int, headers: dict[str, str]) -> HttpResponse:
    return HttpResponse(status=status, headers={"Tus-Resumable": VERSION} | headers)


def _number(request: HttpRequest, name: str) -> int:
    """:raises InvalidRequest: the header is missing, or is not a number of bytes."""
    text = request.headers.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise InvalidRequest(gettext_noop("the header %(name)s must be a number of bytes"), {"name": name}, field=name)
    return int(text)


def _metadata(text: str) -> dict[str, str]:
    pairs = [pair.strip().partition(" ") for pair in text.split(",") if pair.strip()]
    try:
        return {name: base64.b64decode(value, validate=True).decode() for name, _, value in pairs}
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidRequest(
            gettext_noop("Upload-Metadata must be names and values in base 64"), field="Upload-Metadata"
        ) from None
