"""The record at the REST endpoint: reads of the caller's own sessions, the lists that other endpoints share, shares and ratings."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Annotated, Any

from django.http import HttpRequest, StreamingHttpResponse
from django.utils.translation import gettext_noop
from ninja import Router, Schema, Status
from pydantic import AliasPath, AwareDatetime, BeforeValidator, Field

from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import StoredMessage
from mnesis_core.network.sharing import Audience, ShareState
from mnesis_core.records import InteractionStatus, Thumb, TurnRecord
from sessions_app.callers import Asker, owner_id, wants_stream
from sessions_app.database.outages import to_error
from sessions_app.live import follow, make_check, viewer_of
from sessions_app.llm.limits import LimitOut, UsageList, budget_of, usage_today
from sessions_app.operations import by_name
from sessions_app.pages.shares import shared_path
from sessions_app.record import branch_queries, context_queries, message_queries, ratings, session_queries, turn_queries
from sessions_app.record.message_queries import list_interactions
from sessions_app.record.project_store import load_project
from sessions_app.record.shares import sharing
from sessions_app.schemas import (
    ErrorOut,
    EventOut,
    Limit,
    MessageOut,
    Out,
    Place,
    SessionOut,
    Text,
    TurnOut,
    message_out,
    page_of,
    place_of,
    read_place,
)

router = Router(tags=["record"])
_PAIR = re.compile(r"(\d{1,15})\.(\d{1,9})", re.ASCII)  # a message's number and the place of a part in it
ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
BoundedId = Annotated[str, Field(max_length=100)]
STREAM = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


def _of_share(name: str) -> Any:
    return Field(validation_alias=AliasPath("share", name))


class SessionList(Out):
    """A page of sessions."""

    items: list[SessionOut]
    next_cursor: str | None


class TurnList(Out):
    """A page of turns."""

    items: list[TurnOut]
    next_cursor: int | None


class MessageList(Out):
    """A page of messages."""

    items: list[MessageOut]
    next_cursor: int | None


class EventList(Out):
    """A page of events."""

    items: list[EventOut]
    next_cursor: int | None


class InteractionOut(Out):
    """A tool call with its result, if it has one."""

    tool_call_id: Text
    turn_id: str
    tool_name: Text
    arguments: Text
    """The text that the model wrote. It should be JSON, but models make mistakes."""
    result: Text | None
    """The whole output, even if prompts show a tombstone in its place or it came too late."""
    error: Text | None
    status: InteractionStatus
    part_id: str
    message_id: str
    seq: int
    started_at: datetime | None
    completed_at: datetime | None


class InteractionList(Out):
    """Tool calls, oldest first."""

    items: list[InteractionOut]
    next_cursor: str | None


class ReaderOut(Out):
    """Who opened a share; without a name everybody who was not signed in."""

    name: Text | None
    last_opened_at: datetime
    days: int
    """On which they opened it: an entry of the ledger for each."""


class ShareOut(Out):
    """A link to a session as it was, for its owner."""

    id: Annotated[str, _of_share("id")]
    session_id: Annotated[str, _of_share("session_id")]
    message_id: Annotated[str, _of_share("message_id")]
    """The last message that it shows."""
    title: Annotated[Text, _of_share("title")]
    audience: Annotated[Audience, _of_share("audience")]
    people: list[Text]
    state: ShareState
    path: Annotated[str, Field(validation_alias="token"), BeforeValidator(shared_path)]
    """The address on this site."""
    created_at: Annotated[datetime, _of_share("created_at")]
    expires_at: Annotated[datetime | None, _of_share("expires_at")]
    revoked_at: Annotated[datetime | None, _of_share("revoked_at")]
    reader_count: int
    readers: list[ReaderOut]
    """The newest ones, at most twenty."""


class ShareList(Out):
    """A page of shares."""

    items: list[ShareOut]
    next_cursor: str | None


class ShareIn(Schema):
    """A link to make: for whom, up to which message, until when."""

    audience: Audience = Audience.SITE
    people: Annotated[list[Annotated[str, Field(max_length=150)]], Field(max_length=sharing.MOST_PEOPLE)] = []
    """The names of the accounts that it is for, with the audience ``people``."""
    message_id: Annotated[str | None, Field(max_length=100)] = None
    """The last message that it shows; without one, that of the chosen branch."""
    expires_at: AwareDatetime | None = None


class RatingOut(Out):
    """What the session's owner said of an answer."""

    id: str
    session_id: str
    message_id: str
    thumb: Thumb
    """``up``, ``down``, or empty: an earlier rating was taken back."""
    comment: Text
    created_at: datetime


class RatingList(Out):
    """A page of ratings."""

    items: list[RatingOut]
    next_cursor: int | None


class RatingIn(Schema):
    """A thumb for an answer, with or without words."""

    thumb: Annotated[Thumb, Field(description="up, down, or empty to take an earlier rating back")]
    comment: Annotated[str, Field(max_length=ratings.LONGEST_COMMENT)] = ""


class TurnRead(TurnOut, Schema):
    """A turn; while it has the session, with what it may still spend."""

    budget: list[LimitOut] = []

    @staticmethod
    def resolve_budget(turn: TurnRecord) -> list[dict[str, Any]]:
        session = session_queries.load_session(turn.session_id)
        return budget_of(session) if session.running_turn_id == turn.id else []


def session_page(
    *,
    owner_id: int,
    archived: bool | None,
    pinned: bool | None = None,
    label: str | None,
    q: str,
    parent_id: str | None,
    sub_agents: bool | None = None,
    trashed: bool = False,
    project_id: str | None = None,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """Return sessions of a person, latest first; ``label`` is ``key=value``, ``q`` a word of the title.

    :raises InvalidRequest: the label or the cursor is malformed.
    :raises ProjectNotFoundError: there is no such project, or the person is not a member of it.
    """
    if project_id is not None:
        load_project(project_id, user_id=owner_id)
    key, equals, value = (label or "").partition("=")
    if label is not None and (not key.isidentifier() or "__" in key or not equals):
        raise InvalidRequest(
            gettext_noop("label must look like key=value, with a key of letters, digits and _"), field="label"
        )
    rows = session_queries.list_sessions(
        owner_id=owner_id,
        archived=archived,
        pinned=pinned,
        label=None if label is None else (key, value),
        query=q,
        parent_id=parent_id,
        sub_agents=sub_agents,
        trashed=trashed,
        project_id=project_id,
        before=read_place(cursor),
        limit=limit + 1,
    )
    return page_of(rows, limit, lambda session: place_of(session.updated_at, session.id))


def turn_page(session_id: str, *, owner_id: int, limit: int, cursor: int | None) -> dict[str, Any]:
    """:raises SessionNotFoundError: it does not exist or belongs to another person."""
    session_queries.load_session(session_id, owner_id=owner_id)
    return page_of(turn_queries.list_turns(session_id, before_seq=cursor, limit=limit + 1), limit, attrgetter("seq"))


def message_page(
    session_id: str, *, owner_id: int, after: int, limit: int, branch: int | None = None
) -> dict[str, Any]:
    """Return messages of the whole record, or of the path to the end of one branch.

    :raises SessionNotFoundError: it does not exist or belongs to another person.
    :raises BranchNotFoundError: it has no such branch.
    """
    session = session_queries.load_session(session_id, owner_id=owner_id)
    path = None if branch is None else branch_queries.path_in(session, branch)
    messages = message_queries.load_messages(session_id, after=after, limit=limit + 1, path=path)
    return page_of(messages_out(session_id, messages), limit, itemgetter("seq"))


def messages_out(session_id: str, messages: Sequence[StoredMessage]) -> list[dict[str, Any]]:
    """Return what ``MessageOut`` reads, of messages that follow each other on a path or in the record."""
    rows = message_queries.load_message_rows(session_id, [message.id for message in messages])
    places = [(rows[message.id].branch, message.seq) for message in messages]
    parents = branch_queries.parents_of(session_id, places)
    return [message_out(message, rows[message.id], parents.get(message.seq)) for message in messages]


@by_name("turn/read", result=TurnOut)
@router.get("/sessions/{session_id}/turns/{turn_id}", response={200: TurnRead, **ERRORS}, summary="Read a turn")
def read_turn(request: Asker, session_id: str, turn_id: str) -> Any:
    """One turn with its state, messages, usage and cost."""
    session_queries.load_session(session_id, owner_id=owner_id(request))
    return turn_queries.load_turn(turn_id, session_id=session_id)


@router.get("/usage", response={200: UsageList, **ERRORS}, summary="What you have spent today")
def usage(request: HttpRequest, limit: Limit = 100) -> dict[str, Any]:
    """Today (UTC), in all and by session, the largest first; and what your limits leave."""
    return usage_today(owner_id(request), limit=limit)


@by_name("session/history")
@router.get("/sessions/{session_id}/messages", response={200: MessageList, **ERRORS}, summary="Read the record")
def list_messages(
    request: Asker,
    session_id: str,
    after: Place = 0,
    cursor: Place = 0,
    limit: Limit = 100,
    branch: Place | None = None,
) -> dict[str, Any]:
    """Messages with all their parts, oldest first; tombstoned outputs with their originals.

    These are the messages of all branches, or with ``branch`` those from the first message to the end of that one.
    """
    return message_page(session_id, owner_id=owner_id(request), after=max(after, cursor), limit=limit, branch=branch)


@by_name("shares/create")
@router.post(
    "/sessions/{session_id}/shares",
    response={201: ShareOut, 403: ErrorOut, 409: ErrorOut, **ERRORS},
    summary="Share a session",
)
def create_share(request: Asker, session_id: str, body: ShareIn) -> Any:
    """Make a link to a session as it is now, up to one message. What is said later, and other branches, are never shown."""
    return Status(201, sharing.share_session(session_id, owner_id=owner_id(request), **body.dict()))


@by_name("shares/list")
@router.get("/sessions/{session_id}/shares", response={200: ShareList, **ERRORS}, summary="List shares, newest first")
def list_shares(
    request: Asker,
    session_id: str,
    limit: Limit = 50,
    cursor: Annotated[str | None, Field(max_length=100)] = None,
) -> dict[str, Any]:
    """The links to a session with who opened them; revoked and expired ones too."""
    found = sharing.list_shares(owner_id=owner_id(request), session_id=session_id, before=cursor, limit=limit + 1)
    return page_of(found, limit, lambda own: own.share.id)


@by_name("shares/revoke")
@router.delete("/sessions/{session_id}/shares/{share_id}", response={200: ShareOut, **ERRORS}, summary="Revoke a share")
def revoke_share(request: Asker, session_id: str, share_id: str) -> Any:
    """From now on the link opens nothing. The share stays in the record."""
    return sharing.revoke_share(session_id, share_id, owner_id=owner_id(request))


@by_name("ratings/set")
@router.put(
    "/sessions/{session_id}/messages/{message_id}/rating",
    response={200: RatingOut, 409: ErrorOut, **ERRORS},
    summary="Rate an answer",
)
def rate_answer(request: Asker, session_id: str, message_id: str, body: RatingIn) -> Any:
    """Say that an answer is good or not, in place of what was said of it before, which stays in the record."""
    return ratings.rate_answer(session_id, message_id, owner_id=owner_id(request), **body.dict())


@by_name("ratings/list")
@router.get(
    "/sessions/{session_id}/ratings", response={200: RatingList, **ERRORS}, summary="List ratings, newest first"
)
def list_ratings(
    request: Asker, session_id: str, message_id: BoundedId | None = None, limit: Limit = 50, cursor: Place = 0
) -> dict[str, Any]:
    """The ratings of a session's answers that count now, or with ``message_id`` that of one answer."""
    found = ratings.list_ratings(
        session_id, owner_id=owner_id(request), message_id=message_id, before=cursor or None, limit=limit + 1
    )
    return page_of(found, limit, attrgetter("rated_seq"))


@by_name("tool_interactions/list")
@router.get(
    "/sessions/{session_id}/tool-interactions",
    response={200: InteractionList, **ERRORS},
    summary="List tool calls with their results",
)
def list_tool_interactions(
    request: Asker,
    session_id: str,
    turn_id: Annotated[str | None, Field(max_length=100)] = None,
    tool: Annotated[str | None, Field(max_length=200)] = None,
    status: InteractionStatus | None = None,
    limit: Limit = 100,
    cursor: Annotated[str | None, Field(max_length=100)] = None,
) -> dict[str, Any]:
    """Each tool call paired with its result, of all branches: a view of the messages, in which both are one part.

    ``PENDING`` is what waits or runs. Calls that a provider ran itself are only in the messages.
    """
    session_queries.load_session(session_id, owner_id=owner_id(request))
    after = None
    if cursor is not None:
        match = _PAIR.fullmatch(cursor)
        if match is None:
            raise InvalidRequest(gettext_noop("cursor must be the next_cursor of the page before"), field="cursor")
        after = int(match[1]), int(match[2])
    found = list_interactions(session_id, turn_id=turn_id, tool=tool, status=status, after=after, limit=limit + 1)
    return page_of(found, limit, lambda call: f"{call.seq}.{call.part_index}")


@by_name("events/list", limit=100)
@router.get(
    "/sessions/{session_id}/events",
    response={200: EventList, **ERRORS},
    summary="Read or follow the ledger",
    openapi_extra={"responses": {200: STREAM}},
)
def list_events(request: Asker, session_id: str, after: Place = 0, cursor: Place = 0, limit: Limit = 500) -> Any:
    """Events after ``after`` in order. With ``Accept: text/event-stream`` they go on live, with the answer's text."""
    after = max(after, cursor)
    session_queries.load_session(session_id, owner_id=owner_id(request))
    if isinstance(request, HttpRequest) and wants_stream(request):
        last = request.headers.get("Last-Event-ID", "")
        place = int(last) if last.isdecimal() and len(last) < 16 else after
        return event_stream(follow(session_id, after=place, check=make_check(viewer_of(request), session_id)))
    events = context_queries.load_events(session_id, after=after, limit=limit + 1)
    return page_of(events, limit, attrgetter("seq"))


def event_stream(frames: AsyncIterator[dict[str, Any]]) -> StreamingHttpResponse:
    """Return frames as server-sent events (HTML standard 9.2); an event's ``seq`` is its id, for ``Last-Event-ID``."""
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
        error = to_error(exception, asked="a stream of events")
        yield f"event: error\ndata: {json.dumps({'type': 'error', 'error': error.as_dict()})}\n\n"
