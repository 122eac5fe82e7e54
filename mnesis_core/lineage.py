"""What the record says about compactions and summaries: frozen values, as queries return them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TryRecord:
    """One attempt at a summary, or at a piece of one, without its text."""

    id: str
    run_id: str | None
    call_id: str | None
    summary_id: str
    """What it was to be; there is none of that id if nothing came of it."""
    kind: str
    level: int
    piece: int
    pieces: int
    target_tokens: int | None
    prompt_version: str
    accepted: bool
    reason: str
    tokens_input: int
    tokens_output: int
    usage_source: str
    cost_micros: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One compaction."""

    id: str
    session_id: str
    state: str
    trigger: str
    attempts: int
    outcome: str | None
    """Why it ended, a value of ``compaction.Outcome``; ``None`` for one that failed or goes on."""
    level: int | None
    tries: tuple[TryRecord, ...]
    """In order."""
    tokens_before: int | None
    tokens_after: int | None
    summary_ids: list[str]
    source_count: int | None
    pruned_parts: int | None
    pruned_tokens: int | None
    tokens_input: int | None
    tokens_output: int | None
    cost_micros: int | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error_code: str | None
    error_message: str | None
    end_seq: int | None
    after_message_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSummary:
    """A summary that was accepted and waits for its commit."""

    id: str
    """Known from the first try on."""
    kind: str
    depth: int
    level: int
    text: str
    token_count: int
    source_tokens: int
    first_seq: int
    last_seq: int
    message_count: int
    model: str
    prompt_version: str
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRecord(NewSummary):
    """One summary node."""

    session_id: str
    run_id: str | None
    """The compaction that wrote it; none for a revision."""
    created_at: datetime
    superseded_seq: int | None
    revises: str | None
    """The summary whose place it takes."""
    restores: str | None
    """The earlier revision whose text it has."""
    freshness: str
    """``fresh``, or ``stale``: something under it was revised to another text since."""
    source_ids: list[tuple[str, str]]
    """(``message`` or ``summary``, id), in order."""
