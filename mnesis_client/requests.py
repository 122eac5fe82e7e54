"""Every request as a value: the two clients differ only in how they send one."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from mnesis_client.values import RecordedValues, Spoken, ToolResult, TurnOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. A safe one may be sent again when nobody knows whether it arrived."""

    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    is_safe: bool = False

    def at(self, place: str, cursor: str | int | None) -> Request:
        """The same for another page."""
        return self if cursor is None else replace(self, params={**self.params, place: cursor})


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


def answer_tools(session_id: str, turn_id: str, results: Sequence[ToolResult]) -> Request:
    """Give results of the caller's tools."""
    return post("sessions", session_id, "turns", turn_id, "tool-results", results=[*results])


def _keyed(*steps: str, **body: Any) -> Request:
    """Has an idempotency key always, so that it may be sent again."""
    given = {"idempotency_key": secrets.token_hex(16)} | _given(body)
    return Request(method="POST", path=_path(steps), body=given, is_safe=True)


def _path(steps: Sequence[str]) -> str:
    return "/api/" + "/".join(quote(step, safe="") for step in steps)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
