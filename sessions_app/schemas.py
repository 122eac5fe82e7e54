"""The JSON schemas of the record, the same at every endpoint (``design/api`` "Small print").

They read the attributes of records, so an endpoint returns the record itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from django.utils.translation import gettext_noop
from ninja import Field
from ninja.responses import NinjaJSONEncoder
from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, ConfigDict

from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import (
    CitationPart,
    MediaPart,
    Part,
    ProviderPart,
    ProviderToolPart,
    StoredMessage,
    UnknownPart,
)
from mnesis_core.text import printable, printable_json, write_time

T = TypeVar("T")
Text = Annotated[str, BeforeValidator(printable)]
"""Text written by people, models and programs, made valid UTF-8."""
IsSet = BeforeValidator(lambda value: value is not None)
"""For a ``bool`` that says whether an attribute has a value."""

Place = Annotated[int, Field(ge=0, le=2**53)]
"""A number that a list goes on behind: ``after``, or the ``next_cursor`` of the page before as ``cursor``. The later one counts."""
Limit = Annotated[int, Field(ge=1, le=500)]  # entries of a page


class JSONEncoder(NinjaJSONEncoder):
    def default(self, o: Any) -> Any:
        """Write a time with its milliseconds, which Django leaves out at whole seconds."""
        return write_time(o) if isinstance(o, datetime) else super().default(o)


class Out(BaseModel):
    """A value of ours on its way out.

    Not ninja's own ``Schema``, which looks every attribute up in Python: that takes three times as long for a page of
    messages.
    """

    model_config = ConfigDict(from_attributes=True)


def page_of(rows: Sequence[T], limit: int, place: Callable[[T], Any]) -> dict[str, Any]:
    """Return a page of rows, of which one more than ``limit`` was asked for; the cursor is the place of its last one."""
    return {"items": rows[:limit], "next_cursor": place(rows[limit - 1]) if len(rows) > limit else None}


def place_of(time: datetime, id: str) -> str:
    """Return the cursor of a page that ends with this row; the id is needed because two rows may have the same time."""
    return f"{time.isoformat()}~{id}"


def read_place(cursor: str | None) -> tuple[datetime, str] | None:
    """:raises InvalidRequest: the cursor is malformed."""
    if cursor is None:
        return None
    text, _, id = cursor.partition("~")
    try:
        time = datetime.fromisoformat(text.replace(" ", "+"))
        if time.tzinfo is not None:
            return time.astimezone(UTC), id  # a time outside UTC's range is refused here, not by the database
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(gettext_noop("cursor must be the next_cursor of the page before"), field="cursor")


class ErrorBody(Out):
    """An error: what went wrong and what to do."""

    code: str
    message: Text
    details: dict[str, Any] = {}
    request: str = ""  # the id of the request, which is in the header X-Request-Id and in the server's log


class ErrorOut(Out):
    """Every error, at every endpoint."""

    error: ErrorBody


class UsageOut(Out):
    """Tokens, each call's source, and money in millionths."""

    input_tokens: Annotated[int | None, Field(validation_alias="tokens_input")]
    output_tokens: Annotated[int | None, Field(validation_alias="tokens_output")]
    cache_read_tokens: Annotated[int | None, Field(validation_alias="tokens_cache_read")]
    cache_write_tokens: Annotated[int | None, Field(validation_alias="tokens_cache_write")]
    source: Annotated[str | None, Field(validation_alias="usage_source")]
    cost_micros: int | None


class SessionOut(Out):
    """A session in a list. In ``host_mode`` it stays alive for messages of peers, who address it as ``peer_name``."""

    id: str
    state: str
    model: str
    agent: Text
    title: Text
    archived: Annotated[bool, Field(validation_alias="archived_at"), IsSet]
    pinned: Annotated[bool, Field(validation_alias="pinned_at"), IsSet]
    trashed: Annotated[bool, Field(validation_alias="trashed_at"), IsSet]
    unread: Annotated[bool, Field(validation_alias="is_unread")]
    labels: dict[str, str]
    config: dict[str, Any]
    origin: str
    parent_id: str | None
    host_mode: bool
    peer_name: str
    project_id: Annotated[str | None, BeforeValidator(lambda project_id: project_id or None)]
    assistant_version_id: Annotated[str | None, BeforeValidator(lambda version_id: version_id or None)]
    temporary: Annotated[bool, Field(validation_alias="is_temporary")]
    running_turn_id: str | None
    last_seq: Annotated[int, Field(validation_alias="event_seq")]
    message_count: Annotated[int, Field(validation_alias="message_seq")]
    turn_count: Annotated[int, Field(validation_alias="turn_seq")]
    created_at: datetime
    updated_at: datetime


class DeletedSession(Out):
    """A session that is hidden for good."""

    id: str
    deleted: bool


def _of_part(*names: str) -> Any:
    return Field(validation_alias=AliasChoices(*(AliasPath("part", name) for name in names)))


_DETAILED = (MediaPart, ProviderPart, ProviderToolPart, CitationPart, UnknownPart)
_OWN_FIELDS = {"type", "text", "label", "tool_name", "tool_call_id", "input", "output", "error", "file_id"}


def _details(part: Part) -> dict[str, Any] | None:
    if not isinstance(part, _DETAILED):
        return None
    held = {field.name: getattr(part, field.name) for field in fields(part) if field.name not in _OWN_FIELDS}
    return {name: printable_json(value) for name, value in held.items() if value not in ("", 0)}


class PartOut(Out):
    """A part of a message; which fields are set depends on ``type``."""

    id: str
    index: int
    type: Annotated[str, _of_part("type")]
    token_estimate: int
    text: Annotated[Text | None, _of_part("text", "exploration_summary")] = None
    label: Annotated[Text | None, _of_part("label")] = None
    tool_name: Annotated[Text | None, _of_part("tool_name")] = None
    tool_call_id: Annotated[Text | None, _of_part("tool_call_id")] = None
    input: Annotated[Text | None, _of_part("input")] = None
    output: Annotated[Text | None, _of_part("output")] = None
    error: Annotated[Text | None, _of_part("error")] = None
    state: Annotated[str | None, _of_part("state")] = None
    decision_note: Annotated[Text | None, _of_part("decision_note")] = None
    late_output: Annotated[Text | None, _of_part("late_output")] = None
    compacted_at: Annotated[datetime | None, _of_part("compacted_at")] = None
    started_at: Annotated[datetime | None, _of_part("started_at")] = None
    completed_at: Annotated[datetime | None, _of_part("completed_at")] = None
    file_id: Annotated[str | None, _of_part("file_id")] = None
    details: Annotated[dict[str, Any] | None, Field(validation_alias="part"), BeforeValidator(_details)] = None
    """What else the rarer types hold, by its names in ``mnesis_core.messages``; only what is set."""


class MessageOut(Out):
    """A message of the record."""

    id: str
    seq: int
    branch: int
    parent_id: str | None  # the message before it on its path; null for a first one
    turn_id: str | None
    role: str
    is_summary: bool
    created_at: datetime
    parts: list[PartOut]
    usage: UsageOut
    finish_reason: Text | None
    outcome: str | None
    error: ErrorBody | None


class WaitingOut(Out):
    """A tool call that a suspended turn waits for: ``approval`` of a person, or a result of the ``caller``."""

    part_id: str
    tool_call_id: Text
    tool_name: Text
    input: Text
    reason: str


class TurnOut(Out):
    """A turn. ``waits_for`` is empty unless its state is ``suspended``."""

    id: str
    session_id: str
    seq: int
    state: str
    model: str
    error: ErrorBody | None
    message_ids: list[str]
    usage: UsageOut
    cost_micros: Annotated[int | None, Field(validation_alias=AliasPath("usage", "cost_micros"))]
    waits_for: list[WaitingOut]
    created_at: datetime
    ended_at: datetime | None


class CallOut(Out):
    """A model call."""

    id: str
    session_id: str
    turn_id: str | None
    message_id: str | None
    purpose: str
    state: str
    model: str
    provider_model: str
    parameters: dict[str, Any]
    manifest: list[Any]
    context_seq: int
    digest: str
    estimated_tokens: int
    attempts: int | None
    usage: UsageOut
    usage_said: str | None
    """What the provider said of tokens, as JSON, whether it can be true or not."""
    outcome: str | None
    finish_reason: str | None
    stop_sequence: str | None
    """The stop text at which the answer ended, if the provider says so."""
    first_token_ms: int | None
    """Milliseconds from the beginning of the call to the first text, reasoning or tool call of a streamed answer."""
    cache_write_1h_tokens: Annotated[int | None, Field(validation_alias="tokens_cache_write_1h")]
    """How many of the tokens written to the cache it keeps for an hour; the others are kept for 5 minutes."""
    error: ErrorBody | None
    created_at: datetime
    ended_at: datetime | None


class EventOut(Out):
    """An entry of the ledger."""

    seq: int
    type: str
    data: dict[str, Any]
    created_at: datetime


def message_out(message: StoredMessage, row: Any, parent_id: str | None) -> dict[str, Any]:
    """Return what ``MessageOut`` reads; ``row`` holds how the message ended."""
    said = None if row.error_code is None else row.error_message or ""
    return {
        "id": message.id,
        "seq": message.seq,
        "branch": row.branch,
        "parent_id": parent_id,
        "turn_id": message.turn_id,
        "role": message.role,
        "is_summary": message.is_summary,
        "created_at": message.created_at,
        "parts": message.parts,
        "usage": row,
        "finish_reason": row.finish_reason,
        "outcome": row.outcome,
        "error": None if said is None else {"code": row.error_code, "message": said},
    }
