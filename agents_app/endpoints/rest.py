"""Sessions, turns and tools at the REST endpoint.

An address belongs to one router (ninja matches the path before the method), so what shares one stands here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BeforeValidator

from agents_app.schemas import (
    ApprovalIn,
    ChoiceIn,
    ForkIn,
    InboxIn,
    RecordIn,
    SessionIn,
    SessionPatch,
    ToolResultsIn,
    TurnIn,
)
from agents_app.tools.pages import ToolList, show_tools
from agents_app.turns import branches, claim, lifecycle
from agents_app.turns.branches import BranchList
from agents_app.turns.overview import ForkingOut, InboxList, InboxMessageOut, SessionRead, inbox_page, session_begun
from mnesis_core.llm.parameters import Parameters
from sessions_app.api import STREAM, SessionList, TurnList, event_stream, session_page, turn_page
from sessions_app.callers import Asker, owner_id, wants_stream
from sessions_app.conf import list_models
from sessions_app.database.threads import waiting_for
from sessions_app.live import Frame, follow, make_check, viewer_of
from sessions_app.operations import by_name, waited_for
from sessions_app.record import session_queries
from sessions_app.schemas import DeletedSession, ErrorOut, Limit, Out, Place, SessionOut, TurnOut

router = Router(tags=["sessions"])
tools_router = Router(tags=["tools"])

ERRORS = dict.fromkeys((400, 401, 404, 409, 413, 422, 429, 503), ErrorOut)


class PricesOut(Out):
    """Prices of a million tokens, in millionths of the currency unit. A cache price of null means the prompt price."""

    input: int
    output: int
    cache_read: int | None
    cache_write: int | None
    cache_write_1h: int | None


class ModelOut(Out):
    """A model that may be chosen. Each source is ``configured``, ``litellm`` or ``default`` (an assumption)."""

    alias: str
    litellm_model: str
    context_window: int
    context_window_source: str
    max_output_tokens: int
    max_output_source: str
    prices: PricesOut
    prices_source: str
    fallbacks: tuple[str, ...]  # the models that are asked, in this order, when this one gives no answer
    # What it is asked with unless a session or a turn says otherwise.
    parameters: Annotated[dict[str, Any], BeforeValidator(Parameters.as_dict)]
    cache: str  # how long Claude is to keep prompts: off, 5m or 1h; other providers decide by themselves


class ModelList(Out):
    """Every model."""

    items: list[ModelOut]
    next_cursor: None = None


@router.get("/models", response={200: ModelList, **ERRORS}, summary="List models")
def models(request: HttpRequest) -> Any:
    """The models that a session may use."""
    return {"items": list_models(user_id=owner_id(request))}


@by_name("session/list")
@router.get("/sessions", response={200: SessionList, **ERRORS}, summary="List sessions, the latest first")
def list_sessions(
    request: Asker,
    label: str | None = None,
    archived: bool | None = False,
    pinned: bool | None = None,
    q: Annotated[str, Query(max_length=200)] = "",
    parent_id: str | None = None,
    sub_agents: bool | None = None,
    trashed: bool = False,
    project_id: Annotated[str | None, Query(max_length=100)] = None,
    limit: Limit = 50,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Your sessions. ``label=key=value`` filters by a label, ``q`` by a word of the title, ``parent_id`` to children.

    ``project_id``: only those in this project.

    ``sub_agents`` true: only sessions that turns launched; false: none of them.
    ``trashed`` true: those in the trash, archived or not, without the sub-agents that were moved there with their parents.
    """
    return session_page(
        owner_id=owner_id(request),
        archived=None if trashed else archived,
        pinned=pinned,
        label=label,
        q=q,
        parent_id=parent_id,
        sub_agents=sub_agents,
        trashed=trashed,
        project_id=project_id,
        limit=limit,
        cursor=cursor,
    )


@router.post("/sessions", response={201: SessionRead, 403: ErrorOut, **ERRORS}, summary="Create a session")
def create_session(request: HttpRequest, body: SessionIn) -> Any:
    """Create a session and, with ``message``, start its first turn."""
    values = body.dict(exclude={"message"})
    if body.message is None:
        return Status(201, lifecycle.create_session(owner=request.user, **values))  # type: ignore[arg-type]
    begin = waiting_for(lifecycle.begin_session)
    session, started = begin(owner=request.user, message=body.message, **values)  # type: ignore[arg-type]
    return Status(201, session_begun(session.id, started.turn.id))


@by_name("session/read")
@router.get("/sessions/{session_id}", response={200: SessionRead, **ERRORS}, summary="Read a session")
def read_session(request: Asker, session_id: str) -> Any:
    """State, context meter and billing. Never waits for a running turn."""
    return session_queries.load_session(session_id, owner_id=owner_id(request))


@router.patch("/sessions/{session_id}", response={200: SessionRead, **ERRORS}, summary="Change a session")
def update_session(request: HttpRequest, session_id: str, body: SessionPatch) -> Any:
    """Rename, relabel, pin or reconfigure a session, or put it into a project."""
    return lifecycle.update_session(session_id, owner_id=owner_id(request), **body.dict())


@router.post("/sessions/{session_id}/seen", response={200: SessionOut, **ERRORS}, summary="Mark as read")
def see_session(request: HttpRequest, session_id: str) -> Any:
    """Note that you have seen the turns that have ended. After that, the session is ``unread`` once another one ends."""
    return lifecycle.see_session(session_id, owner_id=owner_id(request))


@by_name("session/archive")
@router.post("/sessions/{session_id}/archive", response={200: SessionRead, **ERRORS}, summary="Archive a session")
def archive_session(request: Asker, session_id: str) -> Any:
    """Close a session for new turns; it stays readable."""
    return lifecycle.archive_session(session_id, owner_id=owner_id(request))


@by_name("session/reopen")
@router.post("/sessions/{session_id}/reopen", response={200: SessionRead, **ERRORS}, summary="Unarchive")
def reopen_session(request: Asker, session_id: str) -> Any:
    """Let an archived session take turns again; its sub-agents' stay archived."""
    return lifecycle.reopen_session(session_id, owner_id=owner_id(request))


@by_name("session/keep")
@router.post("/sessions/{session_id}/keep", response={200: SessionRead, **ERRORS}, summary="Keep a temporary chat")
def keep_session(request: Asker, session_id: str) -> Any:
    """Let a temporary chat be a session like any other, with those of its sub-agents; another session stays as it is."""
    return lifecycle.keep_session(session_id, owner_id=owner_id(request))


@by_name("session/trash")
@router.post(
    "/sessions/{session_id}/trash", response={200: SessionOut, 403: ErrorOut, **ERRORS}, summary="Move to the trash"
)
def trash_session(request: Asker, session_id: str) -> Any:
    """Hide a session and its sub-agents' until they are restored. Refused with ``SESSION_BUSY`` while a turn is running."""
    return lifecycle.trash_session(session_id, owner_id=owner_id(request))


@by_name("session/restore")
@router.post("/sessions/{session_id}/restore", response={200: SessionRead, **ERRORS}, summary="Restore from the trash")
def restore_session(request: Asker, session_id: str) -> Any:
    """Take a session out of the trash, with the sub-agents' that were moved there with it."""
    return lifecycle.restore_session(session_id, owner_id=owner_id(request))


@by_name("session/delete")
@router.delete(
    "/sessions/{session_id}", response={200: DeletedSession, 403: ErrorOut, **ERRORS}, summary="Delete for good"
)
def delete_session(request: Asker, session_id: str) -> Any:
    """Hide a session and its sub-agents' for good, in the trash or not. The record keeps every row, for auditors."""
    lifecycle.delete_session(session_id, owner_id=owner_id(request))
    return {"id": session_id, "deleted": True}


@router.post(
    "/sessions/{session_id}/fork", response={201: SessionRead, 202: ForkingOut, **ERRORS}, summary="Fork a session"
)
def fork_session(request: HttpRequest, session_id: str, body: ForkIn) -> Any:
    """A new session with everything up to and including one message, or before one; the original stays as it is.

    A fork of more than 2,000 messages is copied by a worker: 202, and ``GET /sessions/{id}/fork`` says how far it is.
    """
    fork = lifecycle.begin_fork(session_id, owner=request.user, **body.dict())  # type: ignore[arg-type]
    if fork.is_whole:
        return Status(201, session_queries.load_session(fork.id))
    return Status(202, fork)


@router.get("/sessions/{session_id}/fork", response={200: ForkingOut, **ERRORS}, summary="How far a fork is copied")
def read_fork(request: HttpRequest, session_id: str) -> Any:
    """Return how far a fork is. Its session is there once ``copied`` equals ``messages``."""
    return session_queries.load_forking(session_id, owner_id=owner_id(request))


@by_name("branches/list")
@router.get("/sessions/{session_id}/branches", response={200: BranchList, **ERRORS}, summary="List branches")
def list_branches(request: Asker, session_id: str) -> Any:
    """Every branch of a session, branch 0 first. A turn with a ``parent_id`` begins one where others continue that message."""
    return {"items": branches.list_branches(session_id, owner_id=owner_id(request))}


@by_name("branches/choose")
@router.post("/sessions/{session_id}/branches/choose", response={200: BranchList, **ERRORS}, summary="Choose a branch")
def choose_branch(request: Asker, session_id: str, body: ChoiceIn) -> Any:
    """Let a branch be the one that the next message continues, and that models see."""
    branches.choose_branch(session_id, body.branch, owner_id=owner_id(request))
    return {"items": branches.list_branches(session_id, owner_id=owner_id(request))}


@router.get("/sessions/{session_id}/turns", response={200: TurnList, **ERRORS}, summary="List turns, newest first")
def list_turns(request: HttpRequest, session_id: str, limit: Limit = 50, cursor: Place | None = None) -> dict[str, Any]:
    """Turns of a session."""
    return turn_page(session_id, owner_id=owner_id(request), limit=limit, cursor=cursor)


@router.post(
    "/sessions/{session_id}/turns",
    response={200: None, 202: TurnOut, **ERRORS},
    summary="Start a turn",
    openapi_extra={"responses": {200: {"description": "With ``stream``", **STREAM}}},
)
def start_turn(request: HttpRequest, session_id: str, body: TurnIn) -> Any:
    """Write the message and start the turn; the answer comes at once, or with ``stream`` as server-sent events.

    ``tools`` are run by you: when the model calls one, the turn is suspended (and the stream ends) until you send
    what it ``waits_for`` to ``/tool-results``.
    """
    started = waiting_for(lifecycle.start_turn)(session_id, owner_id=owner_id(request), **body.arguments())
    if not (body.stream or wants_stream(request)):
        return Status(202, started.turn)
    check = make_check(viewer_of(request), session_id)

    async def until_turn_stops() -> AsyncIterator[Frame]:
        async for frame in follow(session_id, after=started.seq - 1, check=check):
            yield frame
            if frame["type"] in lifecycle.TURN_STOPS and frame["data"]["turn_id"] == started.turn.id:
                return

    return event_stream(until_turn_stops())


@by_name("turn/answer")
@router.post(
    "/sessions/{session_id}/turns/{turn_id}/tool-results",
    response={202: TurnOut, **ERRORS},
    summary="Give a turn results of your tools",
)
@waited_for
async def answer_tools(request: Asker, session_id: str, turn_id: str, body: ToolResultsIn) -> Any:
    """The turn goes on when nothing is waited for. Results of a turn that has ended are kept with it, no more."""
    results = [claim.ToolResult(**result.said()) for result in body.results]
    answered = await lifecycle.answer_tools(session_id, turn_id, owner_id=owner_id(request), results=results)
    return Status(202, answered.turn)


@by_name("turn/approve")
@router.post(
    "/sessions/{session_id}/approvals/{part_id}",
    response={202: TurnOut, **ERRORS},
    summary="Approve or refuse a tool call",
)
@waited_for
async def decide_approval(request: Asker, session_id: str, part_id: str, body: ApprovalIn) -> Any:
    """Say yes or no to a tool call that a turn ``waits_for``; a note with a no is told to the model."""
    turn = await lifecycle.decide_approval(session_id, part_id, owner_id=owner_id(request), **body.dict())
    return Status(202, turn)


@by_name("session/record")
@router.post("/sessions/{session_id}/record", response={200: TurnOut, 201: TurnOut, **ERRORS}, summary="Record a turn")
def record_turn(request: Asker, session_id: str, body: RecordIn) -> Any:
    """Keep a turn that you ran with your own model client. 200 says that this key has recorded it before."""
    recorded = lifecycle.record_turn(
        session_id, owner_id=owner_id(request), turn=body.turn(), idempotency_key=body.idempotency_key
    )
    return Status(201 if recorded.is_new else 200, recorded.turn)


@by_name("inbox/send")
@router.post(
    "/sessions/{session_id}/inbox", response={202: InboxMessageOut, **ERRORS}, summary="Send a session a message"
)
@waited_for
async def send_message(request: Asker, session_id: str, body: InboxIn) -> Any:
    """Put a message into the inbox of a session in host mode, which reads it in a turn when it is idle."""
    sent = await lifecycle.send_message(
        session_id, owner_id=owner_id(request), draft=body.draft(), idempotency_key=body.idempotency_key
    )
    return Status(202, sent)


@by_name("inbox/list", limit=100)
@router.get("/sessions/{session_id}/inbox", response={200: InboxList, **ERRORS}, summary="Read an inbox")
def read_inbox(
    request: Asker, session_id: str, waiting: bool | None = None, after: Place = 0, cursor: Place = 0, limit: Limit = 50
) -> dict[str, Any]:
    """Messages to a session, oldest first; ``waiting`` true: those that no turn has taken, false: the others."""
    return inbox_page(session_id, owner_id=owner_id(request), waiting=waiting, after=max(after, cursor), limit=limit)


@by_name("session/interrupt")
@router.post("/sessions/{session_id}/interrupt", response={202: TurnOut, **ERRORS}, summary="Interrupt the turn")
def interrupt(request: Asker, session_id: str) -> Any:
    """End the running turn, from any process; what was said is kept."""
    return Status(202, lifecycle.interrupt(session_id, owner_id=owner_id(request)))


@tools_router.get("/tools", response={200: ToolList, 401: ErrorOut}, summary="List tools")
def list_tools(request: HttpRequest) -> Any:
    """Every tool that a session may be offered (``config.turn.tools``), those of attached MCP servers included."""
    return {"items": show_tools(user_id=owner_id(request))}
