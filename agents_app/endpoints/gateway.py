"""The gateway: a client's own request goes on to the provider byte for byte, and so does the answer, while both are recorded.

A request goes through it where its header says so, else its key, else its model's entry in the catalogue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from agents_app.endpoints.answers import SESSION, TURN
from agents_app.turns import gateway
from agents_app.turns.runner import runner
from mnesis_core.errors import InvalidRequest, NotReady
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.network.rate_limits import MODES
from mnesis_core.providers.passing import Exchange, Target, target_of
from mnesis_core.text import read_json
from mnesis_core.turns.gateway import GatewayRequest, Protocol, program_of, read_request
from sessions_app.assistants.assistant_store import PREFIX
from sessions_app.callers import owner_id, remembered
from sessions_app.conf import gateway_aliases, get_spec, passes_on_unrecorded
from sessions_app.database.outages import log_outage, outage_of
from sessions_app.database.threads import db

logger = logging.getLogger(__name__)
MODE, RECORDED = "X-Mnesis-Mode", "X-Mnesis-Recorded"
_, GATEWAY, SERVER = MODES


async def pass_on(
    request: HttpRequest, protocol: Protocol, *, path: str = ""
) -> HttpResponse | StreamingHttpResponse | None:
    """Pass a request on and return the provider's answer; ``None`` where it does not go through the gateway.

    :param path: what follows the protocol's address: a question about a request, of which nothing is recorded
    :raises InvalidRequest: the header names no mode, or the body is no JSON object that names a model.
    :raises MnesisError: the record does not take the request, or no answer has begun.
    """
    mode = request.headers.get(MODE, "").lower()
    if mode not in MODES:
        raise InvalidRequest(f"{MODE} is {GATEWAY} or {SERVER}", field=MODE)
    mode = mode or getattr(request, "key_mode", "")
    if mode == SERVER or (not mode and not await db(_is_alias_of_gateway, request.body)):
        return None
    headers = {name.lower(): value for name, value in request.headers.items()}
    wanted = read_request(protocol, request.body, headers)
    if wanted.model.startswith(PREFIX):
        raise InvalidRequest(
            f"An assistant cannot be asked through the gateway, which sends requests on unchanged. Send {MODE}: {SERVER}.",
            field="model",
        )

    def aim() -> tuple[ModelSpec, Target]:
        named = wanted.model, owner_id(request)
        spec = remembered("model", named, lambda name: get_spec(name[0], user_id=name[1]))
        query = request.META.get("QUERY_STRING", "")
        return spec, target_of(spec, protocol, headers.items(), path=path, query=query)

    if path:
        return await pass_unrecorded(wanted, *await db(aim), {RECORDED: "no"})
    try:
        call = await gateway.start(
            wanted,
            session=headers.get(SESSION.lower(), ""),
            owner=request.user,  # type: ignore[arg-type]
            program=program_of(headers.get("user-agent", "")),
            aim=aim,
        )
        ours = {SESSION: call.session.id, TURN: call.turn.id}
        return await _answer(call.exchange, ours, leave=partial(runner.interrupt, call.turn.id))
    except Exception as problem:
        is_outage = isinstance(problem, NotReady) or outage_of(problem) is not None
        if not is_outage or not passes_on_unrecorded():
            raise
        log_outage(logger, "Requests through the gateway go on unrecorded", problem)
        return await pass_unrecorded(wanted, *await db(aim), {RECORDED: "no"})


async def pass_unrecorded(
    wanted: GatewayRequest, spec: ModelSpec, target: Target, ours: Mapping[str, str]
) -> HttpResponse | StreamingHttpResponse:
    """Pass a request on of which nothing is recorded."""
    exchange = Exchange()
    running = asyncio.ensure_future(gateway.pass_bytes(wanted, spec, target, exchange))
    return await _answer(exchange, ours, leave=running.cancel)


def _is_alias_of_gateway(body: bytes) -> bool:
    """Return whether a request names a model that is asked through the gateway; one that names none is not told so here."""
    aliases = gateway_aliases()
    if not aliases:
        return False
    try:
        value = read_json(body)
    except InvalidRequest:
        return False
    return isinstance(value, dict) and value.get("model") in aliases


async def _answer(
    exchange: Exchange, ours: Mapping[str, str], *, leave: Callable[[], Any]
) -> HttpResponse | StreamingHttpResponse:
    """:param leave: ends the call of a client that has gone: what it got is kept, and the rest is not paid for"""
    try:
        status, headers = await exchange.head()
        content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
        rest: dict[str, Any] = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        rest |= ours
        if "text/event-stream" in content_type and status < 400:
            rest |= {"X-Accel-Buffering": "no"}
            pieces = _pieces(exchange, leave)
            return StreamingHttpResponse(pieces, status=status, content_type=content_type, headers=rest)
        body = b"".join([piece async for piece in exchange.pieces()])
        return HttpResponse(body, status=status, content_type=content_type or "application/octet-stream", headers=rest)
    except BaseException:
        if not exchange.is_over:
            leave()
        raise


async def _pieces(exchange: Exchange, leave: Callable[[], Any]) -> AsyncIterator[bytes]:
    try:
        async for piece in exchange.pieces():
            yield piece
    finally:
        if not exchange.is_over:
            leave()
