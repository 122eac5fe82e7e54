"""What one turn did: its messages in order, with the calls that wrote them and the tools that they called."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.db.models.functions import Left, Length

from mnesis_core.record import UsageRecord
from mnesis_core.text import decode_text
from sessions_app.models import Message, MessagePart, ModelCall
from sessions_app.queries.timeline import ERROR, error_of, openings_of
from sessions_app.queries.usage import usage_of

HEAD = 1_000
"""Characters of the beginning of a tool's input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStep:
    """One call of a turn."""

    id: str
    message_id: str | None
    model: str
    state: str
    outcome: str
    error_code: str
    error_message: str
    created_at: datetime
    ended_at: datetime | None
    attempts: int
    usage: UsageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStep:
    """One tool call of a turn."""

    id: str
    message_id: str
    name: str
    state: str
    input: str
    """How it begins."""
    input_length: int
    """Characters, as they are stored."""
    output_length: int | None
    output_tokens: int | None
    error: str
    """How it begins."""
    started_at: datetime | None
    completed_at: datetime | None
    compacted_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStep:
    """One message of a turn, with the calls that wrote it and the tools that it called."""

    id: str
    seq: int
    role: str
    model: str
    created_at: datetime
    finalized_at: datetime | None
    error_code: str
    error_message: str
    usage: UsageRecord
    opening: str
    calls: tuple[CallStep, ...]
    tools: tuple[ToolStep, ...]


def load_steps(session_id: str, turn_id: str, *, after: int, limit: int) -> list[MessageStep]:
    """Messages of a turn after the message ``after``, in order, with what was done for each; four queries."""
    rows = Message.objects.filter(session_id=session_id, turn_id=turn_id, seq__gt=after).order_by("seq")
    messages = list(rows[:limit])
    ids = [row.id for row in messages]
    calls = _calls(turn_id, ids, with_others=after == 0)
    tools = _tools(ids)
    openings = openings_of(MessagePart.objects.filter(message_id__in=ids), "message_id")
    first = ids[0] if ids else None
    return [_message(row, openings, calls, tools, is_first=row.id == first) for row in messages]


def _calls(turn_id: str, message_ids: list[str], *, with_others: bool) -> dict[str | None, list[CallStep]]:
    """The calls of a turn by the message that each wrote; with others those that wrote none, under ``None``."""
    whose = Q(message_id__in=message_ids)
    if with_others:
        whose |= Q(message__isnull=True)
    rows = ModelCall.objects.filter(whose, turn_id=turn_id).defer("manifest", "parameters").order_by("created_at", "id")
    found: dict[str | None, list[CallStep]] = {}
    for row in rows:
        found.setdefault(row.message_id, []).append(_call(row))
    return found


def _call(row: ModelCall) -> CallStep:
    return CallStep(
        id=row.id,
        message_id=row.message_id,
        model=decode_text(row.model),
        state=row.state,
        outcome=row.outcome or "",
        error_code=row.error_code or "",
        error_message=error_of(row),
        created_at=row.created_at,
        ended_at=row.ended_at,
        attempts=row.attempts or 0,
        usage=usage_of(row),
    )


def _tools(message_ids: list[str]) -> dict[str, list[ToolStep]]:
    columns = {
        "head": Left("tool_input", HEAD),
        "input_length": Length("tool_input"),
        "output_length": Length("output"),
        "error": Left("error_message", ERROR),
    }
    rows = MessagePart.objects.filter(message_id__in=message_ids, part_type="tool").order_by("part_index")
    plain = ("id", "message_id", "tool_name", "tool_state", "output_token_estimate")
    times = ("started_at", "completed_at", "compacted_at")
    found: dict[str, list[ToolStep]] = {}
    for row in rows.values(*plain, *times, **columns):
        found.setdefault(row["message_id"], []).append(_tool(row))
    return found


def _tool(row: dict[str, Any]) -> ToolStep:
    return ToolStep(
        id=row["id"],
        message_id=row["message_id"],
        name=decode_text(row["tool_name"]),
        state=row["tool_state"] or "",
        input=decode_text(row["head"]),
        input_length=row["input_length"],
        output_length=row["output_length"],
        output_tokens=row["output_token_estimate"],
        error=decode_text(row["error"] or ""),
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        compacted_at=row["compacted_at"],
    )


def _message(
    row: Message,
    openings: dict[str, str],
    calls: dict[str | None, list[CallStep]],
    tools: dict[str, list[ToolStep]],
    *,
    is_first: bool,
) -> MessageStep:
    # A call that wrote no message stands where the turn begins.
    others = calls.get(None, []) if is_first else []
    return MessageStep(
        id=row.id,
        seq=row.seq,
        role=row.role,
        model=decode_text(row.model),
        created_at=row.created_at,
        finalized_at=row.finalized_at,
        error_code=row.error_code or "",
        error_message=error_of(row),
        usage=usage_of(row),
        opening=openings.get(row.id, ""),
        calls=(*calls.get(row.id, []), *others),
        tools=tuple(tools.get(row.id, [])),
    )
