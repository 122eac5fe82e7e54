"""Anthropic's Messages: answers, whole or streamed, and the count of a request's tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict

from agents_app.endpoints import gateway
from agents_app.endpoints.answers import (
    SESSION,
    Piece,
    RunningAnswer,
    Unread,
    ask,
    follow_thinking,
    head_of,
    headers_of,
    read_body,
)
from agents_app.turns.defaults import spec_named
from files_app.pictures import size_documents
from mnesis_core import errors
from mnesis_core.files.pictures import rule_for
from mnesis_core.llm.tokens import first_calibration
from mnesis_core.turns import anthropic
from mnesis_core.turns.gateway import Protocol
from mnesis_core.turns.requests import Answered
from sessions_app.callers import owner_id
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db, work
from sessions_app.live import viewer_of
from sessions_app.record.actor import current_request

REQUEST_ID = "request-id"  # as Anthropic's clients look for it
PING_SECONDS = 15.0  # A stream with nothing to say says so, for proxies that end a silent connection.
router = Router(tags=["anthropic"])


class MessageIn(BaseModel):
    """One message of the caller's history, whose blocks the core reads."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class MessagesIn(Unread):  # ninja's own kind would lose what has no field
    """A request of Anthropic's Messages."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[MessageIn]
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None


@router.post("/messages", response=None, summary="Answer messages")
async def messages(request: HttpRequest, body: MessagesIn) -> HttpResponse | StreamingHttpResponse:
    """One answer, whole or as server-sent events. ``X-Mnesis-Session`` names the session that holds the history."""
    if (passed := await gateway.pass_on(request, Protocol.MESSAGES)) is not None:
        return passed
    body = read_body(request, MessagesIn)
    given = body.model_dump(exclude_unset=True)
    wanted = anthropic.read_request(given, session=request.headers.get(SESSION, ""))
    thinks = anthropic.shows_thinking(given)
    key = request.headers.get("Idempotency-Key") or None
    asked = await ask(wanted, owner=request.user, viewer=viewer_of(request), idempotency_key=key)  # type: ignore[arg-type]
    pieces = follow_thinking(asked)
    # Awaited before the answer begins, so that a call that fails at once has its status, streamed or not.
    piece = await anext(pieces)
    headers = await db(headers_of, asked, wanted, owner=owner_id(request), called=anthropic.PARAMETERS)
    headers |= {REQUEST_ID: current_request()}
    if body.stream:
        stream = _stream(asked, piece, pieces, thinks=thinks, request_id=headers[REQUEST_ID])
        return StreamingHttpResponse(stream, content_type="text/event-stream", headers=headers)
    while not isinstance(piece, Answered):
        piece = await anext(pieces)
    return JsonResponse(anthropic.read_answer(piece, thinks=thinks), headers=headers)


@router.post("/messages/count_tokens", response=None, summary="Count tokens")
async def count_tokens(request: HttpRequest, body: MessagesIn) -> HttpResponse | StreamingHttpResponse:
    """About how many tokens the request's own messages and tools have; nothing is asked or recorded."""
    if (passed := await gateway.pass_on(request, Protocol.MESSAGES, path="/count_tokens")) is not None:
        return passed
    return await work(_count, read_body(request, MessagesIn), owner_id(request))


def _count(body: MessagesIn, person: int) -> HttpResponse:
    wanted = anthropic.read_request(body.model_dump(exclude_unset=True), session="")
    spec = spec_named(wanted.model, user_id=person)
    ratio = first_calibration(spec.shared_ratio).ratio
    rule = rule_for(spec.litellm_model)
    sizes = size_documents((sent for said in wanted.messages for sent in said.pictures), rule)
    counted = anthropic.count_tokens(wanted, rule, sizes=sizes, ratio=ratio)
    return JsonResponse({"input_tokens": counted}, headers={REQUEST_ID: current_request()})


def anthropic_error(error: errors.MnesisError, status: int = 0) -> HttpResponse:
    """Return an error as Anthropic's clients read it; ``status`` where HTTP has a closer one than the registry."""
    named = current_request()
    response = JsonResponse(anthropic.read_error(error, request_id=named), status=status or anthropic.status_of(error))
    response.headers[REQUEST_ID] = named
    if isinstance(error, errors.ModelError):
        # The call was tried again here, and is in the record; a client that repeats the request asks twice.
        response.headers["x-should-retry"] = "false"
    return response


async def _stream(
    asked: RunningAnswer,
    piece: Piece,
    pieces: AsyncIterator[Piece],
    *,
    thinks: bool,
    request_id: str,
) -> AsyncIterator[str]:
    """Yield the answer as server-sent events; an error on the way is the last of them."""
    head = head_of(asked)
    events, coming = anthropic.MessageEvents(head, thinks=thinks), None
    try:
        for event in events.begin():
            yield _event(event)
        while not isinstance(piece, Answered):
            for event in events.add(piece):
                yield _event(event)
            coming = asyncio.ensure_future(anext(pieces))
            while not (await asyncio.wait({coming}, timeout=PING_SECONDS))[0]:
                yield _event(anthropic.PING)
            piece = coming.result()
        for event in events.end(piece):
            yield _event(event)
    except Exception as problem:
        # A server may leave the connection of a failed generator open for ever.
        error = to_error(problem, asked=f"the stream of turn {head.turn_id}")
        yield _event(anthropic.read_error(error, request_id=request_id))
    finally:
        if coming is not None:
            coming.cancel()


def _event(value: dict[str, Any]) -> str:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n"
