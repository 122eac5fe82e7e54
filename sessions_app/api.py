"""The record at the REST door: reads only. Whoever asks sees their own sessions and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Router

from sessions_app import queries
from sessions_app.asking import owner_id
from sessions_app.faults import as_error
from sessions_app.follow import follow
from sessions_app.listing import CallList, EventList, MessageList, call_page, event_page, message_page
from sessions_app.schemas import ErrorOut, Limit, Place, TurnOut, turn_out
from sessions_app.usage import LimitOut, UsageList, budget_of, usage_today
from sessions_app.viewing import check_of, viewer_of

router = Router(tags=["record"])

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
STREAM = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
"""What OpenAPI says of server-sent events."""


class TurnRead(TurnOut):
    """A turn; while it has the session, with what it may still spend."""

    budget: list[LimitOut] = []


@router.get("/sessions/{session_id}/turns/{turn_id}", response={200: TurnRead, **ERRORS}, summary="Read a turn")
def read_turn(request: HttpRequest, session_id: str, turn_id: str) -> dict[str, Any]:
    """One turn with its state, messages, usage and cost."""
    session = queries.load_session(session_id, owner_id=owner_id(request))
    turn = queries.load_turn(turn_id, session_id=session_id)
    return turn_out(turn) | {"budget": budget_of(session) if session.running_turn_id == turn.id else []}


@router.get("/usage", response={200: UsageList, **ERRORS}, summary="What you have spent today")
def usage(request: HttpRequest, limit: Limit = 100) -> dict[str, Any]:
    """Today (UTC), in all and by session, the largest first; and what your limits leave."""
    return usage_today(owner_id(request), limit=limit)


@router.get("/sessions/{session_id}/messages", response={200: MessageList, **ERRORS}, summary="Read the record")
def list_messages(
    request: HttpRequest, session_id: str, after: Place = 0, cursor: Place = 0, limit: Limit = 100
) -> dict[str, Any]:
    """Messages with all their parts, oldest first; tombstoned outputs with their originals."""
    return message_page(session_id, owner_id=owner_id(request), after=max(after, cursor), limit=limit)


@router.get("/sessions/{session_id}/calls", response={200: CallList, **ERRORS}, summary="List model calls")
def list_calls(request: HttpRequest, session_id: str, limit: Limit = 50, cursor: str | None = None) -> dict[str, Any]:
    """Model calls of a session, newest first, each with the manifest of what the model saw."""
    return call_page(session_id, owner_id=owner_id(request), limit=limit, cursor=cursor)


@router.get(
    "/sessions/{session_id}/events",
    response={200: EventList, **ERRORS},
    summary="Read or follow the ledger",
    openapi_extra={"responses": {200: STREAM}},
)
def list_events(request: HttpRequest, session_id: str, after: Place = 0, cursor: Place = 0, limit: Limit = 500) -> Any:
    """Events after ``after`` in order. With ``Accept: text/event-stream`` they go on live, with the answer's text."""
    after = max(after, cursor)
    if wants_stream(request):
        queries.load_session(session_id, owner_id=owner_id(request))
        last = request.headers.get("Last-Event-ID", "")
        place = int(last) if last.isdecimal() and len(last) < 16 else after
        return event_stream(follow(session_id, after=place, check=check_of(viewer_of(request), session_id)))
    return event_page(session_id, owner_id=owner_id(request), after=after, limit=limit)


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
    except Exception as exception:
        # A server may leave the connection of a failed generator open for ever.
        error = as_error(exception, asked="a stream of events")
        yield f"event: error\ndata: {json.dumps({'type': 'error', 'error': error.as_dict()})}\n\n"
