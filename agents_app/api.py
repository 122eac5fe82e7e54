"""Sessions and turns at the REST door.

An address belongs to one router (ninja matches the path before the method), so what shares one stands here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from agents_app import lifecycle
from agents_app.schemas import ForkIn, RecordIn
from compaction_app.context import load_meter
from compaction_app.queries import usage_of_compaction
from mnesis_core.errors import InvalidRequest
from mnesis_core.record import SessionRecord, total_usage
from sessions_app import queries
from sessions_app.api import Limit, Place, event_stream, parse_time, wants_stream
from sessions_app.asking import owner_id
from sessions_app.conf import list_models
from sessions_app.follow import Frame, follow
from sessions_app.schemas import ErrorOut, SessionOut, TurnOut, UsageOut, session_out, turn_out, usage_out

router = Router(tags=["sessions"])

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 409: ErrorOut, 413: ErrorOut, 422: ErrorOut, 503: ErrorOut}


class SessionIn(Schema):
    """A new session. With ``message`` its first turn starts at once."""

    model: str = ""
    title: str = ""
    agent: Annotated[str, Field(max_length=100)] = "default"
    system_prompt: str = ""
    labels: dict[str, str] = {}
    config: dict[str, Any] = {}
    parent_id: str | None = None
    message: str | None = None


class SessionPatch(Schema):
    """What may change about a session."""

    title: str | None = None
    labels: dict[str, str] | None = None
    config: dict[str, Any] | None = None


class TurnIn(Schema):
    """A user's message, as text or as text parts."""

    message: str | None = None
    parts: list[dict[str, Any]] | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    stream: bool = False


class ContextOut(Schema):
    """How full the context is, and of what, in tokens.

    ``source`` says what corrects our estimate: the ``provider``'s reports in this session, those in other sessions
    of the ``model``, or nothing (``estimated``); ``error`` by what share corrected estimates missed the reports.
    """

    used_tokens: int
    usable_tokens: int
    soft_tokens: int
    hard_tokens: int
    window: int
    window_source: str
    breakdown: dict[str, int]
    source: str
    ratio: float
    samples: int
    error: float | None


class BillingOut(UsageOut):
    """What a session has used: all of it, and apart what its turns and its summaries took."""

    turns: UsageOut
    compaction: UsageOut


class SessionRead(SessionOut):
    """A session with its context meter and what it has cost."""

    system_prompt: str
    context: ContextOut
    billing: BillingOut
    turn_id: str | None = None


class SessionList(Schema):
    """A page of sessions."""

    items: list[SessionOut]
    next_cursor: str | None


class TurnList(Schema):
    """A page of turns."""

    items: list[TurnOut]
    next_cursor: int | None


class PricesOut(Schema):
    """What a million tokens cost, in millionths of the currency unit. A cache price of null: as other prompt tokens."""

    input: int
    output: int
    cache_read: int | None
    cache_write: int | None


class ModelOut(Schema):
    """A model that may be chosen. Each source is configured, litellm or default: assumed, since nobody says."""

    alias: str
    litellm_model: str
    context_window: int
    context_window_source: str
    max_output_tokens: int
    max_output_source: str
    prices: PricesOut
    prices_source: str


class ModelList(Schema):
    """Every model."""

    items: list[ModelOut]
    next_cursor: None = None


@router.get("/models", response={200: ModelList, **ERRORS}, summary="List models")
def models(request: HttpRequest) -> Any:
    """The models that a session may use."""
    return {"items": list_models()}


@router.get("/sessions", response={200: SessionList, **ERRORS}, summary="List sessions, the latest first")
def list_sessions(
    request: HttpRequest,
    label: str | None = None,
    archived: bool | None = False,
    q: Annotated[str, Query(max_length=200)] = "",
    parent_id: str | None = None,
    limit: Limit = 50,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Your sessions. ``label=key=value`` filters by a label, ``q`` by a word of the title, ``parent_id`` to children."""
    rows = queries.list_sessions(
        owner_id=owner_id(request),
        archived=archived,
        label=_label(label),
        query=q,
        parent_id=parent_id,
        before=_cursor(cursor),
        limit=limit + 1,
    )
    page = rows[:limit]
    more = len(rows) > limit
    return {
        "items": [session_out(session) for session in page],
        "next_cursor": f"{page[-1].updated_at.isoformat()}~{page[-1].id}" if more else None,
    }


@router.post("/sessions", response={201: SessionRead, **ERRORS}, summary="Create a session")
def create_session(request: HttpRequest, body: SessionIn) -> Any:
    """Create a session and, with ``message``, start its first turn."""
    values = body.dict(exclude={"message"})
    session = lifecycle.create_session(owner=request.user, first_message=body.message, **values)  # type: ignore[arg-type]
    if body.message is None:
        return Status(201, _read(session))
    started = async_to_sync(lifecycle.start_turn)(session.id, owner_id=owner_id(request), message=body.message)
    return Status(201, _read(queries.load_session(session.id)) | {"turn_id": started.turn.id})


@router.get("/sessions/{session_id}", response={200: SessionRead, **ERRORS}, summary="Read a session")
def read_session(request: HttpRequest, session_id: str) -> Any:
    """State, context meter and billing. Never waits for a running turn."""
    return _read(queries.load_session(session_id, owner_id=owner_id(request)))


@router.patch("/sessions/{session_id}", response={200: SessionRead, **ERRORS}, summary="Change a session")
def update_session(request: HttpRequest, session_id: str, body: SessionPatch) -> Any:
    """Rename, relabel or reconfigure a session."""
    return _read(lifecycle.update_session(session_id, owner_id=owner_id(request), **body.dict()))


@router.post("/sessions/{session_id}/archive", response={200: SessionRead, **ERRORS}, summary="Archive a session")
def archive_session(request: HttpRequest, session_id: str) -> Any:
    """Close a session for new turns; it stays readable."""
    return _read(lifecycle.archive_session(session_id, owner_id=owner_id(request)))


@router.post("/sessions/{session_id}/fork", response={201: SessionRead, **ERRORS}, summary="Fork a session")
def fork_session(request: HttpRequest, session_id: str, body: ForkIn) -> Any:
    """A new session with everything up to and including one message; the original stays as it is."""
    fork = lifecycle.fork_session(session_id, owner=request.user, at_message_id=body.at_message_id)  # type: ignore[arg-type]
    return Status(201, _read(fork))


@router.get("/sessions/{session_id}/turns", response={200: TurnList, **ERRORS}, summary="List turns, newest first")
def list_turns(request: HttpRequest, session_id: str, limit: Limit = 50, cursor: Place | None = None) -> dict[str, Any]:
    """Turns of a session."""
    queries.load_session(session_id, owner_id=owner_id(request))
    rows = queries.list_turns(session_id, before_seq=cursor, limit=limit + 1)
    return {
        "items": [turn_out(turn) for turn in rows[:limit]],
        "next_cursor": rows[limit - 1].seq if len(rows) > limit else None,
    }


@router.post("/sessions/{session_id}/turns", response={202: TurnOut, **ERRORS}, summary="Start a turn")
def start_turn(request: HttpRequest, session_id: str, body: TurnIn) -> Any:
    """Write the message and start the turn; the answer comes at once, or with ``stream`` as server-sent events."""
    started = async_to_sync(lifecycle.start_turn)(
        session_id, owner_id=owner_id(request), message=_text(body), idempotency_key=body.idempotency_key
    )
    if body.stream or wants_stream(request):
        return event_stream(_until_end(session_id, started.turn.id, after=started.seq - 1))
    return Status(202, turn_out(started.turn))


@router.post("/sessions/{session_id}/record", response={200: TurnOut, 201: TurnOut, **ERRORS}, summary="Record a turn")
def record_turn(request: HttpRequest, session_id: str, body: RecordIn) -> Any:
    """Keep a turn that you ran with your own model client. 200 says that this key has recorded it before."""
    recorded = lifecycle.record_turn(
        session_id, owner_id=owner_id(request), turn=body.turn(), idempotency_key=body.idempotency_key
    )
    return Status(201 if recorded.is_new else 200, turn_out(recorded.turn))


@router.post("/sessions/{session_id}/interrupt", response={202: TurnOut, **ERRORS}, summary="Interrupt the turn")
def interrupt(request: HttpRequest, session_id: str) -> Any:
    """End the running turn, from any process; what was said is kept."""
    return Status(202, turn_out(lifecycle.interrupt(session_id, owner_id=owner_id(request))))


def _read(session: SessionRecord) -> dict[str, Any]:
    return session_out(session) | {
        "system_prompt": session.system_prompt,
        "context": load_meter(session.id),
        "billing": _billing(session.id),
    }


def _billing(session_id: str) -> dict[str, Any]:
    turns, compaction = queries.usage_of_session(session_id), usage_of_compaction(session_id)
    parts = {"turns": usage_out(turns), "compaction": usage_out(compaction)}
    return usage_out(total_usage(turns, compaction)) | parts


def _text(body: TurnIn) -> str:
    if (body.message is None) == (body.parts is None):
        raise InvalidRequest("send either message or parts", field="message")
    if body.message is not None:
        return body.message
    texts = [part.get("text") for part in body.parts or [] if part.get("type") == "text"]
    if len(texts) != len(body.parts or []) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("parts may be {type: text, text} only", field="parts")
    return "\n".join(str(text) for text in texts)


async def _until_end(session_id: str, turn_id: str, *, after: int) -> AsyncIterator[Frame]:
    """The session's frames until the turn has ended."""
    async for frame in follow(session_id, after=after):
        yield frame
        if frame["type"] in lifecycle.TURN_ENDS and frame["data"]["turn_id"] == turn_id:
            return


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    key, equals, value = text.partition("=")
    if not key.isidentifier() or "__" in key or not equals:
        raise InvalidRequest("label must look like key=value, with a key of letters, digits and _", field="label")
    return key, value


def _cursor(text: str | None) -> tuple[datetime, str] | None:
    if text is None:
        return None
    time, _, id = text.partition("~")
    return parse_time(time), id
