"""Reads of messages with their parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from django.db import connection
from django.db.models import F, OuterRef, QuerySet, Subquery

from mnesis_core.errors import MessageNotFoundError, PartNotFoundError
from mnesis_core.messages import UNANSWERED_STATES, StoredMessage, StoredPart
from mnesis_core.records import LiveText, PartPlace
from mnesis_core.text import encode_text
from sessions_app.database.tables import fetch, select_columns
from sessions_app.models import ContextItem, Message, MessagePart, StreamJournal
from sessions_app.record import hub
from sessions_app.record.rows import MESSAGE_COLUMNS, PART_COLUMNS, messages_of, part_of

# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

_STATES = ", ".join(["%s"] * len(UNANSWERED_STATES))
_OPEN = (
    "SELECT 1 FROM model_calls WHERE turn_id = %s AND state = 'running'"
    " UNION ALL SELECT 1 FROM messages WHERE turn_id = %s AND role = 'assistant' AND finalized_at IS NULL"
    " UNION ALL SELECT 1 FROM messages m JOIN message_parts p ON p.message_id = m.id"
    f" WHERE m.turn_id = %s AND p.part_type = 'tool' AND p.tool_state IN ({_STATES}) LIMIT 1"
)
_ITEM = ContextItem.objects.filter(session_id=OuterRef("session_id"), item_id=OuterRef("message_id"))


def load_messages(
    session_id: str, *, after: int = 0, before: int | None = None, limit: int = 100, newest: bool = False
) -> list[StoredMessage]:
    """Return messages with parts, oldest first, in one query; with ``newest`` the last ones of the range."""
    until, values = ("", []) if before is None else (" AND seq < %s", [before])
    chosen = (
        f"SELECT * FROM messages WHERE session_id = %s AND seq > %s{until}"
        f" ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT %s"
    )
    return list(messages_of(fetch(_with_parts(f"({chosen})"), [session_id, after, *values, limit])))


def load_messages_since(message_id: str, *, session_id: str, limit: int = 100) -> list[StoredMessage]:
    """Return messages with parts strictly after this one, oldest first, in two queries.

    :raises MessageNotFoundError: the session has no such message.
    """
    return load_messages(session_id, after=seq_of_message(message_id, session_id=session_id), limit=limit)


def seq_of_message(message_id: str, *, session_id: str) -> int:
    """:raises MessageNotFoundError: the session has no such message."""
    rows = Message.objects.filter(id=message_id, session_id=session_id)
    seq = rows.values_list("seq", flat=True).first()
    if seq is None:
        raise MessageNotFoundError(message_id=message_id)
    return int(seq)


def seqs_of_session(session_id: str) -> dict[str, int]:
    return dict(Message.objects.filter(session_id=session_id).values_list("id", "seq"))


def load_message(message_id: str, *, session_id: str) -> StoredMessage:
    """Return a message with its parts, in one query.

    :raises MessageNotFoundError: the session has no such message.
    """
    return load_messages_by_ids([message_id], session_id=session_id)[0]


def load_part(part_id: str, *, session_id: str) -> StoredPart:
    """:raises PartNotFoundError: the session has no such part."""
    columns = select_columns(MessagePart, "p", PART_COLUMNS)
    rows = fetch(
        f"SELECT {columns} FROM message_parts p WHERE p.id = %s AND p.session_id = %s",
        [encode_text(part_id), session_id],
    )
    if not rows:
        raise PartNotFoundError(part_id=part_id)
    return part_of(rows[0])


def load_messages_by_ids(ids: Sequence[str], *, session_id: str) -> list[StoredMessage]:
    """Return messages of a session with parts in the order of ``ids``, in one query per thousand.

    :raises MessageNotFoundError: one of them is not in the session.
    """
    found: dict[str, StoredMessage] = {}
    for start in range(0, len(ids), 1000):  # SQLite allows 32,766 variables in one statement
        wanted = [encode_text(id) for id in ids[start : start + 1000]]
        chosen = f"(SELECT * FROM messages WHERE session_id = %s AND id IN ({', '.join(['%s'] * len(wanted))}))"
        found |= {message.id: message for message in messages_of(fetch(_with_parts(chosen), [session_id, *wanted]))}
    missing = next((id for id in ids if id not in found), None)
    if missing is not None:
        raise MessageNotFoundError(message_id=missing)
    return [found[id] for id in ids]


def load_message_rows(session_id: str, ids: Sequence[str]) -> dict[str, Any]:
    """Return the rows of messages by id, for endpoints that show finish reason, usage, outcome and error."""
    found: dict[str, Any] = {}
    for start in range(0, len(ids), 1000):
        found |= Message.objects.filter(session_id=session_id).in_bulk(ids[start : start + 1000])
    return found


def load_part_text(part_id: str) -> LiveText:
    row = MessagePart.objects.only("message_id", "part_index", "part_type", "content").get(id=part_id)
    return LiveText(message_id=row.message_id, part_index=row.part_index, part_type=row.part_type, text=row.content)


def find_part_of_call(session_id: str, tool_call_id: str) -> str:
    """Return the part of a tool call; empty if there is none.

    Of several with this id (some models count anew with each call) it is the newest that left the context, else the newest.
    """
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", tool_call_id=tool_call_id)
    newest = rows.order_by(F("compacted_seq").desc(nulls_last=True), "-message__seq", "-part_index")
    return newest.values_list("id", flat=True).first() or ""


def find_tool_part(part_id: str, *, session_id: str) -> str:
    """Return the state of a tool call.

    :raises PartNotFoundError: the session has no such tool call.
    """
    rows = MessagePart.objects.filter(id=part_id, session_id=session_id, part_type="tool")
    state = rows.values_list("tool_state", flat=True).first()
    if state is None:
        raise PartNotFoundError(part_id=part_id)
    return str(state)


def tombstone_seqs(session_id: str, message_id: str) -> dict[int, list[str]]:
    rows = MessagePart.objects.filter(session_id=session_id, message_id=message_id, compacted_seq__isnull=False)
    found: dict[int, list[str]] = defaultdict(list)
    for seq, part_id in rows.order_by("compacted_seq", "part_index").values_list("compacted_seq", "id"):
        found[seq or 0].append(part_id)
    return found


def unfinished_messages(turn_id: str) -> list[str]:
    rows = Message.objects.filter(turn_id=turn_id, role="assistant", finalized_at__isnull=True)
    return list(rows.order_by("seq").values_list("id", flat=True))


def leaves_open(turn_id: str) -> bool:
    """Return whether a turn has any call, message or tool that has not ended, in one query instead of three."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [turn_id, turn_id, turn_id, *UNANSWERED_STATES])
        return cursor.fetchone() is not None


def unanswered_tools(turn_id: str) -> list[str]:
    rows = MessagePart.objects.filter(message__turn_id=turn_id, part_type="tool", tool_state__in=UNANSWERED_STATES)
    return list(rows.order_by("message__seq", "part_index").values_list("id", flat=True))


def _with_parts(messages: str) -> str:
    """Return the query for ``messages_of``; ``messages`` is a table, or a query in parentheses."""
    return (
        f"SELECT {select_columns(Message, 'm', MESSAGE_COLUMNS)}, {select_columns(MessagePart, 'p', PART_COLUMNS)}"
        f" FROM {messages} m LEFT JOIN message_parts p ON p.message_id = m.id ORDER BY m.seq, p.part_index"
    )


def places_of_parts(part_ids: Collection[str]) -> dict[str, PartPlace]:
    """Return where parts of any sessions stand (in the context, or out of it and since when), by id, in one query."""
    if not part_ids:
        return {}
    rows = MessagePart.objects.filter(id__in=list(part_ids)).annotate(
        left_seq=Subquery(_ITEM.values("removed_seq")[:1])
    )
    placed = rows.annotate(left_turn=_turn_at("left_seq"), pruned_turn=_turn_at("compacted_seq"))
    columns = placed.values_list("id", "message__created_at", "tool_name", "left_turn", "pruned_turn")
    return {
        id: PartPlace(said_at=said_at, tool_name=name, left_turn=left, pruned_turn=pruned)
        for id, said_at, name, left, pruned in columns
    }


def _turn_at(event_seq: str) -> Subquery:
    """Return the number of the turn that had the session at an event: the one whose message came into the context last."""
    newest = ContextItem.objects.filter(
        session_id=OuterRef(OuterRef("session_id")), item_type="message", added_seq__lte=OuterRef(OuterRef(event_seq))
    ).order_by("-added_seq")
    rows: QuerySet[Message] = Message.objects.filter(id=Subquery(newest.values("item_id")[:1]))
    return Subquery(rows.values("turn__seq")[:1])


def load_live_texts(session_id: str) -> list[LiveText]:
    """Return the running answer so far: from this process if it runs here, otherwise from the journal."""
    here = hub.hub.texts(session_id)
    return journal_texts(session_id) if here is None else here


def journal_texts(session_id: str, *, message_id: str | None = None) -> list[LiveText]:
    rows = StreamJournal.objects.filter(session_id=session_id)
    if message_id is not None:
        rows = rows.filter(message_id=message_id)
    pieces: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for row in rows.order_by("message_id", "part_index", "offset"):
        pieces[row.message_id, row.part_index, row.part_type].append(row.text)
    return [
        LiveText(message_id=id, part_index=index, part_type=kind, text="".join(texts))
        for (id, index, kind), texts in pieces.items()
    ]
