"""The OpenAI-compatible door: chat completions, streamed or whole, and the list of models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from ninja import Router

from agents_app.completions import Asked, ask, follow_answer, head_of
from agents_app.openai_schemas import CompletionIn
from mnesis_core.completions import Answered, CompletionRequest, read_completion, read_end, read_error, read_text
from mnesis_core.endings import ModelError
from mnesis_core.errors import MnesisError
from mnesis_core.llm import ModelSpec
from sessions_app.asking import owner_id
from sessions_app.conf import get_spec, list_models
from sessions_app.faults import as_error
from sessions_app.viewing import viewer_of

router = Router(tags=["openai"])

SESSION, TURN, UNUSED = "X-Mnesis-Session", "X-Mnesis-Turn", "X-Mnesis-Unused"
Answer = TypeVar("Answer", HttpResponse, StreamingHttpResponse)
DONE = "data: [DONE]\n\n"


@router.post("/chat/completions", response=None, summary="Answer a chat")
async def chat_completions(request: HttpRequest, body: CompletionIn) -> HttpResponse | StreamingHttpResponse:
    """One answer, whole or as server-sent events. ``X-Mnesis-Session`` names the session that holds the history."""
    wanted = body.request(request.headers.get(SESSION, ""))
    key = request.headers.get("Idempotency-Key") or None
    asked = await ask(wanted, owner=request.user, viewer=viewer_of(request), idempotency_key=key)  # type: ignore[arg-type]
    pieces = follow_answer(asked)
    # Awaited before the answer begins, so that a call that fails at once has its status, streamed or not.
    first = await anext(pieces)
    if body.stream:
        chunks = _chunks(asked, first, pieces, include_usage=body.include_usage)
        return _headed(StreamingHttpResponse(chunks, content_type="text/event-stream"), asked, wanted)
    whole: HttpResponse = JsonResponse(read_completion(await _last(first, pieces)))
    return _headed(whole, asked, wanted)


@router.get("/models", response=None, summary="List models")
def models(request: HttpRequest) -> HttpResponse:
    """The models that may be asked."""
    return JsonResponse({"object": "list", "data": [_model(spec) for spec in list_models(user_id=owner_id(request))]})


@router.get("/models/{path:name}", response=None, summary="Read a model")
def model(request: HttpRequest, name: str) -> HttpResponse:
    """One model."""
    return JsonResponse(_model(get_spec(name, user_id=owner_id(request))))


def openai_error(error: MnesisError, status: int = 0) -> HttpResponse:
    """An error as OpenAI's clients read it; ``status`` where HTTP has a closer one than the registry."""
    response = JsonResponse(read_error(error), status=status or error.status)
    if isinstance(error, ModelError):
        # The call was tried again here, and is in the record; a client that repeats the request asks twice.
        response.headers["x-should-retry"] = "false"
    if error.details.get("retry_after"):
        response.headers["Retry-After"] = error.details["retry_after"]
    return response


def _headed(response: Answer, asked: Asked, wanted: CompletionRequest) -> Answer:
    headers = {
        SESSION: asked.session.id,
        TURN: asked.started.turn.id,
        UNUSED: ", ".join(wanted.unused),
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    for name, value in headers.items():
        response.headers[name] = value
    return response


async def _last(first: str | Answered, pieces: AsyncIterator[str | Answered]) -> Answered:
    piece = first
    while isinstance(piece, str):
        piece = await anext(pieces)
    return piece


async def _chunks(
    asked: Asked, first: str | Answered, pieces: AsyncIterator[str | Answered], *, include_usage: bool
) -> AsyncIterator[str]:
    """The answer as server-sent events; what goes wrong on the way is the last of them."""
    head, is_first, piece = head_of(asked), True, first
    try:
        while isinstance(piece, str):
            yield _event(read_text(head, piece, is_first=is_first))
            is_first, piece = False, await anext(pieces)
        for end in read_end(piece, include_usage=include_usage, is_first=is_first):
            yield _event(end)
        yield DONE
    except Exception as problem:
        # A server may leave the connection of a failed generator open for ever.
        yield _event(read_error(as_error(problem, asked=f"the stream of turn {head.turn_id}")))


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _model(spec: ModelSpec) -> dict[str, Any]:
    return {
        "id": spec.alias,
        "object": "model",
        "created": 0,
        "owned_by": "mnesis",
        "context_window": spec.context_window,
        "max_output_tokens": spec.max_output_tokens,
    }
