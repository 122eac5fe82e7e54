"""The OpenAI-compatible endpoint: Chat Completions, whole or streamed, the list of models, and embeddings."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from ninja import Field, Router, Schema
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
from agents_app.turns.defaults import assistant_named, offered_assistants, spec_named
from mnesis_core import errors
from mnesis_core.errors import InvalidRequest, ModelNotFoundError, RequestTooLarge
from mnesis_core.llm.interface import ModelSpec, ToolCall, ToolSpec
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.providers.litellm_ import abilities_of
from mnesis_core.records import AssistantRecord
from mnesis_core.search.ranking import unpacked
from mnesis_core.text import printable, write_time
from mnesis_core.turns import completions
from mnesis_core.turns.gateway import Protocol
from mnesis_core.turns.requests import SESSION_FIELD, Answered, CompletionRequest, RequestMessage
from sessions_app.assistants.assistant_store import PREFIX
from sessions_app.callers import owner_id
from sessions_app.conf import embedding_spec, get_embedder, list_models
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db, waiting_for
from sessions_app.live import viewer_of
from sessions_app.search.rest import drawing
from sessions_app.search.vector_store import CALL_SECONDS, TEXTS, embed

router = Router(tags=["openai"])
MOST_CHARACTERS = 400_000  # of all texts of a request
embeddings_router = Router(tags=["embeddings"])


class CalledIn(Schema):
    """A function and its arguments, a text that is usually JSON."""

    name: str
    arguments: str = "{}"


class CallIn(Schema):
    """A call in a message of the assistant."""

    id: str
    type: Literal["function"] = "function"
    function: CalledIn


class MessageIn(Schema):
    """One message of the caller's history."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[CallIn] | None = None
    tool_call_id: str = ""

    def said(self, place: int) -> RequestMessage:
        """:raises InvalidRequest: the message holds something other than text, pictures and calls."""
        field = f"messages.{place}.content"
        text, pictures = completions.read_content(self.content, field=field, may_show=self.role in ("user", "tool"))
        return RequestMessage(
            role="system" if self.role == "developer" else self.role,
            text=text,
            pictures=pictures,
            refusal=(self.refusal or "") if self.role == "assistant" else "",
            tool_calls=tuple(
                ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                for call in self.tool_calls or ()
            ),
            tool_call_id=self.tool_call_id,
            place=place,
        )


class FunctionIn(Schema):
    """A function that the caller runs."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolIn(Schema):
    """A tool that the caller runs."""

    type: Literal["function"]
    function: FunctionIn

    def spec(self) -> ToolSpec:
        parameters = self.function.parameters or {"type": "object", "properties": {}}
        return ToolSpec(name=self.function.name, description=self.function.description or "", parameters=parameters)


class StreamOptionsIn(Schema):
    """The options of a stream."""

    include_usage: bool = False


class CompletionIn(Unread):  # ninja's own kind would lose what has no field
    """A request of OpenAI's Chat Completions. Parameters that have no field here are refused or left unused."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[MessageIn]
    stream: bool | None = None
    stream_options: StreamOptionsIn | None = None
    tools: list[ToolIn] | None = None
    tool_choice: Any = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None

    def request(self, session: str) -> CompletionRequest:
        """Return the request as a value; ``session`` is the header's.

        :raises InvalidRequest: a parameter, which the error names, is not supported.
        """
        parameters = self.model_dump(exclude_unset=True)
        completions.check_supported(parameters)
        where = session or (self.metadata or {}).get(SESSION_FIELD, "")
        if not isinstance(where, str):
            raise errors.InvalidRequest(
                "metadata.mnesis_session must be a session's id", field=f"metadata.{SESSION_FIELD}"
            )
        tools = () if self.tool_choice == "none" else tuple(tool.spec() for tool in self.tools or ())
        return CompletionRequest(
            model=self.model,
            messages=tuple(message.said(place) for place, message in enumerate(self.messages)),
            tools=tools,
            session=where,
            user=self.user or "",
            parameters=completions.read_asked(parameters),
            unused=completions.unused(parameters),
        )


@router.post("/chat/completions", response=None, summary="Answer a chat")
async def chat_completions(request: HttpRequest, body: CompletionIn) -> HttpResponse | StreamingHttpResponse:
    """One answer, whole or as server-sent events. ``X-Mnesis-Session`` names the session that holds the history."""
    if (passed := await gateway.pass_on(request, Protocol.COMPLETIONS)) is not None:
        return passed
    body = read_body(request, CompletionIn)
    wanted = body.request(request.headers.get(SESSION, ""))
    key = request.headers.get("Idempotency-Key") or None
    asked = await ask(wanted, owner=request.user, viewer=viewer_of(request), idempotency_key=key)  # type: ignore[arg-type]
    pieces = follow_thinking(asked)
    # Awaited before the answer begins, so that a call that fails at once has its status, streamed or not.
    first = await anext(pieces)
    headers = await db(headers_of, asked, wanted, owner=owner_id(request), called=completions.PARAMETERS)
    if body.stream:
        include_usage = body.stream_options is not None and body.stream_options.include_usage
        chunks = _chunks(asked, first, pieces, include_usage=include_usage)
        return StreamingHttpResponse(chunks, content_type="text/event-stream", headers=headers)
    piece = first
    while not isinstance(piece, Answered):
        piece = await anext(pieces)
    return JsonResponse(completions.read_completion(piece), headers=headers)


@router.get("/models", response=None, summary="List models")
def models(request: HttpRequest) -> HttpResponse:
    """The models that may be asked, and behind them the assistants that may be asked as models."""
    person = owner_id(request)
    specs = list_models(user_id=person)
    data = [_model(spec) for spec in specs]
    data += [_assistant(one, spec) for one, spec in offered_assistants(specs, user_id=person)]
    # Anthropic's clients ask for pages; there is one.
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return JsonResponse({"object": "list", "data": data, "has_more": False, **ends})


@router.get("/models/{path:name}", response=None, summary="Read a model")
def model(request: HttpRequest, name: str) -> HttpResponse:
    """One model, or one assistant."""
    person = owner_id(request)
    spec, assistant = spec_named(name, user_id=person), assistant_named(name, user_id=person)
    return JsonResponse(_assistant(assistant, spec) if assistant else _model(spec))


def openai_error(error: errors.MnesisError, status: int = 0) -> HttpResponse:
    """Return an error as OpenAI's clients read it; ``status`` where HTTP has a closer one than the registry."""
    response = JsonResponse(completions.read_error(error), status=status or error.status)
    if isinstance(error, errors.ModelError):
        # The call was tried again here, and is in the record; a client that repeats the request asks twice.
        response.headers["x-should-retry"] = "false"
    if error.details.get("retry_after"):
        response.headers["Retry-After"] = error.details["retry_after"]
    return response


async def _chunks(
    asked: RunningAnswer, first: Piece, pieces: AsyncIterator[Piece], *, include_usage: bool
) -> AsyncIterator[str]:
    """Yield the answer as server-sent events; an error on the way is the last of them."""
    head, is_first, piece = head_of(asked), True, first
    try:
        while not isinstance(piece, Answered):
            yield _event(completions.read_piece(head, piece, is_first=is_first))
            is_first, piece = False, await anext(pieces)
        for end in completions.read_end(piece, include_usage=include_usage, is_first=is_first):
            yield _event(end)
        yield "data: [DONE]\n\n"
    except Exception as problem:
        # A server may leave the connection of a failed generator open for ever.
        yield _event(completions.read_error(to_error(problem, asked=f"the stream of turn {head.turn_id}")))


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _model(spec: ModelSpec) -> dict[str, Any]:
    return {
        "id": spec.alias,
        "object": "model",
        "created": 0,
        "owned_by": "mnesis",
        # as Anthropic's clients look for it
        **{"type": "model", "display_name": spec.alias, "created_at": "1970-01-01T00:00:00Z"},
        **{"max_input_tokens": spec.context_window, "max_tokens": spec.max_output_tokens},
        "context_window": spec.context_window,
        "max_output_tokens": spec.max_output_tokens,
        "capabilities": abilities_of(spec),
    }


def _assistant(assistant: AssistantRecord, spec: ModelSpec) -> dict[str, Any]:
    """Return an assistant as a model that has the abilities of its model."""
    return {
        **_model(spec),
        "id": PREFIX + assistant.id,
        "created": int(assistant.created_at.timestamp()),
        "display_name": printable(assistant.name),
        "created_at": write_time(assistant.created_at),
    }


# OpenAI's Embeddings, by the model of the site's search. Nothing is recorded; what the model reads counts towards
# limits.


class EmbeddingsIn(BaseModel):
    """Texts, of which each gets a vector."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


@embeddings_router.post("/embeddings", response=None, summary="Make vectors of texts")
def make_embeddings(request: HttpRequest, body: EmbeddingsIn) -> HttpResponse:
    """A vector of length 1 for each text, in order."""
    spec = embedding_spec()
    if spec is None or spec.alias != body.model:
        raise ModelNotFoundError("There is no embedding model of this name.", model=body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    _check(texts, body)
    with drawing(owner_id(request), spec, tokens=sum(map(estimate_text, texts))) as tell:
        embedded = waiting_for(embed, own_loop=True)(get_embedder(spec), texts, seconds=CALL_SECONDS)
        tokens = embedded.usage.total_tokens
        tell(tokens)
    data = [
        {"object": "embedding", "index": index, "embedding": _written(vector, body.encoding_format)}
        for index, vector in enumerate(embedded.vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JsonResponse({"object": "list", "data": data, "model": spec.alias, "usage": usage})


def _check(texts: Sequence[str], body: EmbeddingsIn) -> None:
    if not 1 <= len(texts) <= TEXTS or not all(text.strip() for text in texts):
        raise InvalidRequest(f"input must be 1 to {TEXTS} texts, none of them empty", field="input")
    if sum(map(len, texts)) > MOST_CHARACTERS:
        raise RequestTooLarge(f"input may have {MOST_CHARACTERS:,} characters together, not more", field="input")
    if any("\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text) for text in texts):
        raise InvalidRequest("input must not contain NUL or half of a surrogate pair", field="input")
    if body.dimensions is not None:
        raise InvalidRequest("dimensions is not supported: the model has one length of vectors", field="dimensions")


def _written(vector: bytes, form: str) -> Any:
    return base64.b64encode(vector).decode() if form == "base64" else list(unpacked(vector))
