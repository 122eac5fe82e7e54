"""Sessions made of a history that exists already: a foreign transcript, or another session up to a message (a fork).

A transcript is stored with its original times and ids, one transaction per turn. A session is found again by its owner,
origin and external id, a turn by its external id as idempotency key, a message by its external id. So an import that was
cut off continues where it stopped, and a repeated one adds only what is new: after the message that it continues, on a
branch of its own where something else follows that already.

A fork copies a number of turns in one transaction, so that a long one neither fills the memory nor keeps other writers
waiting, and another process may continue it. It is not visible until it is complete (``session_queries.visible_sessions``).
Summaries, tombstones and model calls stay with the original: all of its messages are in the fork's context again. Its facts
are copied by the app that keeps them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, groupby, islice
from typing import Any, NamedTuple

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext_noop

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
from mnesis_core.transcripts.values import (
    LinkKind,
    ParseResult,
    Transcript,
    TranscriptFact,
    TranscriptMessage,
    TranscriptTurn,
)
from sessions_app.record import file_port, message_queries, message_store, session_store, turn_store
from sessions_app.record.branch_queries import last_seqs, path_through
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import PreparedPart
from sessions_app.record.session_queries import Forking, find_imported, forks_of_import, load_forking
from sessions_app.record.turn_queries import load_turns

IMPORT = "import"
KEY_LENGTH = 200
MESSAGES, TURNS = 500, 100  # of a fork, which are read and written at a time
UNANSWERED = "The session was forked before this tool had answered."
Progress = Callable[[int, int], None]  # turns done, turns in all
fact_keepers: list[Callable[[str, Sequence[tuple[TranscriptFact, int]]], int]] = []
"""What ``compaction_app`` plugs in: it writes facts, each with the number of the message that says it, and counts the new ones."""


@dataclass(slots=True, kw_only=True)
class ImportReport:
    sessions: dict[str, str] = field(default_factory=dict)  # session id by external id
    sessions_created: int = 0
    turns_stored: int = 0
    turns_known: int = 0  # stored by an earlier import of the same transcript
    messages_stored: int = 0
    parts_stored: int = 0
    facts_stored: int = 0


def store_transcripts(
    result: ParseResult, *, owner: AbstractBaseUser, model: str, progress: Progress = lambda done, total: None
) -> ImportReport:
    """Store every transcript of a parsed file, and its children, as sessions of ``owner`` that continue with ``model``."""
    report = ImportReport()
    transcripts = [one for transcript in result.transcripts for one in (transcript, *transcript.children)]
    total = sum(len(transcript.turns) for transcript in transcripts)
    for transcript in transcripts:
        imported = find_imported(owner_id=owner.pk, origin=_origin(transcript), external_id=transcript.external_id)
        if imported:
            session_id = imported.id
        else:
            parent_id = report.sessions.get(transcript.parent.transcript_id) if transcript.parent else None
            session_id = _create_imported(transcript, owner=owner, model=model, parent_id=parent_id)
            report.sessions_created += 1
        report.sessions[transcript.external_id] = session_id
        earlier = [session_id, *forks_of_import(session_id, owner_id=owner.pk)] if imported else []
        growth = _Growth(session_id, transcript, earlier=earlier, owner_id=owner.pk)
        for step in growth.plan():
            growth.take(step)
            report.turns_stored += bool(step.messages)
            report.turns_known += not step.messages
            report.messages_stored += len(step.messages)
            report.parts_stored += sum(len(message.parts) for message in step.messages)
            progress(report.turns_stored + report.turns_known, total)
        if said := growth.said(transcript.facts):
            report.facts_stored += sum(keep(session_id, said) for keep in fact_keepers)
    return report


def _create_imported(transcript: Transcript, *, owner: AbstractBaseUser, model: str, parent_id: str | None) -> str:
    parent = transcript.parent
    call_id = parent.tool_call_id if parent else ""
    return session_store.create_session(
        owner=owner,
        model=model,
        title=transcript.title[:KEY_LENGTH],
        agent=IMPORTED_SUB_AGENT if parent and parent.kind is LinkKind.SUB_AGENT else "default",
        system_prompt=transcript.system_prompt,
        labels=transcript.labels | ({"link": parent.kind.value} if parent else {}),
        parent_id=parent_id,
        parent_part_id=message_queries.find_part_of_call(parent_id, call_id) if parent_id and call_id else "",
        origin=_origin(transcript),
        external_id=transcript.external_id[:KEY_LENGTH],
        created_at=transcript.started_at,
    )


def _origin(transcript: Transcript) -> str:
    return f"{IMPORT}:{transcript.format}"


class _Place(NamedTuple):
    """A message of a session; number 0 is before the first one."""

    session_id: str
    branch: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    turn: TranscriptTurn
    key: str
    messages: Sequence[TranscriptMessage]  # those that are not stored yet
    is_last: bool = False  # of those that store any


class _Growth:
    """A session that grows by a transcript, and where each message of that is stored, by this import or an earlier one."""

    def __init__(self, session_id: str, transcript: Transcript, *, earlier: Sequence[str], owner_id: int) -> None:
        """:param earlier: the sessions that earlier imports made of it, forks among them"""
        self._root = self._here = _Place(session_id, 0, 0)
        self._transcript, self._owner_id = transcript, owner_id
        self._turns: dict[str, _Place] = {}  # by key, of the last message
        self._messages: dict[str, _Place] = {}  # by external id
        # Of a session, how many messages it had, and the last number on each branch then.
        self._ends: dict[str, tuple[int, dict[int, int]]] = {}
        for key, external_id, *place in message_queries.load_imported(earlier):
            self._turns[key] = self._messages[_stored_id(external_id)] = _Place._make(place)

    def plan(self) -> list[_Step]:
        """Return every turn with what is new of it. A turn that has gone on since is another one from there."""
        steps: list[_Step] = []
        taken: set[str] = set()
        for place, turn in enumerate(self._transcript.turns):
            # Formats without ids keep their order, so the position identifies a turn as well.
            key = _free_key(_stored_id(turn.external_id), place, taken)
            new = [message for message in turn.messages if not self._is_stored(message, key)]
            if new and key in self._turns:
                key = _free_key(_stored_id(new[0].external_id), place, taken | self._turns.keys())
            taken.add(key)
            steps.append(_Step(turn=turn, key=key, messages=new))
        last = max((place for place, step in enumerate(steps) if step.messages), default=-1)
        return [replace(step, is_last=place == last) for place, step in enumerate(steps)]

    def _is_stored(self, message: TranscriptMessage, key: str) -> bool:
        return _stored_id(message.external_id) in self._messages if message.external_id else key in self._turns

    def said(self, facts: Sequence[TranscriptFact]) -> list[tuple[TranscriptFact, int]]:
        """Return those facts of which this session has the message, each with its number."""
        places = [(fact, self._messages.get(_stored_id(fact.message_id))) for fact in facts]
        return [(fact, place.seq) for fact, place in places if place and place.session_id == self._root.session_id]

    def take(self, step: _Step) -> None:
        """Store what is new of a turn, which the next one then continues."""
        if step.turn.continues:
            self._here = self._messages.get(_stored_id(step.turn.continues), self._root)
        for message in step.turn.messages:
            if step.messages and message is step.messages[0]:
                self._store(step)
            where = self._messages.get(_stored_id(message.external_id)) if message.external_id else None
            self._here = where or self._turns.get(step.key, self._here)

    def _store(self, step: _Step) -> None:
        files: dict[str, file_port.PreparedFile] = {}
        for file in chain.from_iterable(message.files for message in step.messages):
            path = file.name or f"imported/{file.source.rpartition(':')[2][:16]}{SUFFIXES.get(file.media_type, '')}"
            files[file.source] = file_port.prepare_file(
                file.data, owner_id=self._owner_id, path=path, file_id=new_id("file")
            )
        ready = [
            message_queries.prepare_parts(_with_file(part, files) for part in message.parts)
            for message in step.messages
        ]
        with change(self._here.session_id) as record:
            ends = self._go_on(record)
            for prepared in files.values():
                file_port.add_file(record, prepared)
            _write_turn(record, step, ready)
            for seq, message in enumerate(step.messages, record.message_seq - len(step.messages) + 1):
                self._here = self._messages[_stored_id(message.external_id)] = _Place(
                    record.session_id, record.branch, seq
                )
            self._turns[step.key] = self._here
            ends[record.branch] = record.message_seq
            self._ends[record.session_id] = record.message_seq, ends
            if step.is_last and not self._transcript.is_line:
                chosen = self._messages.get(_stored_id(self._transcript.chosen), self._here)
                if chosen.session_id == record.session_id:
                    session_store.choose_branch(record, chosen.branch)

    def _go_on(self, record: Change) -> dict[int, int]:
        """Choose the branch that ends with the message to be continued, or begin one after it; a line goes on at its end.

        Return the last number on each branch.
        """
        messages, ends = self._ends.get(record.session_id, (0, {0: 0}))
        if messages != record.message_seq:
            ends = last_seqs(record.session_id)
        if self._transcript.is_line and not record.branch_seq:
            return ends
        _, branch, seq = self._here
        if ends.get(branch, 0) != seq:
            branch = session_store.begin_branch(record, parent=branch, after_seq=seq)
        session_store.choose_branch(record, branch)
        return ends


def _write_turn(record: Change, step: _Step, ready: Sequence[Sequence[PreparedPart]]) -> None:
    messages = step.messages
    turn_id = turn_store.start_turn(
        record,
        model=next((message.model for message in reversed(messages) if message.model), ""),
        origin=IMPORT,
        idempotency_key=step.key,
        created_at=messages[0].created_at,
    )
    for message, parts in zip(messages, ready, strict=True):
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
    usage, ended_at = _sum_usages(messages), messages[-1].created_at
    turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED, usage=usage, ended_at=ended_at)


def _stored_id(external_id: str) -> str:
    return encode_text(external_id)[:KEY_LENGTH]


def _free_key(name: str, place: int, taken: Collection[str]) -> str:
    names = (*([name] if name else []), f"#{place}")
    return next(each for each in chain(names, (f"#{place}.{n}" for n in count(2))) if each not in taken)


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


def find_place(
    source: SessionRecord, *, at_message_id: str | None, before_message_id: str | None
) -> StoredMessage | None:
    """Return the last message that a fork has: this one, or the one before that one, or ``None`` if there is none before it.

    :raises MessageNotFoundError: the session has no such message.
    """
    message = message_queries.load_message(at_message_id or before_message_id or "", session_id=source.id)
    if at_message_id is not None:
        return message
    path = path_through(source, message.id)
    before = message_queries.load_messages(source.id, before=message.seq, limit=1, newest=True, path=path)
    return before[0] if before else None


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
        raise Conflict(
            gettext_noop("this message is still being written; fork at an earlier one, or wait"), message_id=last.id
        )
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
        project_id=source.project_id,
        assistant_version_id=source.assistant_version_id,
        assistant_instructions=source.assistant_instructions,
    )
    if last is None:
        _publish_fork(source.id, fork_id)
    return fork_id


def copy_messages(
    fork_id: str,
    *,
    deadline: float | None = None,
    at_end: Callable[[Change, Forking], None] = lambda record, fork: None,
) -> bool:
    """Copy what a fork does not have yet and return whether it is complete.

    :param at_end: writes what else it begins with, in the change that completes it
    :param deadline: seconds of the monotonic clock after which to stop between two transactions
    :raises Conflict: another process copies it at the same time.
    """
    fork = load_forking(fork_id)
    if fork.is_whole:
        return True
    # The messages of a turn are consecutive on a path, because a session runs one turn at a time.
    left = _read_messages(fork)
    turns = groupby(left, key=lambda message: str(message.turn_id))
    copied = fork.copied
    while some := {turn_id: list(messages) for turn_id, messages in islice(turns, TURNS)}:
        originals = load_turns(list(some), session_id=fork.source_id)
        rows = message_queries.load_message_rows(
            fork.source_id, [message.id for messages in some.values() for message in messages]
        )
        with change(fork_id) as record:
            if record.message_seq != copied:
                raise Conflict(gettext_noop("another process copies this fork"), session_id=fork_id)
            for turn_id, messages in some.items():
                is_last = messages[-1].id == fork.at_message_id and fork.messages < fork.last_seq
                key = fork.at_message_id if is_last else None
                _copy_turn(record, originals[turn_id], messages, rows, key=key)
            if record.message_seq >= fork.messages:
                at_end(record, fork)
        copied = record.message_seq
        if deadline is not None and time.monotonic() > deadline and copied < fork.messages:
            return False
    _publish_fork(fork.source_id, fork_id, at_message_id=fork.at_message_id)
    return True


def _publish_fork(source_id: str, fork_id: str, *, at_message_id: str = "") -> None:
    with change(source_id) as record:
        record.publish(EventType.SESSION_FORKED, child_id=fork_id, at_message_id=at_message_id)


def _read_messages(fork: Forking) -> Iterator[StoredMessage]:
    after, end = fork.after_seq, fork.last_seq + 1
    while messages := message_queries.load_messages(
        fork.source_id, after=after, before=end, limit=MESSAGES, path=fork.path
    ):
        yield from messages
        after = messages[-1].seq


def _copy_turn(
    record: Change, original: TurnRecord, messages: list[StoredMessage], rows: dict[str, Any], *, key: str | None
) -> None:
    turn_id = turn_store.start_turn(
        record, model=original.model, origin=FORK, idempotency_key=key, created_at=original.created_at
    )
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
            else record_of(
                MessageEnd,
                row,
                model="",
                usage=message_queries.usage_of(row),
                usage_said="",
                stop_sequence=None,
                first_token_ms=None,
                tokens_cache_write_1h=None,
            ),
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
