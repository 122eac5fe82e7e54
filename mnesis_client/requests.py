"""Every request as a value: the two clients differ only in how they send one."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO
from urllib.parse import quote

from mnesis_client.inputs import RecordedValues, Spoken, ToolResult, TurnOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. A safe one may be sent again when nobody knows whether it arrived."""

    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    form: dict[str, str] | None = None
    attached: tuple[tuple[str, tuple[str, bytes | BinaryIO]], ...] = ()
    """Of files: the field, their name and content. Sent with ``form``."""
    is_safe: bool = False

    def at(self, place: str, cursor: str | int | None) -> Request:
        """The same for another page."""
        return self if cursor is None else replace(self, params={**self.params, place: cursor})


TUS = "1.0.0"
EVENTS = {"Accept": "text/event-stream"}
"""Asks for frames as they come."""


def follow(session_id: str, *, after: int) -> Request:
    """Follow a session."""
    return get("sessions", session_id, "events", after=after)


def get(*steps: str, **params: Any) -> Request:
    """Read something; parameters that are ``None`` are left out."""
    return Request(method="GET", path=_path(steps), params=_given(params), is_safe=True)


def post(*steps: str, **body: Any) -> Request:
    """Do something; fields that are ``None`` are left out."""
    return Request(method="POST", path=_path(steps), body=_given(body))


def patch(*steps: str, **body: Any) -> Request:
    """Change something. Doing it twice is the same as once."""
    return Request(method="PATCH", path=_path(steps), body=_given(body), is_safe=True)


def start_turn(session_id: str, message: str, options: TurnOptions) -> Request:
    """Start a turn."""
    return _keyed("sessions", session_id, "turns", message=message, **options)


def record_turn(session_id: str, user: Spoken, assistant: Spoken, known: RecordedValues) -> Request:
    """Record a turn that the caller ran."""
    return _keyed("sessions", session_id, "record", user=user, assistant=assistant, **known)


def send_message(session_id: str, text: str, kind: str, in_reply_to: str | None) -> Request:
    """Put a message into an inbox."""
    return _keyed("sessions", session_id, "inbox", text=text, kind=kind, in_reply_to=in_reply_to)


def start_map(kind: str, template: str, values: Mapping[str, Any]) -> Request:
    """Start a run over many items."""
    return _keyed("operators", kind, template=template, **values)


def answer_tools(session_id: str, turn_id: str, results: Sequence[ToolResult]) -> Request:
    """Give results of the caller's tools."""
    return post("sessions", session_id, "turns", turn_id, "tool-results", results=[*results])


def upload(session_id: str, name: str, content: bytes) -> Request:
    """Send a file at once. The same again is the file that is there, so it may be sent twice."""
    return Request(
        method="POST",
        path=_path(["files"]),
        form={"session_id": session_id},
        attached=(("file", (name, content)),),
        is_safe=True,
    )


def import_files(files: Sequence[tuple[str, BinaryIO]], model: str | None) -> Request:
    """Send files that become sessions. The same again adds nothing, so it may be sent twice."""
    return Request(
        method="POST",
        path=_path(["sessions", "import"]),
        form=_given({"model": model}),
        attached=tuple(("file", file) for file in files),
        is_safe=True,
    )


def begin_upload(session_id: str, name: str, size: int) -> Request:
    """Begin to send a file in pieces."""
    facts = {"filename": name, "session_id": session_id}
    told = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in facts.items())
    headers = {"Tus-Resumable": TUS, "Upload-Length": str(size), "Upload-Metadata": told}
    return Request(method="POST", path=_path(["uploads"]), headers=headers, is_safe=True)


def ask_upload(upload_id: str) -> Request:
    """Ask how much of it came."""
    return Request(method="HEAD", path=_path(["uploads", upload_id]), headers={"Tus-Resumable": TUS}, is_safe=True)


def send_piece(upload_id: str, offset: int, content: bytes) -> Request:
    """Send the bytes from an offset on."""
    headers = {
        "Tus-Resumable": TUS,
        "Upload-Offset": str(offset),
        "Content-Type": "application/offset+octet-stream",
    }
    return Request(method="PATCH", path=_path(["uploads", upload_id]), headers=headers, content=content)


def _keyed(*steps: str, **body: Any) -> Request:
    """Has an idempotency key always, so that it may be sent again."""
    given = {"idempotency_key": secrets.token_hex(16)} | _given(body)
    return Request(method="POST", path=_path(steps), body=given, is_safe=True)


def _path(steps: Sequence[str]) -> str:
    return "/api/" + "/".join(quote(step, safe="") for step in steps)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
