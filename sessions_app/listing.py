"""Lists of the record as every door shows them: a page of items, and where the next one begins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ninja import Schema

from mnesis_core.errors import InvalidRequest
from sessions_app import queries
from sessions_app.schemas import (
    CallOut,
    EventOut,
    MessageOut,
    SessionOut,
    TurnOut,
    call_out,
    event_out,
    message_out,
    session_out,
    turn_out,
)


class SessionList(Schema):
    """A page of sessions."""

    items: list[SessionOut]
    next_cursor: str | None


class TurnList(Schema):
    """A page of turns."""

    items: list[TurnOut]
    next_cursor: int | None


class MessageList(Schema):
    """A page of messages."""

    items: list[MessageOut]
    next_cursor: int | None


class CallList(Schema):
    """A page of model calls."""

    items: list[CallOut]
    next_cursor: str | None


class EventList(Schema):
    """A page of events."""

    items: list[EventOut]
    next_cursor: int | None


def session_page(
    *,
    owner_id: int,
    archived: bool | None,
    label: str | None,
    q: str,
    parent_id: str | None,
    sub_agents: bool | None = None,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """Sessions of a person, the latest first; ``label`` is ``key=value``, ``q`` a word of the title.

    :raises InvalidRequest: the label or the cursor is none.
    """
    rows = queries.list_sessions(
        owner_id=owner_id,
        archived=archived,
        label=_label(label),
        query=q,
        parent_id=parent_id,
        sub_agents=sub_agents,
        before=read_place(cursor),
        limit=limit + 1,
    )
    page = rows[:limit]
    more = len(rows) > limit
    return {
        "items": [session_out(session) for session in page],
        "next_cursor": place_of(page[-1].updated_at, page[-1].id) if more else None,
    }


def turn_page(session_id: str, *, owner_id: int, limit: int, cursor: int | None) -> dict[str, Any]:
    """Turns of a session, newest first.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    """
    queries.load_session(session_id, owner_id=owner_id)
    rows = queries.list_turns(session_id, before_seq=cursor, limit=limit + 1)
    return {
        "items": [turn_out(turn) for turn in rows[:limit]],
        "next_cursor": rows[limit - 1].seq if len(rows) > limit else None,
    }


def message_page(session_id: str, *, owner_id: int, after: int, limit: int) -> dict[str, Any]:
    """Messages with all their parts, oldest first.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    """
    queries.load_session(session_id, owner_id=owner_id)
    messages = queries.load_messages(session_id, after=after, limit=limit + 1)
    rows = queries.load_message_rows(session_id, [message.id for message in messages])
    return {
        "items": [message_out(message, rows[message.id]) for message in messages[:limit]],
        "next_cursor": messages[limit - 1].seq if len(messages) > limit else None,
    }


def call_page(session_id: str, *, owner_id: int, limit: int, cursor: str | None) -> dict[str, Any]:
    """Model calls of a session, newest first.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises InvalidRequest: the cursor is none.
    """
    queries.load_session(session_id, owner_id=owner_id)
    rows = queries.list_calls(session_id, before=read_place(cursor), limit=limit + 1)
    return {
        "items": [call_out(call) for call in rows[:limit]],
        "next_cursor": place_of(rows[limit - 1].created_at, rows[limit - 1].id) if len(rows) > limit else None,
    }


def event_page(session_id: str, *, owner_id: int, after: int, limit: int) -> dict[str, Any]:
    """Events after ``after``, in order.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    """
    queries.load_session(session_id, owner_id=owner_id)
    events = queries.load_events(session_id, after=after, limit=limit + 1)
    return {
        "items": [event_out(event) for event in events[:limit]],
        "next_cursor": events[limit - 1].seq if len(events) > limit else None,
    }


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    key, equals, value = text.partition("=")
    if not key.isidentifier() or "__" in key or not equals:
        raise InvalidRequest("label must look like key=value, with a key of letters, digits and _", field="label")
    return key, value


def place_of(time: datetime, id: str) -> str:
    """The cursor of a page that ends with the row of this time and id: two rows may have the same time."""
    return f"{time.isoformat()}~{id}"


def read_place(cursor: str | None) -> tuple[datetime, str] | None:
    """The time, in UTC, and the id that a cursor is.

    :raises InvalidRequest: it is none.
    """
    if cursor is None:
        return None
    time, _, id = cursor.partition("~")
    return _time(time), id


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text.replace(" ", "+"))
        if time.tzinfo is not None:
            return time.astimezone(UTC)  # a time that UTC cannot say is refused here, not by the database
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest("cursor must be the next_cursor of the page before", field="cursor")
