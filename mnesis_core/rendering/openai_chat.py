"""OpenAI Chat Completions: ``{"messages": […], "tools": […]?}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mnesis_core.context import ContextMessage, Prompt
from mnesis_core.llm import ToolCall, ToolSpec
from mnesis_core.text import printable

INTERRUPTED = "Error: interrupted: this call has no result."
"""What stands for a result that never came; providers refuse a call without one."""
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64


def render(prompt: Prompt) -> dict[str, Any]:
    """The payload of a prompt."""
    payload: dict[str, Any] = {"messages": [item for message in prompt.messages for item in _messages(message)]}
    if prompt.tools:
        payload["tools"] = [_tool(tool) for tool in prompt.tools]
    return payload


def _messages(message: ContextMessage) -> Iterator[dict[str, Any]]:
    rendered: dict[str, Any] = {"role": message.role, "content": _text(message.text)}
    if message.tool_calls:
        rendered["tool_calls"] = [_call(call) for call in message.tool_calls]
        rendered["content"] = rendered["content"] or None
    yield rendered
    results = {result.call_id: result.text for result in message.tool_results}
    for call in message.tool_calls:
        text = results.get(call.id, INTERRUPTED)
        yield {"role": "tool", "tool_call_id": _text(call.id), "content": _text(text)}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": _name(call.name), "arguments": _text(call.arguments)}
    return {"id": _text(call.id), "type": "function", "function": function}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": _name(tool.name), "description": _text(tool.description), "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _name(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def _text(text: str) -> str:
    """What can leave as UTF-8; the record keeps the exact text."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return printable(text)
    return text
