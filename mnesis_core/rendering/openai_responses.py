"""OpenAI Responses: ``{"instructions"?, "input": […], "tools"?}``. A longer history only adds items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mnesis_core.context import ContextMessage, Prompt
from mnesis_core.llm import ToolSpec
from mnesis_core.rendering.accepted import CallIds, answered_calls, outgoing, spoken, system_apart, tool_name


def render(prompt: Prompt) -> dict[str, Any]:
    """The payload of a prompt."""
    instructions, messages = system_apart(prompt.messages)
    ids = CallIds()
    payload: dict[str, Any] = {"instructions": instructions} if instructions else {}
    payload["input"] = [item for message in messages for item in _items(message, ids)]
    if prompt.tools:
        payload["tools"] = [_tool(tool) for tool in prompt.tools]
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


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool_name(tool.name),
        "description": outgoing(tool.description),
        "parameters": tool.parameters,
        # Strict schemas have no optional arguments; ours have.
        "strict": False,
    }
