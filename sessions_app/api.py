"""The record at the REST door: reads only. Whoever asks sees their own sessions and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Router, Schema
from pydantic import Field

from mnesis_core.errors import InvalidRequest
from sessions_app import queries
from sessions_app.asking import owner_id
from sessions_app.follow import follow
from sessions_app.schemas import (
    CallOut,
    ErrorOut,
    EventOut,
    MessageOut,
    TurnOut,
    call_out,
    event_out,
    message_out,
    turn_out,
)

router = Router(tags=["record"])

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut}
Place = Annotated[int, Field(ge=0, le=2**53)]
Limit = Annotated[int, Field(ge=1, le=500)]


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


@router.get("/sessions/{session_id}/turns/{turn_id}", response={200: TurnOut, **ERRORS}, summary="Read a turn")
def read_turn(request: HttpRequest, session_id: str, turn_id: str) -> dict[str, Any]:
    """One turn with its state, messages, usage and cost."""
    queries.load_session(session_id, owner_id=owner_id(request))
    return turn_out(queries.load_turn(turn_id, session_id=session_id))


@router.get("/sessions/{session_id}/messages", response={200: MessageList, **ERRORS}, summary="Read the record")
def list_messages(request: HttpRequest, session_id: str, after: Place = 0, limit: Limit = 100) -> dict[str, Any]:
    """Messages with all their parts, oldest first; tombstoned outputs with their originals."""
    queries.load_session(session_id, owner_id=owner_id(request))
    messages = queries.load_messages(session_id, after=after, limit=limit + 1)
    rows = queries.load_message_rows(session_id, [message.id for message in messages])
    return {
        "items": [message_out(message, rows[message.id]) for message in messages[:limit]],
        "next_cursor": messages[limit - 1].seq if len(messages) > limit else None,
    }


@router.get("/sessions/{session_id}/calls", response={200: CallList, **ERRORS}, summary="List model calls")
def list_calls(request: HttpRequest, session_id: str, limit: Limit = 50, cursor: str | None = None) -> dict[str, Any]:
    """Model calls of a session, newest first, each with the manifest of what the model saw."""
    queries.load_session(session_id, owner_id=owner_id(request))
    rows = queries.list_calls(session_id, before=None if cursor is None else parse_time(cursor), limit=limit + 1)
    return {
        "items": [call_out(call) for call in rows[:limit]],
        "next_cursor": rows[limit - 1].created_at.isoformat() if len(rows) > limit else None,
    }


@router.get("/sessions/{session_id}/events", response={200: EventList, **ERRORS}, summary="Read or follow the ledger")
def list_events(request: HttpRequest, session_id: str, after: Place = 0, limit: Limit = 500) -> Any:
    """Events after ``after`` in order. With ``Accept: text/event-stream`` they go on live, with the answer's text."""
    queries.load_session(session_id, owner_id=owner_id(request))
    if wants_stream(request):
        last = request.headers.get("Last-Event-ID", "")
        return event_stream(follow(session_id, after=int(last) if last.isdecimal() and len(last) < 16 else after))
    events = queries.load_events(session_id, after=after, limit=limit + 1)
    return {
        "items": [event_out(event) for event in events[:limit]],
        "next_cursor": events[limit - 1].seq if len(events) > limit else None,
    }


def wants_stream(request: HttpRequest) -> bool:
    """Whether the client asked for server-sent events."""
    return "text/event-stream" in request.headers.get("Accept", "")


def event_stream(frames: AsyncIterator[dict[str, Any]]) -> StreamingHttpResponse:
    """Frames as server-sent events (HTML standard 9.2); an event's ``seq`` is its id, for ``Last-Event-ID``."""
    return StreamingHttpResponse(
        _lines(frames),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _lines(frames: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    try:
        async for frame in frames:
            identity = f"id: {frame['seq']}\n" if "data" in frame else ""
            yield f"{identity}event: {frame['type']}\ndata: {json.dumps(frame)}\n\n"
    except Exception:
        # A server may leave the connection of a failed generator open for ever.
        yield 'event: error\ndata: {"type": "error", "error": {"code": "INTERNAL_ERROR", "message": "reconnect"}}\n\n'


def parse_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise InvalidRequest("cursor must be the next_cursor of the page before", field="cursor") from None
    if time.tzinfo is None:
        raise InvalidRequest("cursor must be the next_cursor of the page before", field="cursor")
    return time
