"""Anthropic Messages: ``{"system"?, "messages": […], "tools"?}``.

Roles alternate, so neighbours of one role are one message: a longer history may add blocks to the last message
and adds messages after it. Results come first in the message after their calls, empty texts are not sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from mnesis_core.context.entries import ContextMessage, Prompt
from mnesis_core.providers.rendering.accepted import (
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


def render(prompt: Prompt) -> dict[str, Any]:
    system, messages = system_apart(prompt.messages)
    payload: dict[str, Any] = {"system": system} if system else {}
    payload["messages"] = [
        {"role": role, "content": [block for _, block in blocks]}
        for role, blocks in groupby(user_first(_blocks(messages), _text(OPENING)), key=itemgetter(0))
    ]
    if prompt.tools:
        payload["tools"] = [described(tool, "input_schema") for tool in prompt.tools]
    return payload


def _blocks(messages: Sequence[ContextMessage]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (role, block) in order: what is said, then the calls, then their results."""
    ids = CallIds()
    for message in messages:
        role, text = spoken_by_two(message)
        if text:
            yield role, _text(text)
        results = []
        for call, result in answered_calls(message):
            call_id = ids.new(call.id)
            arguments = arguments_object(call.arguments)
            yield "assistant", {"type": "tool_use", "id": call_id, "name": tool_name(call.name), "input": arguments}
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
            said = outgoing(result.text)
            if result.is_error:
                block["is_error"] = True
                said = said if said.strip() else "Error"
            results.append(block | {"content": said} if said.strip() else block)
        yield from (("user", result) for result in results)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
