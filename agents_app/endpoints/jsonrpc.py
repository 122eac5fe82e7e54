"""JSON-RPC 2.0 (https://www.jsonrpc.org/specification): a table of methods, each a schema and one domain call.

A result is what the REST door answers. An error has the registry's number and message, and in ``data`` its code and
details; where the specification has a number of its own (not JSON, no request, no such method), that one stands.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

from ninja import Field, Schema

from agents_app.endpoints.methods import FILE_METHODS, MAP_METHODS, Methods, Table, method, perform
from agents_app.schemas import AnswerIn, DecisionIn, ForkIn, InboxIn, RecordIn, SessionIn, TurnStartIn
from agents_app.turns import lifecycle, suspended
from agents_app.turns.overview import InboxList, InboxMessageOut, SessionRead, inbox_page, session_begun
from compaction_app.compact import compact_now, request_manual
from compaction_app.queries import load_run
from compaction_app.search import SearchOut, search_out, where_to_search
from compaction_app.views import CompactionOut, ContextFormat, show_context
from mnesis_core.errors import InvalidRequest, MnesisError, NotFound
from mnesis_core.records import TurnRecord
from mnesis_core.text import read_json
from sessions_app.api import EventList, MessageList, SessionList, event_page, message_page, session_page
from sessions_app.callers import Caller
from sessions_app.database.outages import as_error
from sessions_app.database.threads import db
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_turn
from sessions_app.schemas import JSONEncoder, Limit, PageAfter, Place, TurnOut
from sessions_app.search.search import Kind, Mode, search

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
"""The specification's own numbers, section 5.1."""
BATCH_LIMIT = 100
"""Requests in one batch: a batch holds one connection, and its answers memory, until the last is done."""

Id = str | int | float | None


class Nothing(Schema):
    """No parameters."""


class OfSession(Schema):
    """Which session."""

    session_id: str


class ListSessions(Schema):
    """Which sessions; ``label`` is ``key=value``, ``q`` a word of the title."""

    label: str | None = None
    archived: bool | None = False
    q: Annotated[str, Field(max_length=200)] = ""
    parent_id: str | None = None
    sub_agents: bool | None = None
    limit: Limit = 50
    cursor: str | None = None


class Fork(OfSession, ForkIn):
    """Which session to fork, and where."""


class StartTurn(OfSession, TurnStartIn):
    """A user's message for a session, and whether to wait for the end of the turn."""

    wait: bool = False


class OfTurn(OfSession):
    """Which turn."""

    turn_id: str


class AnswerTools(OfSession, AnswerIn):
    """Results of the caller's tools."""


class Decide(OfSession, DecisionIn):
    """A person's word on a tool call."""


class Record(OfSession, RecordIn):
    """A turn that the caller ran with its own model client."""


class GetContext(OfSession):
    """As which provider takes it, and as of which event."""

    format: ContextFormat = "mnesis"
    at: Place | None = None


class Compact(OfSession):
    """Whether to wait for the end."""

    wait: bool = False


class After(OfSession, PageAfter):
    """What of a session comes after a place."""


class SendMessage(OfSession, InboxIn):
    """A message for a session in host mode."""


class ReadInbox(After):
    """Only messages that wait, or only those that were taken."""

    waiting: bool | None = None


class Search(Schema):
    """What to find, and where; without a session in all of them."""

    q: Annotated[str, Field(min_length=1, max_length=1_000)]
    session_id: str | None = None
    mode: Mode = "text"
    scope: Kind = "all"
    summary_id: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: str | None = None


METHODS: Table = {**FILE_METHODS, **MAP_METHODS}
"""Every method that needs no standing connection."""
_method = partial(method, METHODS)


@_method("initialize", result=dict[str, Any])
def initialize(caller: Caller, asked: Nothing) -> dict[str, Any]:
    """Every method there is, with the JSON Schema of its parameters."""
    described = {name: known.params.model_json_schema() for name, known in METHODS.items()}
    return {"server": {"name": "mnesis", "version": "1"}, "user": caller.user.get_username(), "methods": described}


@_method("session/create", result=SessionRead, writes=True)
async def create_session(caller: Caller, asked: SessionIn) -> Any:
    """Create a session and, with ``message``, start its first turn."""
    values = asked.dict(exclude={"message"})
    if asked.message is None:
        return await db(lifecycle.create_session, owner=caller.user, **values)
    session, started = await lifecycle.begin_session(owner=caller.user, message=asked.message, **values)
    return await db(session_begun, session.id, started.turn.id)


@_method("session/list", result=SessionList)
def list_sessions(caller: Caller, asked: ListSessions) -> dict[str, Any]:
    """Sessions, the latest first."""
    return session_page(owner_id=caller.owner_id, **asked.dict())


@_method("session/read", result=SessionRead)
def read_session(caller: Caller, asked: OfSession) -> Any:
    """State, context meter and billing."""
    return load_session(asked.session_id, owner_id=caller.owner_id)


@_method("session/history", result=MessageList)
def read_history(caller: Caller, asked: After) -> dict[str, Any]:
    """Messages with all their parts, oldest first."""
    return message_page(asked.session_id, owner_id=caller.owner_id, after=asked.start, limit=asked.limit)


@_method("session/archive", result=SessionRead, writes=True)
def archive_session(caller: Caller, asked: OfSession) -> Any:
    """Close a session for new turns; it stays readable."""
    return lifecycle.archive_session(asked.session_id, owner_id=caller.owner_id)


@_method("session/reopen", result=SessionRead, writes=True)
def reopen_session(caller: Caller, asked: OfSession) -> Any:
    """Let an archived session take turns again; its sub-agents' stay archived."""
    return lifecycle.reopen_session(asked.session_id, owner_id=caller.owner_id)


@_method("session/interrupt", result=TurnOut, writes=True)
def interrupt(caller: Caller, asked: OfSession) -> Any:
    """End the running turn, from any process; what was said is kept."""
    return lifecycle.interrupt(asked.session_id, owner_id=caller.owner_id)


@_method("session/fork", result=SessionRead, writes=True)
def fork_session(caller: Caller, asked: Fork) -> Any:
    """A new session with everything up to and including one message, or before one."""
    return lifecycle.fork_session(owner=caller.user, **asked.dict())


@_method("session/record", result=TurnOut, writes=True)
def record_turn(caller: Caller, asked: Record) -> Any:
    """Keep a turn that the caller ran with its own model client."""
    recorded = lifecycle.record_turn(
        asked.session_id, owner_id=caller.owner_id, turn=asked.turn(), idempotency_key=asked.idempotency_key
    )
    return recorded.turn


@_method("session/compact", result=CompactionOut, writes=True, may_wait=True)
def compact(caller: Caller, asked: Compact) -> Any:
    """Summarise everything but the newest turns."""
    load_session(asked.session_id, owner_id=caller.owner_id)
    if asked.wait:
        return compact_now(asked.session_id)
    return load_run(request_manual(asked.session_id))


@_method("turn/start", result=TurnOut, writes=True, may_wait=True)
async def start_turn(caller: Caller, asked: StartTurn) -> Any:
    """Write the message and start the turn; the answer comes at once, or when it has ended or waits for somebody."""
    started = await lifecycle.start_turn(asked.session_id, owner_id=caller.owner_id, **asked.arguments())
    return await _turn(started.turn, caller, wait=asked.wait)


@_method("turn/answer", result=TurnOut, writes=True)
async def answer_tools(caller: Caller, asked: AnswerTools) -> Any:
    """Give a suspended turn results of the caller's tools; it goes on when nothing is waited for."""
    results = [suspended.ToolResult(**result.dict()) for result in asked.results]
    answered = await lifecycle.answer_tools(asked.session_id, asked.turn_id, owner_id=caller.owner_id, results=results)
    return answered.turn


@_method("turn/approve", result=TurnOut, writes=True)
async def decide_approval(caller: Caller, asked: Decide) -> Any:
    """Say yes or no to a tool call that a turn waits for; a note with a no is told to the model."""
    return await lifecycle.decide_approval(
        asked.session_id, asked.part_id, owner_id=caller.owner_id, approved=asked.approved, note=asked.note
    )


@_method("turn/wait", result=TurnOut, may_wait=True)
async def wait_turn(caller: Caller, asked: OfTurn) -> Any:
    """The turn when it has ended or waits for somebody, wherever it runs."""
    return await lifecycle.wait_turn(asked.session_id, asked.turn_id, owner_id=caller.owner_id)


@_method("turn/read", result=TurnOut)
def read_turn(caller: Caller, asked: OfTurn) -> Any:
    """One turn with its state, messages, usage and cost."""
    load_session(asked.session_id, owner_id=caller.owner_id)
    return load_turn(asked.turn_id, session_id=asked.session_id)


@_method("inbox/send", result=InboxMessageOut, writes=True)
async def send_message(caller: Caller, asked: SendMessage) -> Any:
    """Put a message into the inbox of a session in host mode, which reads it in a turn when it is idle."""
    return await lifecycle.send_message(
        asked.session_id, owner_id=caller.owner_id, draft=asked.draft(), idempotency_key=asked.idempotency_key
    )


@_method("inbox/list", result=InboxList)
def read_inbox(caller: Caller, asked: ReadInbox) -> dict[str, Any]:
    """Messages to a session, oldest first."""
    return inbox_page(
        asked.session_id, owner_id=caller.owner_id, waiting=asked.waiting, after=asked.start, limit=asked.limit
    )


@_method("context/get", result=dict[str, Any])
def get_context(caller: Caller, asked: GetContext) -> dict[str, Any]:
    """The active context now, or as of an event."""
    return show_context(asked.session_id, owner_id=caller.owner_id, provider=asked.format, at=asked.at)


@_method("search", result=SearchOut)
def find(caller: Caller, asked: Search) -> Any:
    """Find words or a pattern in everything that was said, in context or not."""
    where = where_to_search(caller.owner_id, asked.scope, session_id=asked.session_id, summary_id=asked.summary_id)
    return search_out(search(where, asked.q, mode=asked.mode, limit=asked.limit, cursor=asked.cursor))


@_method("events/list", result=EventList)
def list_events(caller: Caller, asked: After) -> dict[str, Any]:
    """Events after a place, in order."""
    return event_page(asked.session_id, owner_id=caller.owner_id, after=asked.start, limit=asked.limit)


@_method("events/subscribe", result=dict[str, Any])
def subscribe(caller: Caller, asked: OfSession) -> dict[str, Any]:
    """Only for a standing connection, which has a method of its own under this name.

    :raises InvalidRequest: always.
    """
    raise InvalidRequest(
        "One request over HTTP has no connection to send events on. Follow GET /api/sessions/{id}/events instead."
    )


async def _turn(turn: TurnRecord, caller: Caller, *, wait: bool) -> TurnRecord:
    if wait:
        turn = await lifecycle.wait_turn(turn.session_id, turn.id, owner_id=caller.owner_id)
    return turn


async def respond(text: str | bytes, caller: Caller) -> str | None:
    """What is answered to one text of a client: a response, a list of them, or nothing to notifications."""
    try:
        asked = read_json(text)
    except InvalidRequest as error:
        return write(failure(None, error, PARSE_ERROR))
    return await answer(asked, caller)


async def answer(asked: Any, caller: Caller, methods: Methods = METHODS) -> str | None:
    """The same to what was read of it: one request, or a batch of them."""
    if not isinstance(asked, list):
        response = await answer_one(asked, caller, methods)
        return None if response is None else write(response)
    if not 0 < len(asked) <= BATCH_LIMIT:
        return write(failure(None, InvalidRequest(f"A batch has 1 to {BATCH_LIMIT} requests."), INVALID_REQUEST))
    responses = [await answer_one(one, caller, methods) for one in asked]
    kept = [response for response in responses if response is not None]
    return write(kept) if kept else None


async def answer_one(asked: Any, caller: Caller, methods: Methods) -> dict[str, Any] | None:
    """The response to one request; ``None`` to a notification, which gets none even when it fails."""
    if not is_request(asked):
        return failure(None, InvalidRequest("This is no JSON-RPC 2.0 request."), INVALID_REQUEST)
    response = await _call(asked, caller, methods)
    return response if "id" in asked else None


def may_wait(asked: Any) -> bool:
    """Whether the answer may take minutes."""
    if isinstance(asked, list):
        return any(map(may_wait, asked))
    wanted = METHODS.get(asked["method"]) if is_request(asked) else None
    return wanted is not None and wanted.may_wait


def is_request(asked: Any) -> bool:
    """Whether a value is a request object (section 4)."""
    if not isinstance(asked, dict) or asked.get("jsonrpc") != "2.0" or not isinstance(asked.get("method"), str):
        return False
    identity = asked.get("id")
    return isinstance(identity, Id) and not isinstance(identity, bool)


async def _call(asked: dict[str, Any], caller: Caller, methods: Methods) -> dict[str, Any]:
    identity, name = asked.get("id"), asked["method"]
    wanted = methods.get(name)
    if wanted is None:
        return failure(
            identity, NotFound("There is no such method. Ask 'initialize' which there are."), METHOD_NOT_FOUND
        )
    try:
        result = await perform(wanted, asked.get("params", {}), caller)
        return {"jsonrpc": "2.0", "id": identity, "result": result}
    except Exception as exception:
        return failure(identity, as_error(exception, asked=f"JSON-RPC {name}"))


def failure(identity: Id, error: MnesisError, number: int = 0) -> dict[str, Any]:
    """An error as a response; ``number`` where the specification has a closer one than the registry."""
    body = {
        "code": number or error.rpc_code,
        "message": error.message,
        "data": {"code": error.code, "details": error.details},
    }
    return {"jsonrpc": "2.0", "id": identity, "error": body}


def write(value: Any) -> str:
    """A response on one line. Lone surrogates leave escaped, as they came."""
    return json.dumps(value, cls=JSONEncoder)
