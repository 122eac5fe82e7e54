"""OpenAI's Embeddings, by the model of the site's search. Nothing is recorded; what the model reads counts towards limits."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict

from mnesis_core.errors import InvalidRequest, ModelNotFoundError, RequestTooLarge
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.search.meaning import unpacked
from sessions_app.callers import owner_id
from sessions_app.conf import embedding_spec, get_embedder
from sessions_app.database.threads import waiting_for
from sessions_app.search.rest import drawing
from sessions_app.search.vectors import CALL_SECONDS, TEXTS, embed

MOST_CHARACTERS = 400_000  # of all texts of a request
router = Router(tags=["embeddings"])


class EmbeddingsIn(BaseModel):
    """Texts, of which each gets a vector."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


@router.post("/embeddings", response=None, summary="Make vectors of texts")
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
