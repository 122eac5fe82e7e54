"""The JSON shapes of the record at the REST door (``design/api`` "Small print")."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from ninja import Field, Schema
from ninja.responses import NinjaJSONEncoder

from mnesis_core.events import LedgerEvent
from mnesis_core.messages import DataPart, FileRefPart, ReasoningPart, StoredMessage, StoredPart, TextPart, ToolPart
from mnesis_core.records import CallRecord, SessionRecord, TurnRecord, UsageRecord, Waiting
from mnesis_core.text import printable, write_time

Place = Annotated[int, Field(ge=0, le=2**53)]
"""A number that a list goes on behind: ``after``, or the ``next_cursor`` of the page before as ``cursor``. The later one counts."""
Limit = Annotated[int, Field(ge=1, le=500)]
"""Entries of a page."""


class JSONEncoder(NinjaJSONEncoder):
    """Values of our schemas as JSON, the same at every endpoint."""

    def default(self, o: Any) -> Any:
        """Write a time with its milliseconds, which Django leaves out at whole seconds."""
        return write_time(o) if isinstance(o, datetime) else super().default(o)


class PageAfter(Schema):
    """What comes after a place."""

    after: Place = 0
    cursor: Place = 0
    limit: Limit = 100

    @property
    def start(self) -> int:
        """Where the page begins."""
        return max(self.after, self.cursor)


class ErrorBody(Schema):
    """What went wrong and what to do."""

    code: str
    message: str
    details: dict[str, Any] = {}


class ErrorOut(Schema):
    """Every error, at every endpoint."""

    error: ErrorBody


class UsageOut(Schema):
    """Tokens, each call's source, and money in millionths."""

    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    source: str | None
    cost_micros: int | None


class SessionOut(Schema):
    """A session in a list. In ``host_mode`` it stays alive for messages of peers, who address it as ``peer_name``."""

    id: str
    state: str
    model: str
    agent: str
    title: str
    archived: bool
    labels: dict[str, str]
    config: dict[str, Any]
    origin: str
    parent_id: str | None
    host_mode: bool
    peer_name: str
    running_turn_id: str | None
    last_seq: int
    message_count: int
    turn_count: int
    created_at: datetime
    updated_at: datetime


class PartOut(Schema):
    """A part of a message; which fields are set depends on ``type``."""

    id: str
    index: int
    type: str
    token_estimate: int
    text: str | None = None
    label: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    input: str | None = None
    output: str | None = None
    error: str | None = None
    state: str | None = None
    decision_note: str | None = None
    late_output: str | None = None
    compacted_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    file_id: str | None = None


class MessageOut(Schema):
    """A message of the record."""

    id: str
    seq: int
    turn_id: str | None
    role: str
    is_summary: bool
    created_at: datetime
    parts: list[PartOut]
    usage: UsageOut
    finish_reason: str | None
    outcome: str | None
    error: ErrorBody | None


class WaitingOut(Schema):
    """A tool call that a suspended turn waits for: ``approval`` of a person, or a result of the ``caller``."""

    part_id: str
    tool_call_id: str
    tool_name: str
    input: str
    reason: str


class TurnOut(Schema):
    """A turn. ``waits_for`` is empty unless its state is ``suspended``."""

    id: str
    session_id: str
    seq: int
    state: str
    model: str
    error: ErrorBody | None
    message_ids: list[str]
    usage: UsageOut
    cost_micros: int | None
    waits_for: list[WaitingOut]
    created_at: datetime
    ended_at: datetime | None


class CallOut(Schema):
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
    error: ErrorBody | None
    created_at: datetime
    ended_at: datetime | None


class EventOut(Schema):
    """An entry of the ledger."""

    seq: int
    type: str
    data: dict[str, Any]
    created_at: datetime


def session_out(session: SessionRecord) -> dict[str, Any]:
    """A session as JSON."""
    return {
        "id": session.id,
        "state": session.state,
        "model": session.model,
        "agent": printable(session.agent),
        "title": printable(session.title),
        "archived": session.archived_at is not None,
        "labels": session.labels,
        "config": session.config,
        "origin": session.origin,
        "parent_id": session.parent_id,
        "host_mode": session.host_mode,
        "peer_name": session.peer_name,
        "running_turn_id": session.running_turn_id,
        "last_seq": session.event_seq,
        "message_count": session.message_seq,
        "turn_count": session.turn_seq,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
    }


def usage_out(usage: UsageRecord) -> dict[str, Any]:
    """Usage as JSON."""
    return {
        "input_tokens": usage.tokens_input,
        "output_tokens": usage.tokens_output,
        "cache_read_tokens": usage.tokens_cache_read,
        "cache_write_tokens": usage.tokens_cache_write,
        "source": usage.usage_source,
        "cost_micros": usage.cost_micros,
    }


def error_out(code: str | None, message: str | None) -> dict[str, Any] | None:
    """An error as JSON, where there is one."""
    return None if code is None else {"code": code, "message": printable(message or "")}


def turn_out(turn: TurnRecord) -> dict[str, Any]:
    """A turn as JSON."""
    return {
        "id": turn.id,
        "session_id": turn.session_id,
        "seq": turn.seq,
        "state": turn.state,
        "model": turn.model,
        "error": error_out(turn.error_code, turn.error_message),
        "message_ids": list(turn.message_ids),
        "usage": usage_out(turn.usage),
        "cost_micros": turn.usage.cost_micros,
        "waits_for": [_waiting_out(waiting) for waiting in turn.waits_for],
        "created_at": turn.created_at,
        "ended_at": turn.ended_at,
    }


def _waiting_out(waiting: Waiting) -> dict[str, Any]:
    return {
        "part_id": waiting.part_id,
        "tool_call_id": printable(waiting.tool_call_id),
        "tool_name": printable(waiting.tool_name),
        "input": printable(waiting.input),
        "reason": waiting.reason.value,
    }


def call_out(call: CallRecord) -> dict[str, Any]:
    """A model call as JSON."""
    plain = ("id", "session_id", "turn_id", "message_id", "purpose", "state", "model", "provider_model")
    numbers = (
        "parameters",
        "manifest",
        "context_seq",
        "digest",
        "estimated_tokens",
        "attempts",
        "usage_said",
        "outcome",
        "finish_reason",
        "created_at",
        "ended_at",
    )
    return {name: getattr(call, name) for name in plain + numbers} | {
        "usage": usage_out(call.usage),
        "error": error_out(call.error_code, call.error_message),
    }


def event_out(event: LedgerEvent) -> dict[str, Any]:
    """An event as JSON."""
    return {"seq": event.seq, "type": event.type, "data": event.data, "created_at": event.created_at}


def message_out(message: StoredMessage, row: Any) -> dict[str, Any]:
    """A message as JSON; ``row`` holds how it ended."""
    return {
        "id": message.id,
        "seq": message.seq,
        "turn_id": message.turn_id,
        "role": message.role,
        "is_summary": message.is_summary,
        "created_at": message.created_at,
        "parts": [part_out(part) for part in message.parts],
        "usage": usage_out(row),
        "finish_reason": None if row.finish_reason is None else printable(row.finish_reason),
        "outcome": row.outcome,
        "error": error_out(row.error_code, row.error_message),
    }


def part_out(stored: StoredPart) -> dict[str, Any]:
    """A part as JSON."""
    part = stored.part
    values: dict[str, Any] = {
        "id": stored.id,
        "index": stored.index,
        "type": part.type,
        "token_estimate": stored.token_estimate,
    }
    if isinstance(part, TextPart | ReasoningPart):
        values["text"] = printable(part.text)
    elif isinstance(part, DataPart):
        values |= {"text": printable(part.text), "label": printable(part.label)}
    elif isinstance(part, ToolPart):
        values |= _tool_out(part)
    elif isinstance(part, FileRefPart):
        values |= {"file_id": part.file_id, "text": printable(part.exploration_summary)}
    return values


def _tool_out(part: ToolPart) -> dict[str, Any]:
    return {
        "tool_name": printable(part.tool_name),
        "tool_call_id": printable(part.tool_call_id),
        "input": printable(part.input),
        "output": None if part.output is None else printable(part.output),
        "error": None if part.error is None else printable(part.error),
        "state": part.state.value,
        "decision_note": None if part.decision_note is None else printable(part.decision_note),
        "late_output": None if part.late_output is None else printable(part.late_output),
        "compacted_at": part.compacted_at,
        "started_at": part.started_at,
        "completed_at": part.completed_at,
    }
