"""What a payload says, read back from each provider's shape: one reader for each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    """A text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call."""

    id: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """A tool's result."""

    id: str
    text: str


Item = Said | Called | Answered


def _openai_chat(payload: Mapping[str, Any]) -> Iterator[Item]:
    for message in payload["messages"]:
        if message["role"] == "tool":
            yield Answered(message["tool_call_id"], message["content"])
            continue
        if message["content"] is not None:
            yield Said(message["role"], message["content"])
        for call in message.get("tool_calls", ()):
            yield Called(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))


def _openai_responses(payload: Mapping[str, Any]) -> Iterator[Item]:
    if "instructions" in payload:
        yield Said("system", payload["instructions"])
    for item in payload["input"]:
        match item["type"]:
            case "message":
                yield Said(item["role"], item["content"])
            case "function_call":
                yield Called(item["call_id"], item["name"], json.loads(item["arguments"]))
            case "function_call_output":
                yield Answered(item["call_id"], item["output"])


def _anthropic(payload: Mapping[str, Any]) -> Iterator[Item]:
    if "system" in payload:
        yield Said("system", payload["system"])
    for message in payload["messages"]:
        for block in message["content"]:
            match block["type"]:
                case "text":
                    yield Said(message["role"], block["text"])
                case "tool_use":
                    yield Called(block["id"], block["name"], block["input"])
                case "tool_result":
                    yield Answered(block["tool_use_id"], block.get("content", ""))


def _gemini(payload: Mapping[str, Any]) -> Iterator[Item]:
    for part in payload.get("systemInstruction", {}).get("parts", ()):
        yield Said("system", part["text"])
    for content in payload["contents"]:
        for part in content["parts"]:
            if "text" in part:
                yield Said({"model": "assistant"}.get(content["role"], content["role"]), part["text"])
            elif "functionCall" in part:
                call = part["functionCall"]
                yield Called(call["id"], call["name"], call["args"])
            else:
                response = part["functionResponse"]["response"]
                yield Answered(part["functionResponse"]["id"], response.get("output", response.get("error")))


READERS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Item]]] = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


def read(payload: Mapping[str, Any], provider: str) -> list[Item]:
    """Everything a payload says, in order."""
    return list(READERS[provider](payload))
