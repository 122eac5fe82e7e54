"""Store foreign transcripts as sessions: one transaction per turn, with original times and ids, safe to repeat.

A session is found again by its owner, origin and external id, a turn by its external id as idempotency key. So an import
that was cut off continues where it stopped, and a repeated one adds only what is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from mnesis_core.llm.interface import Outcome, Source, Usage
from mnesis_core.messages import Message
from mnesis_core.records import IMPORTED_SUB_AGENT, MessageEnd, TurnState, UsageRecord
from mnesis_core.text import encode_text
from mnesis_core.transcripts import LinkKind, ParseResult, Transcript, TranscriptMessage, TranscriptTurn
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import find_part_of_call
from sessions_app.record.prepared_parts import PreparedPart, prepare_parts
from sessions_app.record.session_queries import find_imported
from sessions_app.record.turn_queries import turn_keys

ORIGIN = "import"
KEY_LENGTH = 200


@dataclass(slots=True, kw_only=True)
class ImportReport:
    sessions: dict[str, str] = field(default_factory=dict)  # session id by external id
    sessions_created: int = 0
    turns_stored: int = 0
    turns_known: int = 0  # stored by an earlier import of the same transcript
    messages_stored: int = 0
    parts_stored: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


Progress = Callable[[int, int], None]  # turns done, turns in all


def store_transcripts(
    result: ParseResult, *, owner: AbstractBaseUser, model: str, progress: Progress = lambda done, total: None
) -> ImportReport:
    """Store every transcript of a parsed file, and its children, as sessions of ``owner`` that continue with ``model``."""
    report = ImportReport()
    transcripts = [one for transcript in result.transcripts for one in (transcript, *transcript.children)]
    total = sum(len(transcript.turns) for transcript in transcripts)
    for transcript in transcripts:
        origin = f"{ORIGIN}:{transcript.format}"
        imported = find_imported(owner_id=owner.pk, origin=origin, external_id=transcript.external_id)
        session_id = imported.id if imported else _create(transcript, report, owner=owner, model=model, origin=origin)
        report.sessions[transcript.external_id] = session_id
        known = turn_keys(session_id)
        for place, turn in enumerate(transcript.turns):
            # Formats without ids keep their order, so the position identifies a turn as well.
            _store_turn(session_id, turn, encode_text(turn.external_id or f"#{place}")[:KEY_LENGTH], known, report)
            progress(report.turns_stored + report.turns_known, total)
    return report


def _create(transcript: Transcript, report: ImportReport, *, owner: AbstractBaseUser, model: str, origin: str) -> str:
    parent = transcript.parent
    parent_id = report.sessions.get(parent.transcript_id) if parent else None
    call_id = parent.tool_call_id if parent else ""
    report.sessions_created += 1
    return session_store.create_session(
        owner=owner,
        model=model,
        title=transcript.title[:KEY_LENGTH],
        agent=IMPORTED_SUB_AGENT if parent and parent.kind is LinkKind.SUB_AGENT else "default",
        system_prompt=transcript.system_prompt,
        labels=transcript.labels | ({"link": parent.kind.value} if parent else {}),
        parent_id=parent_id,
        parent_part_id=find_part_of_call(parent_id, call_id) if parent_id and call_id else "",
        origin=origin,
        external_id=transcript.external_id[:KEY_LENGTH],
        created_at=transcript.started_at,
    )


def _store_turn(session_id: str, turn: TranscriptTurn, key: str, known: set[str], report: ImportReport) -> None:
    if key in known:
        report.turns_known += 1
        return
    ready = [prepare_parts(message.parts) for message in turn.messages]
    with change(session_id) as record:
        turn_id = turn_store.start_turn(
            record,
            model=next((message.model for message in reversed(turn.messages) if message.model), ""),
            origin=ORIGIN,
            idempotency_key=key,
            created_at=turn.messages[0].created_at,
        )
        for message, parts in zip(turn.messages, ready, strict=True):
            _store_message(record, turn_id, message, parts)
        turn_store.finish_turn(
            record,
            turn_id,
            state=TurnState.COMPLETED,
            usage=_usage_of_turn(turn),
            ended_at=turn.messages[-1].created_at,
        )
    report.turns_stored += 1
    report.messages_stored += len(turn.messages)
    report.parts_stored += sum(len(message.parts) for message in turn.messages)


def _store_message(record: Change, turn_id: str, message: TranscriptMessage, parts: list[PreparedPart]) -> None:
    message_store.append_message(
        record,
        turn_id=turn_id,
        message=Message(role=message.role, parts=message.parts, is_summary=message.is_summary),
        parts=parts,
        model=message.model,
        external_id=message.external_id,
        created_at=message.created_at,
        end=MessageEnd(
            finish_reason=message.finish_reason or None,
            outcome=Outcome.COMPLETE.value,
            usage=UsageRecord() if message.usage is None else _usage(message.usage),
        ),
    )


def _usage_of_turn(turn: TranscriptTurn) -> UsageRecord:
    usages = [message.usage for message in turn.messages if message.usage is not None]
    if not usages:
        return UsageRecord()
    return _usage(
        Usage(
            input_tokens=sum(usage.input_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
            cache_read_tokens=sum(usage.cache_read_tokens for usage in usages),
            cache_write_tokens=sum(usage.cache_write_tokens for usage in usages),
        )
    )


def _usage(usage: Usage) -> UsageRecord:
    return UsageRecord(
        tokens_input=usage.input_tokens,
        tokens_output=usage.output_tokens,
        tokens_cache_read=usage.cache_read_tokens,
        tokens_cache_write=usage.cache_write_tokens,
        usage_source=Source.IMPORTED.value,
    )
