"""The gateway: a client's own request goes on to the provider byte for byte, and so does the answer, while both are recorded.

A request goes through it where its header says so, else its key, else its model's entry in the catalogue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from agents_app.endpoints.answers import SESSION, TURN
from agents_app.turns import gateway
from agents_app.turns.gateway import GatewayCall
from agents_app.turns.runner import runner
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.providers.passing import target_of
from mnesis_core.turns.gateway import Protocol, program_of, read_request
from sessions_app.callers import owner_id
from sessions_app.conf import get_spec
from sessions_app.database.threads import db

MODE, OURS, GATEWAY = "X-Mnesis-Mode", "server", "gateway"


async def pass_on(request: HttpRequest, protocol: Protocol) -> HttpResponse | StreamingHttpResponse | None:
    """Pass a request on and return the provider's answer; ``None`` where it does not go through the gateway.

    :raises InvalidRequest: the header names no mode, or the body is no JSON object that names a model.
    :raises MnesisError: the record does not take the request, or no answer has begun.
    """
    mode = request.headers.get(MODE, "").lower()
    if mode not in ("", OURS, GATEWAY):
        raise InvalidRequest(f"{MODE} is {GATEWAY} or {OURS}", field=MODE)
    if mode != GATEWAY:
        return None
    headers = {name.lower(): value for name, value in request.headers.items()}
    wanted = read_request(protocol, request.body, headers)
    spec = await db(_spec, wanted.model, owner_id(request))
    target = target_of(spec, protocol, headers.items(), query=request.META.get("QUERY_STRING", ""))
    call = await gateway.start(
        wanted,
        session=headers.get(SESSION.lower(), ""),
        owner=request.user,  # type: ignore[arg-type]
        program=program_of(headers.get("user-agent", "")),
        spec=spec,
        target=target,
    )
    return await _answer(call)


def _spec(alias: str, user_id: int) -> ModelSpec:
    return get_spec(alias, user_id=user_id)


async def _answer(call: GatewayCall) -> HttpResponse | StreamingHttpResponse:
    exchange, ours = call.exchange, {SESSION: call.session.id, TURN: call.turn.id}
    try:
        status, headers = await exchange.head()
        content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
        rest: dict[str, Any] = {name: value for name, value in headers.items() if name.lower() != "content-type"} | ours
        if "text/event-stream" in content_type and status < 400:
            rest |= {"X-Accel-Buffering": "no"}
            return StreamingHttpResponse(_pieces(call), status=status, content_type=content_type, headers=rest)
        body = b"".join([piece async for piece in exchange.pieces()])
        return HttpResponse(body, status=status, content_type=content_type or "application/octet-stream", headers=rest)
    except BaseException:
        _leave(call)
        raise


async def _pieces(call: GatewayCall) -> AsyncIterator[bytes]:
    try:
        async for piece in call.exchange.pieces():
            yield piece
    finally:
        _leave(call)


def _leave(call: GatewayCall) -> None:
    """End the turn of a client that has gone: what it got is kept, and the provider is not paid for the rest."""
    if not call.exchange.is_over:
        runner.interrupt(call.turn.id)
