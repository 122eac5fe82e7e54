"""The only writer of messages, parts, the context and the stream journal: rows are appended, then finished once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from mnesis_core import errors
from mnesis_core.events import EventType
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import UNANSWERED_STATES, Part, ShownPart, ToolState
from mnesis_core.messages import Message as MessageValue
from mnesis_core.records import MessageEnd, Thumb, new_id
from mnesis_core.text import decode_text
from sessions_app.database.tables import ROWS_A_STATEMENT, Table, run
from sessions_app.models import ContextItem, Message, MessagePart, Rating, StreamJournal
from sessions_app.record import hub
from sessions_app.record.change import Change, change
from sessions_app.record.context_queries import standing_items
from sessions_app.record.message_queries import PreparedPart, end_columns, prepare_parts, usage_columns
from sessions_app.record.turn_store import require_turn_of_session
from sessions_app.search import index as search_index

# ruff: noqa: S608 - names in these statements are constants; ids are passed as values.

_MESSAGES, _PARTS, _CONTEXT_ITEMS = Table(Message), Table(MessagePart), Table(ContextItem)
_RATINGS = Table(Rating)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    part_index: int
    part_type: str
    offset: int  # characters of the part before this piece
    text: str


def append_message(
    record: Change,
    *,
    turn_id: str,
    message: MessageValue,
    parts: Sequence[PreparedPart] | None = None,
    agent: str = "default",
    model: str = "",
    external_id: str = "",
    created_at: datetime | None = None,
    end: MessageEnd | None = None,
    message_id: str | None = None,
    call_id: str | None = None,
) -> str:
    """Append a message with its parts, put it into the active context and return its id.

    :param parts: the message's parts if they were prepared before
    :param end: writes the message finished (an import, a recorded turn); without it an assistant's message is a stub until
        ``finalize_message``
    :param message_id: its id, if it was made before
    :param call_id: the call whose answer it is to be, written just before (``turn_store.add_call``)
    :raises TurnNotFoundError: the session has no such turn.
    """
    require_turn_of_session(record, turn_id)
    row = _MESSAGES.row(
        id=message_id or new_id("msg"),
        session_id=record.session_id,
        turn_id=turn_id,
        seq=record.next_message_seq(),
        branch=record.branch,
        role=message.role,
        agent=agent,
        model=model,
        is_summary=message.is_summary,
        external_id=external_id,
        created_at=created_at or record.now,
        recorded_at=record.now,
        **({} if end is None else end_columns(end) | {"finalized_at": created_at or record.now}),
    )
    record.insert(_MESSAGES, row)
    _write_with_parts(record, row, prepare_parts(message.parts) if parts is None else parts, call_id)
    if end is not None:
        record.publish(EventType.MESSAGE_FINALIZED, message_id=row.id, **_numbers(end))
    return str(row.id)


def _write_with_parts(record: Change, row: SimpleNamespace, parts: Sequence[PreparedPart], call_id: str | None) -> None:
    rows = [_part_row(record, row.id, index, part) for index, part in enumerate(parts)]
    record.insert(_PARTS, *rows)
    for part, part_row in zip(parts, rows, strict=True):
        record.texts += part.texts_of(part_row.id, row.seq)
    seq = record.publish(
        EventType.MESSAGE_CREATED,
        message_id=row.id,
        message_seq=row.seq,
        turn_id=row.turn_id,
        role=row.role,
        in_context=True,
        parts=[_outline(part_row) for part_row in rows],
        **_on(row.branch),
        **_of_call(call_id),
    )
    what = {"item_type": "message", "item_id": row.id, "branch": row.branch, "position": row.seq}
    record.insert(_CONTEXT_ITEMS, _CONTEXT_ITEMS.row(session_id=record.session_id, added_seq=seq, **what))


def append_parts(record: Change, *, message_id: str, parts: Sequence[Part | PreparedPart]) -> list[str]:
    """:raises MessageNotFoundError: the session has no such message."""
    found = record.find(_MESSAGES, "seq", id=message_id, session_id=record.session_id)
    if found is None:
        raise errors.MessageNotFoundError(message_id=message_id)
    [first] = record.find(_PARTS, "COUNT(*)", message_id=message_id) or (0,)
    written = []
    for index, part in enumerate(prepare_parts(parts)):
        row = _part_row(record, message_id, first + index, part)
        record.insert(_PARTS, row)
        record.texts += part.texts_of(row.id, found[0])
        record.publish(EventType.PART_CREATED, message_id=message_id, **_outline(row))
        written.append(row.id)
    return written


def finalize_message(record: Change, message_id: str, end: MessageEnd, *, call_id: str | None = None) -> None:
    """:param call_id: the call that ended with it, written just before (``turn_store.end_call``)
    :raises MessageNotFoundError: the session has no such message.
    :raises ImmutableFieldError: it is already finalised.
    """
    values = end_columns(end) | {"finalized_at": record.now}
    if not record.update(_MESSAGES, values, id=message_id, session_id=record.session_id, finalized_at=None):
        if record.find(_MESSAGES, "id", id=message_id, session_id=record.session_id):
            raise errors.ImmutableFieldError(
                gettext_noop("message %(message_id)s is finalised already"),
                {"message_id": message_id},
                message_id=message_id,
            )
        raise errors.MessageNotFoundError(message_id=message_id)
    record.publish(EventType.MESSAGE_FINALIZED, message_id=message_id, **_numbers(end), **_of_call(call_id))


def start_tool(record: Change, part_id: str) -> None:
    """:raises PartNotFoundError: no such part is waiting in this session."""
    values = {"tool_state": ToolState.RUNNING.value, "started_at": record.now}
    waiting = (ToolState.PENDING, ToolState.APPROVED)
    if not any(record.update(_PARTS, values, **_tool(record, part_id), tool_state=state) for state in waiting):
        raise errors.PartNotFoundError(gettext_noop("no such tool call is waiting"), part_id=part_id)
    record.publish(EventType.PART_STATE_CHANGED, part_id=part_id, state=ToolState.RUNNING.value)


def decide_approval(record: Change, part_id: str, *, turn_id: str, approved: bool, note: str, refusal: str) -> None:
    """Record a person's decision on a waiting tool call: it may run, or ``refusal`` is its result.

    :raises PartNotFoundError: no such part is waiting in this session.
    """
    tool = _tool(record, part_id)
    if record.find(_PARTS, "id", **tool, tool_state=ToolState.PENDING) is None:
        raise errors.PartNotFoundError(gettext_noop("no such tool call is waiting"), part_id=part_id)
    values: dict[str, Any] = {"decision_note": note} if note else {}
    if approved:
        values["tool_state"] = ToolState.APPROVED.value
    if values:
        record.update(_PARTS, values, **tool)
    record.publish(EventType.APPROVAL_DECIDED, turn_id=turn_id, part_id=part_id, approved=approved)
    if approved:
        record.publish(EventType.PART_STATE_CHANGED, part_id=part_id, state=ToolState.APPROVED.value)
    else:
        finish_tool(record, part_id, output=None, error=refusal)


def finish_tool(record: Change, part_id: str, *, output: str | None, error: str | None) -> None:
    """Record a tool's result, once: ``output``, or ``error`` if it failed.

    :raises PartNotFoundError: the session has no such part.
    :raises ImmutableFieldError: it already has a result.
    """
    tool = _tool(record, part_id)
    found = record.find(_PARTS, "tool_state", **tool)
    if found is None:
        raise errors.PartNotFoundError(part_id=part_id)
    if found[0] not in UNANSWERED_STATES:
        raise errors.ImmutableFieldError(
            gettext_noop("tool call %(part_id)s has its result already"), {"part_id": part_id}, part_id=part_id
        )
    state = ToolState.COMPLETED if error is None else ToolState.ERROR
    values: dict[str, Any] = {
        "output": output,
        "error_message": error,
        "tool_state": state.value,
        "completed_at": record.now,
        "output_token_estimate": estimate_text(output or error or ""),
    }
    record.update(_PARTS, values, **tool)
    search_index.add_result(record, part_id, output=output, error_message=error)
    record.publish(EventType.PART_STATE_CHANGED, part_id=part_id, state=state.value)


def add_to_result(record: Change, part_id: str, part: ShownPart, file_id: str) -> ShownPart:
    """Append what a call gave back beside its text, a file of the session, to the call's message; return the part.

    :raises PartNotFoundError: the session has no such call.
    """
    found = record.find(_PARTS, "message_id", "tool_call_id", **_tool(record, part_id))
    if found is None:
        raise errors.PartNotFoundError(part_id=part_id)
    whole = replace(part, file_id=file_id, tool_call_id=decode_text(found[1]))
    append_parts(record, message_id=found[0], parts=[whole])
    return whole


def keep_late_output(record: Change, part_id: str, output: str) -> bool:
    """Keep the answer of a tool whose call had already been closed; return False if the call has no place for it.

    It changes no prompt: a model sees how the call was closed.
    """
    values = {"late_output": output}
    if not record.update(_PARTS, values, **_tool(record, part_id), tool_state=ToolState.ERROR, late_output=None):
        return False
    record.publish(EventType.PART_ANSWERED_LATE, part_id=part_id)
    return True


def tombstone_parts(record: Change, part_ids: Sequence[str]) -> int:
    """Take tool outputs out of the context but not out of the record, and return how many were not tombstones yet.

    :raises PartNotFoundError: one of them is not a tool call of the session.
    """
    values = {"compacted_at": record.now, "compacted_seq": record.next_seq}
    chosen: list[tuple[str, str]] = []
    for start in range(0, len(part_ids), 1000):  # SQLite allows 32,766 variables in one statement
        some = part_ids[start : start + 1000]
        rows = MessagePart.objects.filter(id__in=some, session_id=record.session_id, part_type="tool")
        found = {id: (salt, at) for id, salt, at in rows.values_list("id", "salt", "compacted_at")}
        missing = next((id for id in some if id not in found), None)
        if missing is not None:
            raise errors.PartNotFoundError(part_id=missing)
        rows.filter(compacted_at__isnull=True).update(**values)
        chosen += sorted((id, salt) for id, (salt, at) in found.items() if at is None)
    for part_id, salt in chosen:
        record.bind(_PARTS, values, id=part_id, salt=salt)
    if chosen:
        record.publish(EventType.PART_COMPACTED, part_ids=[part_id for part_id, _ in chosen])
    return len(chosen)


def swap_context_items(
    record: Change, *, removed_ids: Sequence[str], summary_id: str, branch: int | None = None
) -> int:
    """Replace items by one summary at the place of the first of them and return the event's ``seq``.

    :param branch: the one in whose context they stand; ``None`` for a revision, which stands for the same as its only source
    :raises ContextChanged: one of them has left the context, so another summary already stands for it.
    """
    seq = record.next_seq
    record.flush()
    is_tree = record.branch_seq > 0
    if (
        is_tree
        and branch is not None
        and not standing_items(record.session_id, removed_ids, branch=branch).issuperset(removed_ids)
    ):
        raise errors.ContextChanged(session_id=record.session_id)
    # In a tree an item may have left the context of another branch before, and keeps the event of then.
    changes, where = (
        ("removed_seq = COALESCE(removed_seq, %s)", "") if is_tree else ("removed_seq = %s", " AND removed_seq IS NULL")
    )
    found: list[tuple[int, int, int]] = []
    for start in range(0, len(removed_ids), ROWS_A_STATEMENT):
        some = removed_ids[start : start + ROWS_A_STATEMENT]
        statement = (
            f"UPDATE {_CONTEXT_ITEMS.name} SET {changes} WHERE session_id = %s{where}"
            f" AND item_id IN ({', '.join(['%s'] * len(some))}) RETURNING COALESCE(until, position), position, branch"
        )
        found += run(record.cursor, statement, [seq, record.session_id, *some]).fetchall()
    if len(found) != len(set(removed_ids)) or not found:
        raise errors.ContextChanged(session_id=record.session_id)
    until, _, branch = max(found)
    first = min(position for _, position, _ in found)
    item = _CONTEXT_ITEMS.row(
        session_id=record.session_id,
        item_type="summary",
        item_id=summary_id,
        branch=branch,
        position=first,
        until=until,
        added_seq=seq,
    )
    record.insert(_CONTEXT_ITEMS, item)
    return record.publish(
        EventType.CONTEXT_CHANGED, added=[summary_id], removed=sorted(removed_ids), position=first, **_on(branch)
    )


def complete_context_items(session_id: str, ends: Mapping[str, int]) -> None:
    """Say of summaries in a context, by id, which message each of them ends with: an older export does not."""
    items = ContextItem.objects.filter(session_id=session_id, item_type="summary", until__isnull=True)
    for item_id in items.values_list("item_id", flat=True):
        ContextItem.objects.filter(session_id=session_id, item_id=item_id).update(until=ends.get(item_id))


def append_journal(*, session_id: str, message_id: str, pieces: list[Piece], is_retry: bool = False) -> None:
    """Make pieces of a running answer durable.

    :param is_retry: some of them may already be stored: an earlier call broke off, perhaps after its commit
    :raises Conflict: the message is finalised: another process ended the turn while this one was suspended.
    """
    # Under the session's lock, so that recovery either folds these pieces or has already finalised the message.
    with change(session_id) as record:
        if not Message.objects.filter(id=message_id, session_id=session_id, finalized_at__isnull=True).exists():
            raise errors.Conflict(
                gettext_noop("this answer has ended already, or was taken over"), message_id=message_id
            )
        stored = StreamJournal.objects.filter(message_id=message_id).values_list("part_index", "offset")
        written = frozenset(stored) if is_retry else frozenset()
        StreamJournal.objects.bulk_create(
            [
                StreamJournal(
                    session_id=session_id,
                    message_id=message_id,
                    part_index=piece.part_index,
                    part_type=piece.part_type,
                    offset=piece.offset,
                    text=piece.text,
                )
                for piece in pieces
                if (piece.part_index, piece.offset) not in written
            ]
        )
        hub.announce(record.cursor, session_id)
        transaction.on_commit(lambda: hub.wake(session_id))


def delete_journal(*, message_id: str) -> None:
    """Delete pieces that were folded into parts, in the same transaction. It is the only deletion in the record."""
    StreamJournal.objects.filter(message_id=message_id).delete()


def _on(branch: int) -> dict[str, int]:
    return {"branch": branch} if branch else {}


def _tool(record: Change, part_id: str) -> dict[str, Any]:
    return {"id": part_id, "session_id": record.session_id, "part_type": "tool"}


def _part_row(record: Change, message_id: str, index: int, part: PreparedPart) -> SimpleNamespace:
    return _PARTS.stored_row(
        id=new_id("part"),
        message_id=message_id,
        session_id=record.session_id,
        part_index=index,
        **part.columns,
    )


def _outline(row: SimpleNamespace) -> dict[str, Any]:
    outline = {"part_id": row.id, "part_index": row.part_index, "part_type": row.part_type}
    return outline if row.tool_state is None else outline | {"state": row.tool_state}


def _of_call(call_id: str | None) -> dict[str, str]:
    return {} if call_id is None else {"call_id": call_id}


def _numbers(end: MessageEnd) -> dict[str, Any]:
    return {"outcome": end.outcome, "error_code": end.error_code, **usage_columns(end.usage)}


def rate_message(record: Change, message_id: str, *, thumb: Thumb, comment: str = "") -> str:
    """Write what the session's owner says of a message, which the caller knows to be one of its answers, and return the rating's id."""
    row = _RATINGS.row(
        id=new_id("rating"),
        session_id=record.session_id,
        message_id=message_id,
        thumb=thumb.value,
        comment=comment,
        rated_seq=record.next_seq,
        created_at=record.now,
    )
    record.insert(_RATINGS, row)
    record.publish(EventType.MESSAGE_RATED, rating_id=row.id, message_id=message_id, thumb=thumb.value)
    return str(row.id)
