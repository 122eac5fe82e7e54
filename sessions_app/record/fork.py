"""Forks: a new session that begins with another one's messages, up to one of them.

A number of turns is one transaction, so that a long fork neither fills the memory nor keeps other writers waiting, and
another process may continue it. An incomplete fork is not visible (``session_queries.visible_sessions``). Summaries,
tombstones and model calls stay with the original: all of its messages are in the fork's context again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, islice
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from mnesis_core.errors import Conflict
from mnesis_core.events import EventType
from mnesis_core.messages import UNANSWERED_STATES, Message, Part, StoredMessage, ToolPart, ToolState
from mnesis_core.records import FORK, MessageEnd, SessionRecord, TurnRecord, TurnState
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.call_queries import usage_of
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import load_message, load_message_rows, load_messages
from sessions_app.record.session_queries import load_forking
from sessions_app.record.turn_queries import load_turns

MESSAGES, TURNS = 500, 100
UNANSWERED = "The session was forked before this tool had answered."


def find_place(session_id: str, *, at_message_id: str | None, before_message_id: str | None) -> StoredMessage | None:
    """Return the last message that a fork has: this one, or the one before that one, or ``None`` if there is none before it.

    :raises MessageNotFoundError: the session has no such message.
    """
    if at_message_id is not None:
        return load_message(at_message_id, session_id=session_id)
    seq = load_message(before_message_id or "", session_id=session_id).seq
    return next(iter(load_messages(session_id, after=seq - 2, before=seq, limit=1)), None)


def begin_fork(source: SessionRecord, *, owner: AbstractBaseUser, last: StoredMessage | None, title: str) -> str:
    """Create a session that is to have another one's messages up to and including one, and return its id.

    The original does not change; its ledger says that it was forked. ``copy_messages`` does the rest.

    :param last: ``None`` copies no message, only the system prompt and settings
    :raises Conflict: the message is still being written.
    """
    if last and last.role == "assistant" and load_message_rows(source.id, [last.id])[last.id].finalized_at is None:
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
        _publish(source.id, fork_id)
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
    originals_left = _messages(fork.source_id, fork.copied, fork.messages)
    turns = groupby(originals_left, key=lambda message: str(message.turn_id))
    copied = fork.copied
    while some := {turn_id: list(messages) for turn_id, messages in islice(turns, TURNS)}:
        originals = load_turns(list(some), session_id=fork.source_id)
        rows = load_message_rows(fork.source_id, [message.id for messages in some.values() for message in messages])
        with change(fork_id) as record:
            if record.message_seq != copied:
                raise Conflict("another process copies this fork", session_id=fork_id)
            for turn_id, messages in some.items():
                _copy_turn(record, originals[turn_id], messages, rows)
        copied = record.message_seq
        if deadline is not None and time.monotonic() > deadline and copied < fork.messages:
            return False
    _publish(fork.source_id, fork_id, at_message_id=fork.at_message_id)
    return True


def _publish(source_id: str, fork_id: str, *, at_message_id: str = "") -> None:
    with change(source_id) as record:
        record.publish(EventType.SESSION_FORKED, child_id=fork_id, at_message_id=at_message_id)


def _messages(source_id: str, after: int, until: int) -> Iterator[StoredMessage]:
    while messages := load_messages(source_id, after=after, before=until + 1, limit=MESSAGES):
        yield from messages
        after = messages[-1].seq


def _copy_turn(record: Change, original: TurnRecord, messages: list[StoredMessage], rows: dict[str, Any]) -> None:
    turn_id = turn_store.start_turn(record, model=original.model, origin=FORK, created_at=original.created_at)
    for message in messages:
        _copy_message(record, turn_id, message, rows[message.id])
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


def _copy_message(record: Change, turn_id: str, message: StoredMessage, row: Any) -> None:
    end = MessageEnd(
        finish_reason=row.finish_reason,
        outcome=row.outcome,
        error_code=row.error_code,
        error_message=row.error_message,
        usage=usage_of(row),
    )
    parts = tuple(_copy_of(stored.part) for stored in message.parts)
    message_store.append_message(
        record,
        turn_id=turn_id,
        message=Message(role=message.role, parts=parts, is_summary=message.is_summary),
        agent=row.agent,
        model=row.model,
        external_id=message.id,
        created_at=message.created_at,
        end=None if row.finalized_at is None else end,
    )


def _copy_of(part: Part) -> Part:
    if not isinstance(part, ToolPart):
        return part
    if part.state in UNANSWERED_STATES:
        return replace(part, state=ToolState.ERROR, error=UNANSWERED)
    return replace(part, compacted_at=None)
