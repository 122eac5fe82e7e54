"""A prompt -> one provider's payload. One module for each provider, all of the same shape."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from mnesis_core.context.entries import Prompt
from mnesis_core.errors import InvalidRequest
from mnesis_core.providers.rendering import anthropic, gemini, openai

__all__ = ["RENDERERS", "digest", "render"]

# Renderers by the names that ``GET …/context?format=`` knows.
RENDERERS: Mapping[str, Callable[[Prompt], dict[str, Any]]] = {
    "openai_chat": openai.render_chat,
    "openai_responses": openai.render_responses,
    "anthropic": anthropic.render,
    "gemini": gemini.render,
}


def render(prompt: Prompt, *, provider: str = "openai_chat") -> dict[str, Any]:
    """:raises InvalidRequest: there is no such format."""
    if provider not in RENDERERS:
        raise InvalidRequest(f"no format {provider!r}; known: {', '.join(RENDERERS)}", field="format")
    return RENDERERS[provider](prompt)


def digest(payload: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, of the canonical JSON of a payload: keys sorted, no spaces, UTF-8."""
    try:
        canonical = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # A lone surrogate, or an integer beyond 64 bits.
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        canonical = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(canonical).hexdigest()
