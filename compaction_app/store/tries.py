"""Attempts at summaries: kept whatever came of them, never changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from compaction_app.models import SummaryTry
from mnesis_core.compaction.asking import Try
from mnesis_core.endings import ModelCallAbandoned
from mnesis_core.events import EventType
from mnesis_core.ids import new_id
from mnesis_core.ledger import new_salt
from mnesis_core.llm import Outcome, ToolCall
from mnesis_core.record import MessageEnd
from mnesis_core.text import encode_json, encode_text
from sessions_app import store as record_store
from sessions_app.ledger import Change
from sessions_app.statements import Table

_TRIES = Table(SummaryTry)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTry:
    """An attempt at a summary, to be kept."""

    run_id: str | None
    summary_id: str
    kind: str
    attempt: Try
    call_id: str | None
    target: int | None
    prompt_version: str
    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    cost_micros: int | None


def record_try(record: Change, new: NewTry) -> str:
    """Keep an attempt at a summary, whatever came of it; returns its id."""
    attempt = new.attempt
    row = _TRIES.row(
        id=new_id("try"),
        salt=new_salt(),
        session_id=record.session_id,
        run_id=new.run_id,
        call_id=new.call_id,
        number=SummaryTry.objects.filter(summary_id=new.summary_id).count() + 1,
        summary_id=new.summary_id,
        kind=new.kind,
        level=attempt.level,
        piece=attempt.piece,
        pieces=attempt.pieces,
        target_tokens=new.target,
        prompt_version=new.prompt_version,
        accepted=attempt.accepted,
        reason=attempt.reason,
        text=encode_text(new.text),
        reasoning=encode_text(new.reasoning),
        tool_calls=encode_json([asdict(call) for call in new.tool_calls]),
        tokens_input=attempt.input_tokens,
        tokens_output=attempt.output_tokens,
        usage_source=attempt.source.value,
        cost_micros=new.cost_micros,
        created_at=record.now,
    )
    record.insert(_TRIES, row)
    record.publish(
        EventType.SUMMARY_TRIED,
        try_id=row.id,
        run_id=new.run_id,
        summary_id=new.summary_id,
        level=attempt.level,
        accepted=attempt.accepted,
        reason=attempt.reason,
    )
    return str(row.id)


def close_calls(record: Change, call_ids: Sequence[str]) -> None:
    """End calls whose process died, or broke, before it wrote their end. What they cost is not known."""
    reason = ModelCallAbandoned()
    end = MessageEnd(outcome=Outcome.BROKEN.value, error_code=reason.code, error_message=reason.message)
    for call_id in call_ids:
        record_store.finish_call(record, call_id, end)
