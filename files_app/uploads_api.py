"""Uploads that may be broken off, at the REST door: the tus protocol, version 1.0.0 (https://tus.io/protocols/resumable-upload).

Any tus client can send here: it makes an upload with its length, sends bytes, asks after a break where to go on, and
is told the file's id with the last of them (``Mnesis-File``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from files_app.uploads import CHUNK_BYTES, Upload, begin_upload, end_upload, go_on, load_upload
from mnesis_core.errors import InvalidRequest
from sessions_app.asking import owner_id
from sessions_app.conf import site_config
from sessions_app.schemas import ErrorOut

router = Router(tags=["files"])

VERSION = "1.0.0"
ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 409: ErrorOut, 413: ErrorOut, 422: ErrorOut, 429: ErrorOut}
PIECE = {
    "requestBody": {"content": {"application/offset+octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}
"""What OpenAPI says of the bytes that are sent."""


@router.post("/uploads", response={201: None, **ERRORS}, summary="Begin an upload (tus)")
def create_upload(request: HttpRequest) -> Any:
    """Make room for a file: ``Upload-Length`` in bytes, ``Upload-Metadata`` with ``filename`` and ``session_id``."""
    facts = _metadata(request.headers.get("Upload-Metadata", ""))
    if "session_id" not in facts:
        raise InvalidRequest("Upload-Metadata must name session_id", field="Upload-Metadata")
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
        raise InvalidRequest("Content-Type must be application/offset+octet-stream", field="Content-Type")
    kept = go_on(upload, offset=_number(request, "Upload-Offset"), chunks=_body(request))
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


def _body(request: HttpRequest) -> Iterator[bytes]:
    while data := request.read(CHUNK_BYTES):
        yield data


def _where(upload: Upload) -> dict[str, str]:
    return {"Upload-Offset": str(upload.offset), "Upload-Length": str(upload.size)}


def _answer(status: int, headers: dict[str, str]) -> HttpResponse:
    return HttpResponse(status=status, headers={"Tus-Resumable": VERSION} | headers)


def _number(request: HttpRequest, name: str) -> int:
    """:raises InvalidRequest: the header is not there, or no number of bytes."""
    text = request.headers.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise InvalidRequest(f"the header {name} must be a number of bytes", field=name)
    return int(text)


def _metadata(text: str) -> dict[str, str]:
    """Names and values as tus writes them: each value in base 64.

    :raises InvalidRequest: it is not written so.
    """
    pairs = [pair.strip().partition(" ") for pair in text.split(",") if pair.strip()]
    try:
        return {name: base64.b64decode(value, validate=True).decode() for name, _, value in pairs}
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidRequest("Upload-Metadata must be names and values in base 64", field="Upload-Metadata") from None
