"""Changes to model calls: the request is written before the call, its end once afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mnesis_core.errors import CallNotFoundError
from mnesis_core.events import EventType
from mnesis_core.llm.retrying import Retry
from mnesis_core.records import MessageEnd, NewCall
from mnesis_core.text import text_digest
from mnesis_core.values import new_id
from sessions_app.database.tables import Table
from sessions_app.models import ModelCall, PromptText
from sessions_app.record.change import Change
from sessions_app.record.rows import end_columns, usage_columns

_CALLS, _TEXTS = Table(ModelCall), Table(PromptText)


def start_call(
    record: Change,
    *,
    turn_id: str | None,
    message_id: str | None,
    model: str,
    provider_model: str,
    parameters: dict[str, Any],
    manifest: list[Any],
    context_seq: int,
    digest: str,
    estimated_tokens: int,
    purpose: str = "turn",
    texts: Mapping[str, str] | None = None,
) -> str:
    """Record a call before it is made and return its id.

    ``texts`` are what its prompt was made from besides the messages, by name: ``tools``, ``prompt``. Each is kept once in a
    session, so that the prompt can be rebuilt after tools and prompts have changed.
    """
    kept = {}
    for name, text in (texts or {}).items():
        kept[name] = text_digest(text)
        if record.find(_TEXTS, "id", session_id=record.session_id, digest=kept[name]) is None:
            stored = _TEXTS.row(
                id=new_id("text"),
                session_id=record.session_id,
                digest=kept[name],
                content=text,
                created_at=record.now,
            )
            record.insert(_TEXTS, stored)
    row = _CALLS.row(
        id=new_id("call"),
        session_id=record.session_id,
        turn_id=turn_id,
        message_id=message_id,
        purpose=purpose,
        model=model,
        provider_model=provider_model,
        parameters=parameters | ({"texts": kept} if kept else {}),
        manifest=manifest,
        context_seq=context_seq,
        digest=digest,
        estimated_tokens=estimated_tokens,
        created_at=record.now,
    )
    record.insert(_CALLS, row)
    record.publish(EventType.CALL_STARTED, call_id=row.id, turn_id=turn_id, message_id=message_id, digest=digest)
    return str(row.id)


def start_calls(record: Change, calls: Sequence[NewCall]) -> list[str]:
    """Record many calls outside any turn before they are made and return their ids. Publish an event that names them."""
    rows = [
        _CALLS.row(
            id=new_id("call"),
            session_id=record.session_id,
            purpose=call.purpose,
            model=call.model,
            provider_model=call.provider_model,
            parameters=call.parameters,
            manifest=call.manifest,
            digest=call.digest,
            estimated_tokens=call.estimated_tokens,
            created_at=record.now,
        )
        for call in calls
    ]
    record.insert(_CALLS, *rows)
    return [str(row.id) for row in rows]


def finish_calls(record: Change, ends: Mapping[str, tuple[MessageEnd, int]]) -> set[str]:
    """Record the ends of many calls, each with its number of attempts, and return the ids of those that were running.

    Publish an event that names them.
    """
    values = {call_id: _end_columns(record, end, attempts) for call_id, (end, attempts) in ends.items()}
    return record.update_each(_CALLS, values, session_id=record.session_id, state="running")


def note_retry(record: Change, call_id: str, retry: Retry) -> None:
    record.publish(
        EventType.CALL_RETRIED,
        call_id=call_id,
        attempt=retry.attempt,
        error_code=retry.error.code,
        pause_ms=round(retry.pause_seconds * 1000),
    )


def finish_call(record: Change, call_id: str, end: MessageEnd, *, attempts: int = 1) -> None:
    """:raises CallNotFoundError: no such call is running in this session."""
    values = _end_columns(record, end, attempts)
    if not record.update(_CALLS, values, id=call_id, session_id=record.session_id, state="running"):
        raise CallNotFoundError(call_id=call_id)
    type = EventType.CALL_COMPLETED if end.error_code is None else EventType.CALL_FAILED
    record.publish(type, call_id=call_id, outcome=end.outcome, error_code=end.error_code, **usage_columns(end.usage))


def _end_columns(record: Change, end: MessageEnd, attempts: int) -> dict[str, Any]:
    return {
        "state": "completed" if end.error_code is None else "failed",
        "attempts": attempts,
        "ended_at": record.now,
        "usage_said": end.usage_said or None,
        **end_columns(end),
    }
