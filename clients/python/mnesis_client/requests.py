"""Requests as values. Both clients make them here, and differ only in how they send one."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO
from urllib.parse import quote

TUS = "1.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    form: dict[str, str] | None = None
    attached: tuple[tuple[str, tuple[str, bytes | BinaryIO]], ...] = ()
    """The field, name and content of each file that is sent with ``form``."""
    is_safe: bool = False
    """Whether sending it twice is the same as once, so that it is sent again when no answer arrives."""

    def page(self, parameter: str, cursor: str | int | None) -> Request:
        return self if cursor is None else replace(self, params={**self.params, parameter: cursor})


def get(*steps: str, **params: Any) -> Request:
    """Leave out the parameters that are ``None``, as all functions here do."""
    return Request(method="GET", path=_path(*steps), params=_given(params), is_safe=True)


def post(*steps: str, **body: Any) -> Request:
    return Request(method="POST", path=_path(*steps), body=_given(body))


def patch(*steps: str, **body: Any) -> Request:
    return Request(method="PATCH", path=_path(*steps), body=_given(body), is_safe=True)


def post_keyed(*steps: str, **body: Any) -> Request:
    """Post with an idempotency key, so that the request is safe to send again."""
    given = {"idempotency_key": secrets.token_hex(16)} | _given(body)
    return Request(method="POST", path=_path(*steps), body=given, is_safe=True)


def upload(session_id: str, name: str, content: bytes) -> Request:
    # The server keeps a file once by its content, so a second upload is the file of the first.
    return Request(
        method="POST",
        path=_path("files"),
        form={"session_id": session_id},
        attached=(("file", (name, content)),),
        is_safe=True,
    )


def import_files(files: Sequence[tuple[str, BinaryIO]], model: str | None) -> Request:
    # A second import of the same files adds nothing.
    return Request(
        method="POST",
        path=_path("sessions", "import"),
        form=_given({"model": model}),
        attached=tuple(("file", file) for file in files),
        is_safe=True,
    )


def begin_upload(session_id: str, name: str, size: int) -> Request:
    facts = {"filename": name, "session_id": session_id}
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in facts.items())
    headers = {"Tus-Resumable": TUS, "Upload-Length": str(size), "Upload-Metadata": metadata}
    return Request(method="POST", path=_path("uploads"), headers=headers, is_safe=True)


def upload_offset(upload_id: str) -> Request:
    return Request(method="HEAD", path=_path("uploads", upload_id), headers={"Tus-Resumable": TUS}, is_safe=True)


def upload_piece(upload_id: str, offset: int, content: bytes) -> Request:
    headers = {
        "Tus-Resumable": TUS,
        "Upload-Offset": str(offset),
        "Content-Type": "application/offset+octet-stream",
    }
    return Request(method="PATCH", path=_path("uploads", upload_id), headers=headers, content=content)


def _path(*steps: str) -> str:
    return "/api/" + "/".join(quote(step, safe="") for step in steps)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
