"""Sessions made of a history that exists already: a foreign transcript, or another session up to a message (a fork).

A transcript is stored with its original times and ids, one transaction per turn. A session is found again by its owner,
origin and external id, a turn by its external id as idempotency key. So an import that was cut off continues where it
stopped, and a repeated one adds only what is new.

A fork copies a number of turns in one transaction, so that a long one neither fills the memory nor keeps other writers
waiting, and another process may continue it. It is not visible until it is complete (``session_queries.visible_sessions``).
Summaries, tombstones and model calls stay with the original: all of its messages are in the fork's context again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from mnesis_core.errors import Conflict
from mnesis_core.events import EventType
from mnesis_core.files.detection import SUFFIXES
from mnesis_core.llm.interface import Outcome, Source
from mnesis_core.messages import UNANSWERED_STATES, MediaPart, Message, Part, StoredMessage, ToolPart, ToolState
from mnesis_core.records import (
    FORK,
    IMPORTED_SUB_AGENT,
    MessageEnd,
    SessionRecord,
    TurnRecord,
    TurnState,
    UsageRecord,
    new_id,
    record_of,
)
from mnesis_core.text import encode_text
from mnesis_core.transcripts.values import InlineFile, LinkKind, ParseResult, TranscriptMessage, TranscriptTurn
from sessions_app.record import file_port, message_queries, message_store, session_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.session_queries import find_imported, load_forking
from sessions_app.record.turn_queries import load_turns, turn_keys

IMPORT = "import"
KEY_LENGTH = 200
MESSAGES, TURNS = 500, 100  # of a fork, which are read and written at a time
UNANSWERED = "The session was forked before this tool had answered."
Progress = Callable[[int, int], None]  # turns done, turns in all


@dataclass(slots=True, kw_only=True)
class ImportReport:
    sessions: dict[str, str] = field(default_factory=dict)  # session id by external id
    sessions_created: int = 0
    turns_stored: int = 0
    turns_known: int = 0  # stored by an earlier import of the same transcript
    messages_stored: int = 0
    parts_stored: int = 0


def store_transcripts(
    result: ParseResult, *, owner: AbstractBaseUser, model: str, progress: Progress = lambda done, total: None
) -> ImportReport:
    """Store every transcript of a parsed file, and its children, as sessions of ``owner`` that continue with ``model``."""
    report = ImportReport()
    transcripts = [one for transcript in result.transcripts for one in (transcript, *transcript.children)]
    total = sum(len(transcript.turns) for transcript in transcripts)
    for transcript in transcripts:
        origin = f"{IMPORT}:{transcript.format}"
        imported = find_imported(owner_id=owner.pk, origin=origin, external_id=transcript.external_id)
        if imported:
            session_id = imported.id
        else:
            parent = transcript.parent
            parent_id = report.sessions.get(parent.transcript_id) if parent else None
            call_id = parent.tool_call_id if parent else ""
            session_id = session_store.create_session(
                owner=owner,
                model=model,
                title=transcript.title[:KEY_LENGTH],
                agent=IMPORTED_SUB_AGENT if parent and parent.kind is LinkKind.SUB_AGENT else "default",
                system_prompt=transcript.system_prompt,
                labels=transcript.labels | ({"link": parent.kind.value} if parent else {}),
                parent_id=parent_id,
                parent_part_id=message_queries.find_part_of_call(parent_id, call_id) if parent_id and call_id else "",
                origin=origin,
                external_id=transcript.external_id[:KEY_LENGTH],
                created_at=transcript.started_at,
            )
            report.sessions_created += 1
        report.sessions[transcript.external_id] = session_id
        known = turn_keys(session_id)
        for place, turn in enumerate(transcript.turns):
            # Formats without ids keep their order, so the position identifies a turn as well.
            key = encode_text(turn.external_id or f"#{place}")[:KEY_LENGTH]
            if key in known:
                report.turns_known += 1
            else:
                _store_turn(session_id, turn, key, report, owner_id=owner.pk)
            progress(report.turns_stored + report.turns_known, total)
    return report


def _store_turn(session_id: str, turn: TranscriptTurn, key: str, report: ImportReport, *, owner_id: int) -> None:
    files = {file.source: _prepare_file(file, owner_id) for message in turn.messages for file in message.files}
    ready = [
        message_queries.prepare_parts(_with_file(part, files) for part in message.parts) for message in turn.messages
    ]
    with change(session_id) as record:
        for prepared in files.values():
            file_port.add_file(record, prepared)
        turn_id = turn_store.start_turn(
            record,
            model=next((message.model for message in reversed(turn.messages) if message.model), ""),
            origin=IMPORT,
            idempotency_key=key,
            created_at=turn.messages[0].created_at,
        )
        for message, parts in zip(turn.messages, ready, strict=True):
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
                    usage=_sum_usages([message]),
                ),
            )
        usage, ended_at = _sum_usages(turn.messages), turn.messages[-1].created_at
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED, usage=usage, ended_at=ended_at)
    report.turns_stored += 1
    report.messages_stored += len(turn.messages)
    report.parts_stored += sum(len(message.parts) for message in turn.messages)


def _prepare_file(file: InlineFile, owner_id: int) -> file_port.PreparedFile:
    ending = SUFFIXES.get(file.media_type, "")
    path = file.name or f"imported/{file.source.rpartition(':')[2][:16]}{ending}"
    return file_port.prepare_file(file.data, owner_id=owner_id, path=path, file_id=new_id("file"))


def _with_file(part: Part, files: Mapping[str, file_port.PreparedFile]) -> Part:
    """Return a part that shows a file with the id which that gets."""
    if not isinstance(part, MediaPart) or part.source not in files:
        return part
    prepared = files[part.source]
    return replace(part, file_id=prepared["file_id"], source="", name=part.name or prepared["path"])


def _sum_usages(messages: Sequence[TranscriptMessage]) -> UsageRecord:
    usages = [message.usage for message in messages if message.usage is not None]
    if not usages:
        return UsageRecord()
    return UsageRecord(
        tokens_input=sum(usage.input_tokens for usage in usages),
        tokens_output=sum(usage.output_tokens for usage in usages),
        tokens_cache_read=sum(usage.cache_read_tokens for usage in usages),
        tokens_cache_write=sum(usage.cache_write_tokens for usage in usages),
        usage_source=Source.IMPORTED.value,
    )


def find_place(session_id: str, *, at_message_id: str | None, before_message_id: str | None) -> StoredMessage | None:
    """Return the last message that a fork has: this one, or the one before that one, or ``None`` if there is none before it.

    :raises MessageNotFoundError: the session has no such message.
    """
    if at_message_id is not None:
        return message_queries.load_message(at_message_id, session_id=session_id)
    seq = message_queries.load_message(before_message_id or "", session_id=session_id).seq
    return next(iter(message_queries.load_messages(session_id, after=seq - 2, before=seq, limit=1)), None)


def begin_fork(source: SessionRecord, *, owner: AbstractBaseUser, last: StoredMessage | None, title: str) -> str:
    """Create a session that is to have another one's messages up to and including one, and return its id.

    The original does not change; its ledger says that it was forked. ``copy_messages`` does the rest.

    :param last: ``None`` copies no message, only the system prompt and settings
    :raises Conflict: the message is still being written.
    """
    if (
        last
        and last.role == "assistant"
        and message_queries.load_message_rows(source.id, [last.id])[last.id].finalized_at is None
    ):
        raise Conflict("this message is still being written; fork at an earlier one, or wait", message_id=last.id)
    fork_id = session_store.create_session(
        owner=owner,
        model=source.model,
        title=title,
        agent=source.agent,
        system_prompt=source.system_prompt,
        labels=source.labels,
        config=source.config,
        parent_id=source.id,
        forked_message_id=last.id if last else "",
        origin=FORK,
    )
    if last is None:
        _publish_fork(source.id, fork_id)
    return fork_id


def copy_messages(fork_id: str, *, deadline: float | None = None) -> bool:
    """Copy what a fork does not have yet and return whether it is complete.

    :param deadline: seconds of the monotonic clock after which to stop between two transactions
    :raises Conflict: another process copies it at the same time.
    """
    fork = load_forking(fork_id)
    if fork.is_whole:
        return True
    # The messages of a turn are consecutive, because a session runs one turn at a time.
    left = _read_messages(fork.source_id, after=fork.copied, until=fork.messages)
    turns = groupby(left, key=lambda message: str(message.turn_id))
    copied = fork.copied
    while some := {turn_id: list(messages) for turn_id, messages in islice(turns, TURNS)}:
        originals = load_turns(list(some), session_id=fork.source_id)
        rows = message_queries.load_message_rows(
            fork.source_id, [message.id for messages in some.values() for message in messages]
        )
        with change(fork_id) as record:
            if record.message_seq != copied:
                raise Conflict("another process copies this fork", session_id=fork_id)
            for turn_id, messages in some.items():
                _copy_turn(record, originals[turn_id], messages, rows)
        copied = record.message_seq
        if deadline is not None and time.monotonic() > deadline and copied < fork.messages:
            return False
    _publish_fork(fork.source_id, fork_id, at_message_id=fork.at_message_id)
    return True


def _publish_fork(source_id: str, fork_id: str, *, at_message_id: str = "") -> None:
    with change(source_id) as record:
        record.publish(EventType.SESSION_FORKED, child_id=fork_id, at_message_id=at_message_id)


def _read_messages(source_id: str, *, after: int, until: int) -> Iterator[StoredMessage]:
    while messages := message_queries.load_messages(source_id, after=after, before=until + 1, limit=MESSAGES):
        yield from messages
        after = messages[-1].seq


def _copy_turn(record: Change, original: TurnRecord, messages: list[StoredMessage], rows: dict[str, Any]) -> None:
    turn_id = turn_store.start_turn(record, model=original.model, origin=FORK, created_at=original.created_at)
    for message in messages:
        row = rows[message.id]
        message_store.append_message(
            record,
            turn_id=turn_id,
            message=Message(role=message.role, parts=_parts_of_fork(message), is_summary=message.is_summary),
            agent=row.agent,
            model=row.model,
            external_id=message.id,
            created_at=message.created_at,
            end=None
            if row.finalized_at is None
            else record_of(MessageEnd, row, model="", usage=message_queries.usage_of(row), usage_said=""),
        )
    if original.ended_at is None or len(messages) < len(original.message_ids):
        ended_at = messages[-1].created_at
        turn_store.finish_turn(record, turn_id, state=TurnState.INCOMPLETE, ended_at=ended_at)
        return
    turn_store.finish_turn(
        record,
        turn_id,
        state=TurnState(original.state),
        usage=original.usage,
        error_code=original.error_code,
        error_message=original.error_message,
        ended_at=original.ended_at,
    )


def _parts_of_fork(message: StoredMessage) -> tuple[Part, ...]:
    parts: list[Part] = []
    for part in (stored.part for stored in message.parts):
        if not isinstance(part, ToolPart):
            parts.append(part)
        elif part.state in UNANSWERED_STATES:
            parts.append(replace(part, state=ToolState.ERROR, error=UNANSWERED))
        else:
            parts.append(replace(part, compacted_at=None))
    return tuple(parts)
