"""Gemini generateContent: ``{"systemInstruction"?, "contents": […], "tools"?}``, in the names of its REST interface.

Neighbours of one role are one content, so that a call follows a user's turn directly; results are a content of
their own, as many as there were calls. A longer history may add parts to the last content and adds contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from mnesis_core.context.entries import ContextMessage, Prompt
from mnesis_core.providers.rendering.accepted import (
    LONGEST_NAME,
    OPENING,
    CallIds,
    answered_calls,
    arguments_object,
    described,
    outgoing,
    spoken_by_two,
    system_apart,
    tool_name,
    user_first,
)

ROLES = {"user": "user", "assistant": "model"}
# Base64 of ``skip_thought_signature_validator``, which Google defines for calls that another model made. Gemini 3
# refuses the first call of a step without one, and the record keeps no signatures.
SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="


def render(prompt: Prompt) -> dict[str, Any]:
    system, messages = system_apart(prompt.messages)
    payload: dict[str, Any] = {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
    items = user_first(_parts(messages), {"text": OPENING})
    payload["contents"] = [
        {"role": role, "parts": [part for _, part in parts]}
        for (role, _), parts in groupby(items, key=lambda item: (item[0], "functionResponse" in item[1]))
    ]
    if prompt.tools:
        # Not "parameters", which accepts only a subset of JSON Schema.
        declarations = [described(tool, "parametersJsonSchema") | {"name": _name(tool.name)} for tool in prompt.tools]
        payload["tools"] = [{"functionDeclarations": declarations}]
    return payload


def _parts(messages: Sequence[ContextMessage]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (role, part) in order: what is said, then the calls, then their results."""
    ids = CallIds()
    for message in messages:
        role, text = spoken_by_two(message)
        if text:
            yield ROLES[role], {"text": text}
        responses: list[dict[str, Any]] = []
        for call, result in answered_calls(message):
            named = {"id": ids.new(call.id), "name": _name(call.name)}
            signature = {} if responses else {"thoughtSignature": SIGNATURE}
            yield "model", {"functionCall": {**named, "args": arguments_object(call.arguments)}, **signature}
            response = {"error" if result.is_error else "output": outgoing(result.text)}
            responses.append({"functionResponse": {**named, "response": response}})
        yield from (("user", response) for response in responses)


def _name(name: str) -> str:
    known = tool_name(name)
    return known if known[0].isalpha() or known[0] == "_" else f"_{known}"[:LONGEST_NAME]
