"""OpenAI Chat Completions, ``{"messages": […], "tools"?}``, and Responses, ``{"instructions"?, "input": […], "tools"?}``.

A longer history only adds items to an input of Responses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mnesis_core.context.entries import ContextMessage, Prompt
from mnesis_core.providers.rendering.accepted import (
    CallIds,
    answered_calls,
    described,
    outgoing,
    spoken,
    system_apart,
    tool_name,
)


def render_chat(prompt: Prompt) -> dict[str, Any]:
    payload: dict[str, Any] = {"messages": [item for message in prompt.messages for item in _messages(message)]}
    if prompt.tools:
        payload["tools"] = [{"type": "function", "function": described(tool)} for tool in prompt.tools]
    return payload


def _messages(message: ContextMessage) -> Iterator[dict[str, Any]]:
    rendered: dict[str, Any] = {"role": message.role, "content": outgoing(message.text)}
    if message.tool_calls:
        rendered["tool_calls"] = [
            {
                "id": outgoing(call.id),
                "type": "function",
                "function": {"name": tool_name(call.name), "arguments": outgoing(call.arguments)},
            }
            for call in message.tool_calls
        ]
        rendered["content"] = rendered["content"] or None
    yield rendered
    for call, result in answered_calls(message):
        yield {"role": "tool", "tool_call_id": outgoing(call.id), "content": outgoing(result.text)}


def render_responses(prompt: Prompt) -> dict[str, Any]:
    instructions, messages = system_apart(prompt.messages)
    ids = CallIds()
    payload: dict[str, Any] = {"instructions": instructions} if instructions else {}
    payload["input"] = [item for message in messages for item in _items(message, ids)]
    if prompt.tools:
        # Strict schemas have no optional arguments; ours have.
        payload["tools"] = [{"type": "function", **described(tool), "strict": False} for tool in prompt.tools]
    return payload


def _items(message: ContextMessage, ids: CallIds) -> Iterator[dict[str, Any]]:
    if text := spoken(message):
        yield {"type": "message", "role": message.role, "content": text}
    outputs = []
    for call, result in answered_calls(message):
        call_id = ids.new(call.id)
        yield {
            "type": "function_call",
            "call_id": call_id,
            "name": tool_name(call.name),
            "arguments": outgoing(call.arguments),
        }
        outputs.append({"type": "function_call_output", "call_id": call_id, "output": outgoing(result.text)})
    yield from outputs
