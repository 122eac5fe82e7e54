"""OpenAI's Responses API: answers as items, whole or as events, which can be read, continued and cancelled by their id;
and its Conversations.

The id of a response names its turn, so every turn of a person can be read here, whichever endpoint started it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict

from agents_app.endpoints import gateway
from agents_app.endpoints.answers import (
    SESSION,
    Piece,
    Unread,
    answer_of,
    ask,
    follow_thinking,
    headers_of,
    read_body,
)
from agents_app.turns import lifecycle
from agents_app.turns.defaults import spec_named
from mnesis_core import errors
from mnesis_core.errors import InvalidRequest, MessageNotFoundError
from mnesis_core.llm.parameters import is_json_format
from mnesis_core.messages import StoredMessage
from mnesis_core.records import SessionRecord, TurnRecord, TurnState
from mnesis_core.text import read_json
from mnesis_core.turns import response_requests as requests
from mnesis_core.turns import responses
from mnesis_core.turns.gateway import Protocol
from mnesis_core.turns.options import read_options
from mnesis_core.turns.requests import NEW, Answered, CompletionRequest, Head
from mnesis_core.turns.response_requests import conversation_id, read_conversation_id, read_metadata
from mnesis_core.turns.responses import Item, items_of_message
from sessions_app.callers import owner_id
from sessions_app.conf import instructions_of, users_are_sessions
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db
from sessions_app.live import viewer_of
from sessions_app.record import message_queries
from sessions_app.record.branch_queries import path_in
from sessions_app.record.session_queries import load_session, message_of_part, session_of
from sessions_app.record.turn_queries import load_turn, load_turns

CANCEL_SECONDS = 10.0  # A cancelled turn ends within moments, unless its process is gone.
router = Router(tags=["responses"])
MOST_MESSAGES, MESSAGES = 100, 20  # of a page
_OF_MESSAGE = re.compile(r"(?:msg|rs)_[0-9A-Z]{26}_M([1-9][0-9]{0,17})")
_OF_CALL = re.compile(r"(?:fc|fco|ctc|ctco)_[0-9A-Z]{26}_([0-9A-Z]{26})")
_OF_RESPONSE = re.compile(r"[a-z]{2,3}_([0-9A-Z]{26}(?:_[0-9A-Z]{26})?)_[0-9]{1,9}")
conversations_router = Router(tags=["conversations"])


class ResponseIn(Unread):  # ninja's own kind would lose what has no field
    """A request of OpenAI's Responses API, which the core reads."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | list[dict[str, Any]]


@router.post("/responses", response=None, summary="Create a response")
async def create_response(request: HttpRequest, body: ResponseIn) -> HttpResponse | StreamingHttpResponse:
    """One answer, whole or as server-sent events."""
    if (passed := await gateway.pass_on(request, Protocol.RESPONSES)) is not None:
        return passed
    body = read_body(request, ResponseIn)
    given = body.model_dump(exclude_unset=True)
    wanted = requests.read_response_request(given, session=request.headers.get(SESSION, ""))
    wanted = await db(_placed, wanted, owner_id(request))
    key = request.headers.get("Idempotency-Key") or None
    asked = await ask(wanted.request, owner=request.user, viewer=viewer_of(request), idempotency_key=key)  # type: ignore[arg-type]
    pieces = follow_thinking(asked)
    # Awaited before the answer begins, so that a call that fails at once has its status, streamed or not.
    first = await anext(pieces)
    headers = await db(headers_of, asked, wanted.request, owner=owner_id(request), called=requests.PARAMETERS)
    head = head_of_turn(asked.session, asked.started.turn, asked.answered_part, **wanted.request.repeated)
    shows = requests.includes_encrypted(given.get("include"))
    writer = responses.ResponseWriter(replace(head, namespaces=wanted.namespaces, shows_encrypted=shows))
    if given.get("stream"):
        return StreamingHttpResponse(_events(writer, first, pieces), content_type="text/event-stream", headers=headers)
    async for _ in _written(writer, first, pieces):
        pass
    return JsonResponse(writer.response, headers=headers)


@router.get("/responses/{name}", response=None, summary="Read a response")
def read_response(request: HttpRequest, name: str) -> HttpResponse:
    """A response as the record has it, finished or not."""
    if request.GET.get("stream", "").lower() in ("true", "1"):
        raise errors.InvalidRequest(
            "A response is streamed once, while it is created. Leave out stream.", field="stream"
        )
    included = [*request.GET.getlist("include"), *request.GET.getlist("include[]")]
    shows = requests.includes_encrypted(included)
    return JsonResponse(_past_response(name, owner_id(request), shows_encrypted=shows))


@router.delete("/responses/{name}", response=None, summary="Hide a response")
def delete_response(request: HttpRequest, name: str) -> HttpResponse:
    """Hide a response for good with its session, where that has nothing else; the record keeps every row."""
    session, turn, part = _find(name, owner_id(request))
    if session.turn_seq > 1 or part:
        raise errors.ImmutableFieldError(
            "The record is append-only: one response of several cannot be deleted. Delete the conversation to hide it.",
            session_id=session.id,
        )
    lifecycle.delete_session(session.id, owner_id=session.owner_id)
    return JsonResponse({"id": requests.response_id(turn.id), "object": "response", "deleted": True})


@router.get("/responses/{name}/input_items", response=None, summary="List the input of a response")
def input_items(request: HttpRequest, name: str) -> HttpResponse:
    """What the request of a response brought, without what its session had before."""
    session, turn, part = _find(name, owner_id(request))
    messages = message_queries.load_messages_by_ids(turn.message_ids, session_id=session.id)
    items = responses.items_of_request(messages, head_of_turn(session, turn, part))
    ordered = items if request.GET.get("order") == "asc" else items[::-1]
    return JsonResponse(page_of(ordered, has_more=False))


@router.post("/responses/{name}/cancel", response=None, summary="Cancel a response")
async def cancel_response(request: HttpRequest, name: str) -> HttpResponse:
    """End the turn of a response that runs, or waits; what was said is kept. One that has ended stays as it is."""
    person = owner_id(request)
    session, turn, _ = await db(_find, name, person)
    if session.running_turn_id == turn.id:
        with suppress(errors.SessionNotRunning):
            await db(lifecycle.interrupt, session.id, owner_id=person)
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await lifecycle.wait_turn(session.id, turn.id, owner_id=person)
    return JsonResponse(await db(_past_response, name, person))


def page_of(items: list[responses.Item], *, has_more: bool) -> dict[str, Any]:
    first, last = (items[0]["id"], items[-1]["id"]) if items else ("", "")
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more}


def _placed(wanted: requests.ResponseRequest, owner: int) -> requests.ResponseRequest:
    """Return a request with the session and the message that it continues.

    :raises TurnNotFoundError: the response that it names is not there, or another person's.
    """
    asked = _with_reasoning(replace(wanted.request, may_change_model=True), owner)
    turn_id = wanted.previous or wanted.referred
    if turn_id and not asked.session:
        session, turn, _ = _find(requests.response_id(turn_id), owner)
        follows = asked.messages[-1:] and asked.messages[-1].role != "tool"
        after = turn.message_ids[-1] if follows and wanted.previous and turn.message_ids else ""
        asked = replace(asked, session=session.id, after=after)
    if asked.session == NEW and asked.user and users_are_sessions():
        asked = replace(asked, session="")
    return replace(wanted, request=asked)


def _with_reasoning(request: CompletionRequest, owner: int) -> CompletionRequest:
    """Return a request whose encrypted reasoning says which model made it.

    It is the record's, to the letter, where its id names a turn of this person; without one it is taken for that of
    the requested model, which refuses what another has made.
    """
    given = [
        (part, read_json(part.data)) for said in request.messages for parts in said.reasoned.values() for part in parts
    ]
    if not given:
        return request
    turns = {turn for _, item in given if (turn := requests.turn_of_item(item.get("id")))}
    kept = {responses.encrypted_in(part): part for part in message_queries.find_reasoning(turns, owner_id=owner)}
    provider, _, model = spec_named(request.model, user_id=owner).litellm_model.partition("/")
    known = {
        part: kept.get(item["encrypted_content"]) or replace(part, provider=provider, model=model)
        for part, item in given
    }
    messages = (
        replace(said, reasoned={id: tuple(known[part] for part in parts) for id, parts in said.reasoned.items()})
        for said in request.messages
    )
    return replace(request, messages=tuple(messages))


def _find(name: str, owner: int) -> tuple[SessionRecord, TurnRecord, str]:
    """Return the session and the turn of a response, and the call whose result it answers, or an empty text.

    :raises TurnNotFoundError: there is no such response, or it is another person's.
    """
    turn_id, part_id = requests.read_response_id(name)
    try:
        session = load_session(session_of(turn_id), owner_id=owner)
    except errors.NotFound:
        raise errors.TurnNotFoundError("There is no such response, or it is not yours.") from None
    return session, load_turn(turn_id, session_id=session.id), part_id


def head_of_turn(session: SessionRecord, turn: TurnRecord, part: str = "", **given: Any) -> responses.ResponseHead:
    options = read_options(turn.options)
    given = given or ({} if part else dict(options.repeated))  # A request with results only resumes the turn.
    prompt = instructions_of(session) if options.system_prompt is None else options.system_prompt
    return responses.ResponseHead(
        turn_id=turn.id,
        session_id=session.id,
        model=turn.model,
        created=int(turn.created_at.timestamp()),
        answered_part=part,
        request=responses.repeated(replace(options, system_prompt=prompt or None), **given),
        freeform=responses.freeform_of(options.tools),
    )


def _past_response(name: str, owner: int, *, shows_encrypted: bool = False) -> dict[str, Any]:
    session, turn, part = _find(name, owner)
    messages = message_queries.load_messages_by_ids(turn.message_ids, session_id=session.id)
    options = read_options(turn.options)
    found, calls = responses.answer_in(messages, options.tool_names, part)
    head = Head(turn_id=turn.id, session_id=turn.session_id, model=turn.model, created=0)
    answered = answer_of(head, turn, found, calls, is_json=is_json_format(options.parameters))
    if calls and turn.state == TurnState.SUSPENDED:
        answered = replace(answered, state=TurnState.COMPLETED)
    has_failed = answered.state in (TurnState.FAILED, TurnState.INTERRUPTED)
    error = errors.error_of(turn.error_code or "", turn.error_message or "") if has_failed else None
    shown = replace(head_of_turn(session, turn, part), shows_encrypted=shows_encrypted)
    return responses.read_response(shown, answered, error)


async def _written(
    writer: responses.ResponseWriter, first: Piece, pieces: AsyncIterator[Piece]
) -> AsyncIterator[responses.Event]:
    piece = first
    for event in writer.begin():
        yield event
    while not isinstance(piece, Answered):
        for event in writer.take(piece):
            yield event
        piece = await anext(pieces)
    for event in writer.end(piece):
        yield event


async def _events(writer: responses.ResponseWriter, first: Piece, pieces: AsyncIterator[Piece]) -> AsyncIterator[str]:
    """Yield a response as server-sent events; a failure on the way is the last of them."""
    try:
        async for event in _written(writer, first, pieces):
            yield _event(event)
    except Exception as problem:
        # A server may leave the connection of a failed generator open for ever.
        for event in writer.fail(to_error(problem, asked=f"the stream of turn {writer.head.turn_id}")):
            yield _event(event)


def _event(event: responses.Event) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


# OpenAI's Conversations: sessions under ids of another form, whose labels are the metadata and whose messages are
# items.


class ConversationIn(BaseModel):
    """A conversation, or what changes of one."""

    model_config = ConfigDict(extra="allow")

    metadata: dict[str, Any] | None = None
    items: list[dict[str, Any]] | None = None


class ItemsIn(BaseModel):
    """Items that a conversation is to have."""

    model_config = ConfigDict(extra="allow")

    items: list[dict[str, Any]]


_NO_ITEM = "There is no such item in this conversation."


@conversations_router.post("/conversations", response=None, summary="Create a conversation")
def create_conversation(request: HttpRequest, body: ConversationIn) -> HttpResponse:
    """A new session, with the messages that ``items`` are."""
    metadata = read_metadata(body.metadata)
    messages, pictures = requests.read_recorded_items(body.items) if body.items else ((), ())
    owner: Any = request.user
    session = lifecycle.create_session(owner=owner, labels=metadata, origin="responses")
    if messages:
        try:
            lifecycle.record_messages(session.id, owner_id=owner.pk, messages=messages, pictures=pictures)
        except errors.MnesisError:
            lifecycle.discard_session(session.id, owner_id=owner.pk)
            raise
    return JsonResponse(_conversation(session))


@conversations_router.get("/conversations/{name}", response=None, summary="Read a conversation")
def read_conversation(request: HttpRequest, name: str) -> HttpResponse:
    """A session, with its labels as metadata."""
    return JsonResponse(_conversation(_find_conversation(request, name)))


@conversations_router.post("/conversations/{name}", response=None, summary="Change a conversation")
def update_conversation(request: HttpRequest, name: str, body: ConversationIn) -> HttpResponse:
    """Give it other metadata."""
    session = lifecycle.update_session(
        read_conversation_id(name), owner_id=owner_id(request), labels=read_metadata(body.metadata)
    )
    return JsonResponse(_conversation(session))


@conversations_router.delete("/conversations/{name}", response=None, summary="Hide a conversation")
def delete_conversation(request: HttpRequest, name: str) -> HttpResponse:
    """Hide a session for good; the record keeps every row."""
    session = _find_conversation(request, name)
    lifecycle.delete_session(session.id, owner_id=session.owner_id)
    return JsonResponse({"id": conversation_id(session.id), "object": "conversation.deleted", "deleted": True})


@conversations_router.get("/conversations/{name}/items", response=None, summary="List the items of a conversation")
def list_items(
    request: HttpRequest, name: str, limit: int = MESSAGES, order: str = "desc", after: str = ""
) -> HttpResponse:
    """Its messages as items, on the chosen branch, newest first; ``limit`` counts messages, whose items stay together."""
    session = _find_conversation(request, name)
    if not 1 <= limit <= MOST_MESSAGES or order not in ("asc", "desc"):
        raise InvalidRequest(f"limit is 1 to {MOST_MESSAGES}, and order asc or desc", field="limit")
    is_newest_first = order == "desc"
    place = _seq_of_item(session, after) if after else None
    bounds: dict[str, Any] = {"before": place} if is_newest_first else {"after": place or 0}
    found = message_queries.load_messages(
        session.id, **bounds, limit=limit + 1, newest=is_newest_first, path=path_in(session)
    )
    ordered = found[::-1] if is_newest_first else found
    items = _items(session, ordered[:limit])
    return JsonResponse(
        page_of([one for of in items for one in (of[::-1] if is_newest_first else of)], has_more=len(found) > limit)
    )


@conversations_router.post("/conversations/{name}/items", response=None, summary="Add items to a conversation")
def create_items(request: HttpRequest, name: str, body: ItemsIn) -> HttpResponse:
    """Messages and calls with their results, as a turn that has ended; no model is asked."""
    messages, pictures = requests.read_recorded_items(body.items)
    session = _find_conversation(request, name)
    recorded = lifecycle.record_messages(
        session.id,
        owner_id=session.owner_id,
        messages=messages,
        pictures=pictures,
        idempotency_key=request.headers.get("Idempotency-Key") or None,
    )
    written = message_queries.load_messages_by_ids(recorded.turn.message_ids, session_id=session.id)
    return JsonResponse(page_of([one for of in _items(session, written) for one in of], has_more=False))


@conversations_router.get("/conversations/{name}/items/{item_id}", response=None, summary="Read an item")
def read_item(request: HttpRequest, name: str, item_id: str) -> HttpResponse:
    """An item, by its id in the conversation or in a response."""
    return JsonResponse(_find_item(_find_conversation(request, name), item_id))


@conversations_router.delete("/conversations/{name}/items/{item_id}", response=None, summary="Refuse to delete an item")
def delete_item(request: HttpRequest, name: str, item_id: str) -> HttpResponse:
    """Always refused: the record is append-only, and what an item said has been part of prompts."""
    session = _find_conversation(request, name)
    _find_item(session, item_id)
    raise errors.ImmutableFieldError(
        "The record is append-only: an item of a conversation cannot be deleted. Delete the conversation to hide it, "
        "or continue an earlier response.",
        session_id=session.id,
    )


def _find_conversation(request: HttpRequest, name: str) -> SessionRecord:
    return load_session(read_conversation_id(name), owner_id=owner_id(request))


def _seq_of_item(session: SessionRecord, item_id: str) -> int:
    """Return the number of the message that an item of a conversation is of.

    :raises NotFound: this is not the id of an item of the conversation
    """
    if named := _OF_MESSAGE.fullmatch(item_id):
        return int(named[1])
    if named := _OF_CALL.fullmatch(item_id):
        message_id = message_of_part(f"part_{named[1]}", session_id=session.id)
        return message_queries.seq_of_message(message_id, session_id=session.id)
    raise MessageNotFoundError(_NO_ITEM)


def _find_item(session: SessionRecord, item_id: str) -> Item:
    """:raises NotFound: the conversation has no such item"""
    if named := _OF_RESPONSE.fullmatch(item_id):
        response = _past_response(f"resp_{named[1]}", session.owner_id)
        items: list[Item] = response["output"] if response["mnesis"]["session_id"] == session.id else []
    else:
        seq = _seq_of_item(session, item_id)
        messages = message_queries.load_messages(session.id, after=seq - 1, before=seq + 1)
        items = [item for of in _items(session, messages) for item in of]
    if (found := next((item for item in items if item["id"] == item_id), None)) is None:
        raise MessageNotFoundError(_NO_ITEM)
    return found


def _conversation(session: SessionRecord) -> dict[str, Any]:
    created = int(session.created_at.timestamp())
    return {
        **{"id": conversation_id(session.id), "object": "conversation", "created_at": created},
        "metadata": session.labels,
        "mnesis": {"session_id": session.id},
    }


def _items(session: SessionRecord, messages: list[StoredMessage]) -> list[list[Item]]:
    turns = load_turns([*{message.turn_id for message in messages if message.turn_id}], session_id=session.id)
    heads = {id: head_of_turn(session, turn) for id, turn in turns.items()}
    return [items_of_message(message, heads[message.turn_id]) for message in messages if message.turn_id]
