"""OpenAI's Conversations: sessions under ids of another form, whose labels are the metadata and whose messages are items."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict

from agents_app.endpoints.responses import head_of_turn, page_of
from agents_app.turns import lifecycle
from mnesis_core.errors import InvalidRequest, MessageNotFoundError
from mnesis_core.messages import StoredMessage
from mnesis_core.records import SessionRecord
from mnesis_core.turns.response_requests import conversation_id, read_conversation_id, read_metadata
from mnesis_core.turns.responses import Item, items_of_message
from sessions_app.callers import owner_id
from sessions_app.record import message_queries
from sessions_app.record.branch_queries import path_in
from sessions_app.record.session_queries import load_session, message_of_part
from sessions_app.record.turn_queries import load_turns

MOST_MESSAGES, MESSAGES = 100, 20  # of a page
_OF_MESSAGE = re.compile(r"(?:msg|rs)_[0-9A-Z]{26}_M([1-9][0-9]{0,17})")
_OF_CALL = re.compile(r"(?:fc|fco|ctc|ctco)_[0-9A-Z]{26}_([0-9A-Z]{26})")
router = Router(tags=["conversations"])


class ConversationIn(BaseModel):
    """A conversation, or what changes of one."""

    model_config = ConfigDict(extra="allow")

    metadata: dict[str, Any] | None = None
    items: list[dict[str, Any]] | None = None


@router.post("/conversations", response=None, summary="Create a conversation")
def create_conversation(request: HttpRequest, body: ConversationIn) -> HttpResponse:
    """A new session without messages."""
    if body.items:
        raise InvalidRequest("items are not taken here: send them as the input of its first response", field="items")
    metadata = read_metadata(body.metadata)
    owner: Any = request.user
    session = lifecycle.create_session(owner=owner, labels=metadata, origin="responses")
    return JsonResponse(_conversation(session))


@router.get("/conversations/{name}", response=None, summary="Read a conversation")
def read_conversation(request: HttpRequest, name: str) -> HttpResponse:
    """A session, with its labels as metadata."""
    return JsonResponse(_conversation(_find(request, name)))


@router.post("/conversations/{name}", response=None, summary="Change a conversation")
def update_conversation(request: HttpRequest, name: str, body: ConversationIn) -> HttpResponse:
    """Give it other metadata."""
    session = lifecycle.update_session(
        read_conversation_id(name), owner_id=owner_id(request), labels=read_metadata(body.metadata)
    )
    return JsonResponse(_conversation(session))


@router.delete("/conversations/{name}", response=None, summary="Hide a conversation")
def delete_conversation(request: HttpRequest, name: str) -> HttpResponse:
    """Hide a session for good; the record keeps every row."""
    session = _find(request, name)
    lifecycle.delete_session(session.id, owner_id=session.owner_id)
    return JsonResponse({"id": conversation_id(session.id), "object": "conversation.deleted", "deleted": True})


@router.get("/conversations/{name}/items", response=None, summary="List the items of a conversation")
def list_items(
    request: HttpRequest, name: str, limit: int = MESSAGES, order: str = "desc", after: str = ""
) -> HttpResponse:
    """Its messages as items, on the chosen branch, newest first; ``limit`` counts messages, whose items stay together."""
    session = _find(request, name)
    if not 1 <= limit <= MOST_MESSAGES or order not in ("asc", "desc"):
        raise InvalidRequest(f"limit is 1 to {MOST_MESSAGES}, and order asc or desc", field="limit")
    is_newest_first = order == "desc"
    place = None
    if named := _OF_MESSAGE.fullmatch(after):
        place = int(named[1])
    elif named := _OF_CALL.fullmatch(after):
        message_id = message_of_part(f"part_{named[1]}", session_id=session.id)
        place = message_queries.seq_of_message(message_id, session_id=session.id)
    elif after:
        raise MessageNotFoundError("There is no such item in this conversation.")
    bounds: dict[str, Any] = {"before": place} if is_newest_first else {"after": place or 0}
    found = message_queries.load_messages(
        session.id, **bounds, limit=limit + 1, newest=is_newest_first, path=path_in(session)
    )
    ordered = found[::-1] if is_newest_first else found
    items = _items(session, ordered[:limit])
    return JsonResponse(
        page_of([one for of in items for one in (of[::-1] if is_newest_first else of)], has_more=len(found) > limit)
    )


def _find(request: HttpRequest, name: str) -> SessionRecord:
    return load_session(read_conversation_id(name), owner_id=owner_id(request))


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
