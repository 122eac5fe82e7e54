"""OpenAI Chat Completions: ``{"messages": […], "tools": […]?}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mnesis_core.context import ContextMessage, Prompt
from mnesis_core.llm import ToolCall, ToolSpec
from mnesis_core.rendering.accepted import answered_calls, outgoing, tool_name


def render(prompt: Prompt) -> dict[str, Any]:
    """The payload of a prompt."""
    payload: dict[str, Any] = {"messages": [item for message in prompt.messages for item in _messages(message)]}
    if prompt.tools:
        payload["tools"] = [_tool(tool) for tool in prompt.tools]
    return payload


def _messages(message: ContextMessage) -> Iterator[dict[str, Any]]:
    rendered: dict[str, Any] = {"role": message.role, "content": outgoing(message.text)}
    if message.tool_calls:
        rendered["tool_calls"] = [_call(call) for call in message.tool_calls]
        rendered["content"] = rendered["content"] or None
    yield rendered
    for call, result in answered_calls(message):
        yield {"role": "tool", "tool_call_id": outgoing(call.id), "content": outgoing(result.text)}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": tool_name(call.name), "arguments": outgoing(call.arguments)}
    return {"id": outgoing(call.id), "type": "function", "function": function}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool_name(tool.name), "description": outgoing(tool.description), "parameters": tool.parameters}
    return {"type": "function", "function": function}
