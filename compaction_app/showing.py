"""The active context and compactions as every door shows them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from ninja import Schema

from compaction_app.context import load_state
from mnesis_core.lineage import RunRecord, TryRecord
from mnesis_core.rendering import digest, render
from mnesis_core.text import printable
from sessions_app.queries import load_session
from sessions_app.schemas import error_out

ContextFormat = Literal["mnesis", "openai_chat", "openai_responses", "anthropic", "gemini"]


class TryOut(Schema):
    """One attempt at a summary, or at a piece of one."""

    id: str
    call_id: str | None
    summary_id: str
    kind: str
    level: int
    piece: int
    pieces: int
    target_tokens: int | None
    prompt_version: str
    accepted: bool
    reason: str
    input_tokens: int
    output_tokens: int
    source: str
    cost_micros: int | None
    created_at: datetime


class CompactionOut(Schema):
    """A compaction."""

    id: str
    state: str
    trigger: str
    attempts: int
    """Workers that have taken it up; more than one when one died."""
    outcome: str | None
    level: int | None
    tries: list[TryOut]
    tokens_before: int | None
    tokens_after: int | None
    summary_id: str | None
    summary_ids: list[str]
    source_count: int | None
    pruned_parts: int | None
    cost_micros: int | None
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


def show_context(session_id: str, *, owner_id: int, provider: ContextFormat, at: int | None) -> dict[str, Any]:
    """What a model would see now, or saw as of event ``at``: as messages, or as a kind of provider takes them.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    """
    load_session(session_id, owner_id=owner_id)
    state = load_state(session_id, at=at)
    built = state.build()
    body: dict[str, Any] = {
        "budget": asdict(built.budget) | {"window_source": state.spec.context_window_source},
        "estimate": {"tokens": built.assembled.used_tokens} | state.calibration.as_dict(),
        "pressure": built.pressure.value,
        "breakdown": asdict(built.assembled.breakdown),
        "manifest": list(built.assembled.manifest),
        "digest": built.digest,
        "left_out": [asdict(item) for item in built.assembled.left_out],
    }
    if provider != "mnesis":
        payload = render(built.assembled, provider=provider)
        return body | {"payload": payload, "digest": digest(payload)}
    return body | {"messages": _printable([asdict(message) for message in built.assembled.messages])}


def compaction_out(run: RunRecord) -> dict[str, Any]:
    """A compaction as JSON."""
    names = ("id", "state", "trigger", "outcome", "level", "tokens_before", "tokens_after", "summary_ids")
    more = ("attempts", "source_count", "pruned_parts", "cost_micros", "created_at", "started_at", "ended_at")
    return {name: getattr(run, name) for name in names + more} | {
        "tries": [_try_out(attempt) for attempt in run.tries],
        "summary_id": run.summary_ids[-1] if run.summary_ids else None,
        "error": error_out(run.error_code, run.error_message),
    }


def _try_out(attempt: TryRecord) -> dict[str, Any]:
    return asdict(attempt) | {
        "input_tokens": attempt.tokens_input,
        "output_tokens": attempt.tokens_output,
        "source": attempt.usage_source,
    }


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
