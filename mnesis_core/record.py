"""What the record says about sessions, turns and model calls: frozen values, as queries return them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class TurnState(StrEnum):
    """How far a turn is, and how it ended."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    """Somebody interrupted it; what was said is kept."""
    INTERRUPTED = "interrupted"
    """The stream broke off, or the process died; what was said is kept."""
    FAILED = "failed"
    """There is no answer, and the error says why."""
    INCOMPLETE = "incomplete"
    """The stream ended without proof that the answer is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """Tokens and money, with who said so; ``None`` until it is known."""

    tokens_input: int | None = None
    tokens_output: int | None = None
    tokens_cache_read: int | None = None
    tokens_cache_write: int | None = None
    usage_source: str | None = None
    cost_micros: int | None = None


def total_usage(*usages: UsageRecord) -> UsageRecord:
    """Tokens and money of several together; who counted is not said of a sum."""
    return UsageRecord(
        tokens_input=sum(usage.tokens_input or 0 for usage in usages),
        tokens_output=sum(usage.tokens_output or 0 for usage in usages),
        cost_micros=sum(usage.cost_micros or 0 for usage in usages),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One session."""

    id: str
    owner_id: int
    parent_id: str | None
    title: str
    model: str
    agent: str
    origin: str
    system_prompt: str
    labels: dict[str, str]
    config: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    event_seq: int
    message_seq: int
    turn_seq: int
    running_turn_id: str | None
    last_turn_state: str | None

    @property
    def state(self) -> str:
        """``running``, ``archived`` or how the last turn ended; ``idle`` when there was none or it went well."""
        if self.running_turn_id:
            return "running"
        if self.archived_at:
            return "archived"
        return "idle" if self.last_turn_state in (None, "completed") else str(self.last_turn_state)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One turn."""

    id: str
    session_id: str
    seq: int
    state: str
    model: str
    origin: str
    idempotency_key: str | None
    created_at: datetime
    ended_at: datetime | None
    error_code: str | None
    error_message: str | None
    fence: int
    message_ids: tuple[str, ...]
    usage: UsageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEnd:
    """How a message ended: everything that is written once, at its end."""

    model: str = ""
    finish_reason: str | None = None
    outcome: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    usage: UsageRecord = UsageRecord()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One model call."""

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
    outcome: str | None
    finish_reason: str | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    ended_at: datetime | None
    usage: UsageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItemRecord:
    """One row of the active context."""

    item_type: str
    item_id: str
    position: int
    added_seq: int
    removed_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference:
    """A file that stands outside the context, as it was when it was explored."""

    id: str
    session_id: str
    content_id: str
    """SHA-256 of its bytes, 64 hexadecimal digits."""
    path: str
    file_type: str
    token_count: int
    """Tokens of the whole file."""
    exploration_summary: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveText:
    """What one part of a running answer says so far."""

    message_id: str
    part_index: int
    part_type: str
    text: str
