"""Reads of messages with their parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

from mnesis_core.errors import MessageNotFoundError
from mnesis_core.messages import Role, StoredMessage, StoredPart
from mnesis_core.record import LiveText
from mnesis_core.text import decode_text, encode_text
from mnesis_core.tokens import MESSAGE_FRAMING
from sessions_app.models import Message, MessagePart
from sessions_app.rows import part_of


def load_messages(
    session_id: str, *, after: int = 0, before: int | None = None, limit: int = 100, newest: bool = False
) -> list[StoredMessage]:
    """Messages with parts, oldest first, in two queries; with ``newest`` the last ones of the range."""
    rows = Message.objects.filter(session_id=session_id, seq__gt=after)
    if before is not None:
        rows = rows.filter(seq__lt=before)
    chosen = list(rows.order_by("-seq" if newest else "seq")[:limit])
    return _messages(sorted(chosen, key=lambda row: row.seq))


def load_messages_since(message_id: str, *, session_id: str, limit: int = 100) -> list[StoredMessage]:
    """Messages with parts strictly after this one, oldest first, in three queries.

    :raises MessageNotFoundError: the session has no such message.
    """
    return load_messages(session_id, after=seq_of_message(message_id, session_id=session_id), limit=limit)


def seq_of_message(message_id: str, *, session_id: str) -> int:
    """The place of one message in its session.

    :raises MessageNotFoundError: the session has no such message.
    """
    rows = Message.objects.filter(id=encode_text(message_id), session_id=session_id)
    seq = rows.values_list("seq", flat=True).first()
    if seq is None:
        raise MessageNotFoundError(message_id=message_id)
    return int(seq)


def seqs_of_session(session_id: str) -> dict[str, int]:
    """The place of every message of a session, by id."""
    return dict(Message.objects.filter(session_id=session_id).values_list("id", "seq"))


def load_message(message_id: str, *, session_id: str) -> StoredMessage:
    """One message with its parts, in two queries.

    :raises MessageNotFoundError: the session has no such message.
    """
    return load_messages_by_ids([message_id], session_id=session_id)[0]


def load_parts(message_id: str, *, session_id: str) -> list[StoredPart]:
    """The parts of a message in order, in two queries.

    :raises MessageNotFoundError: the session has no such message.
    """
    return list(load_message(message_id, session_id=session_id).parts)


def load_messages_by_ids(ids: Sequence[str], *, session_id: str) -> list[StoredMessage]:
    """Messages of a session with parts in the order of ``ids``, in two queries a thousand.

    :raises MessageNotFoundError: one of them is not in the session.
    """
    found: dict[str, StoredMessage] = {}
    for start in range(0, len(ids), 1000):  # SQLite allows 32,766 variables in one statement
        wanted = [encode_text(id) for id in ids[start : start + 1000]]
        rows = Message.objects.filter(session_id=session_id, id__in=wanted)
        found |= {message.id: message for message in _messages(list(rows))}
    missing = next((id for id in ids if id not in found), None)
    if missing is not None:
        raise MessageNotFoundError(message_id=missing)
    return [found[id] for id in ids]


def load_message_rows(session_id: str, ids: Sequence[str]) -> dict[str, Any]:
    """Finish reason, usage, outcome and error of some messages, by id, for doors that show them."""
    found: dict[str, Any] = {}
    for start in range(0, len(ids), 1000):
        found |= Message.objects.filter(session_id=session_id).in_bulk(ids[start : start + 1000])
    return found


def load_part_text(part_id: str) -> LiveText:
    """The whole text of a part that was streamed."""
    row = MessagePart.objects.only("message_id", "part_index", "part_type", "content").get(id=part_id)
    return LiveText(
        message_id=row.message_id, part_index=row.part_index, part_type=row.part_type, text=decode_text(row.content)
    )


def find_part_of_call(session_id: str, tool_call_id: str) -> str:
    """The part that holds a tool call; empty when there is none."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", tool_call_id=encode_text(tool_call_id))
    return rows.values_list("id", flat=True).first() or ""


def unfinished_messages(turn_id: str) -> list[str]:
    """Assistant messages of a turn that are stubs still."""
    rows = Message.objects.filter(turn_id=turn_id, role="assistant", finalized_at__isnull=True)
    return list(rows.order_by("seq").values_list("id", flat=True))


def unanswered_tools(turn_id: str) -> list[str]:
    """Tool calls of a turn without a result."""
    rows = MessagePart.objects.filter(message__turn_id=turn_id, part_type="tool", tool_state__in=["pending", "running"])
    return list(rows.order_by("message__seq", "part_index").values_list("id", flat=True))


def _messages(rows: list[Message]) -> list[StoredMessage]:
    parts: dict[str, list[StoredPart]] = defaultdict(list)
    for row in MessagePart.objects.filter(message_id__in=[row.id for row in rows]).order_by("message_id", "part_index"):
        tokens = row.token_estimate + (0 if row.output_token_estimate is None else row.output_token_estimate)
        parts[row.message_id].append(
            StoredPart(id=row.id, index=row.part_index, part=part_of(row), token_estimate=tokens)
        )
    return [_message(row, tuple(parts[row.id])) for row in rows]


def _message(row: Message, parts: tuple[StoredPart, ...]) -> StoredMessage:
    return StoredMessage(
        id=row.id,
        seq=row.seq,
        turn_id=row.turn_id,
        role=cast(Role, row.role),
        parts=parts,
        created_at=row.created_at,
        is_summary=row.is_summary,
        token_estimate=MESSAGE_FRAMING + sum(part.token_estimate for part in parts),
    )
