"""Answers in the format of OpenAI's Chat Completions: whole, as chunks of a stream, as an error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mnesis_core.errors import MnesisError
from mnesis_core.events import EventType
from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import TextPart
from mnesis_core.records import TurnState, UsageRecord
from mnesis_core.text import printable

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_REASONS = {"length": "length", "max_tokens": "length", "content_filter": "content_filter", "safety": "content_filter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    turn_id: str
    session_id: str
    model: str
    # Seconds since 1970.
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a turn has said since the request, to its end or to the calls that its caller runs."""

    head: Head
    text: str
    # Calls that the caller runs, by the ids with which it answers.
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str
    state: str
    usage: UsageRecord


def finish_reason(state: str, said: str, *, has_calls: bool) -> str:
    if has_calls:
        return "tool_calls"
    if state == TurnState.INCOMPLETE:
        return "length"
    return _REASONS.get(said.lower(), "stop")


def read_completion(answered: Answered) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": printable(answered.text), "refusal": None}
    if answered.tool_calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = [_call(call) for call in answered.tool_calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answered.finish_reason}
    return {
        **_begin(answered.head, "chat.completion"),
        "choices": [choice],
        "usage": _usage(answered.usage),
        "mnesis": _ours(answered),
    }


def read_text(head: Head, text: str, *, is_first: bool) -> dict[str, Any]:
    delta = {"role": "assistant"} if is_first else {}
    return _chunk(head, delta | {"content": printable(text)})


def read_end(answered: Answered, *, include_usage: bool, is_first: bool) -> Iterator[dict[str, Any]]:
    """Yield the chunks that end a stream: the caller's calls, the finish reason and, with ``include_usage``, the usage."""
    role: dict[str, Any] = {"role": "assistant", "content": None} if is_first else {}
    if answered.tool_calls:
        calls = [{"index": index, **_call(call)} for index, call in enumerate(answered.tool_calls)]
        yield _chunk(answered.head, role | {"tool_calls": calls})
        role = {}
    yield _chunk(answered.head, role, finish=answered.finish_reason) | {"mnesis": _ours(answered)}
    if include_usage:
        yield {**_begin(answered.head, "chat.completion.chunk"), "choices": [], "usage": _usage(answered.usage)}


def read_error(error: MnesisError) -> dict[str, Any]:
    return {
        "error": {
            "message": printable(error.message),
            "type": _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error"),
            "code": error.code,
            "param": error.details.get("field"),
            "details": error.details,
        }
    }


def _begin(head: Head, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{head.turn_id}", "object": kind, "created": head.created, "model": head.model}


def _chunk(head: Head, delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_begin(head, "chat.completion.chunk"), "choices": [choice]}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": printable(call.name), "arguments": printable(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _ours(answered: Answered) -> dict[str, str]:
    return {"session_id": answered.head.session_id, "turn_id": answered.head.turn_id, "state": answered.state}


def _usage(usage: UsageRecord) -> dict[str, Any]:
    asked, said = usage.tokens_input or 0, usage.tokens_output or 0
    return {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "prompt_tokens_details": {"cached_tokens": usage.tokens_cache_read or 0},
    }


# A message's id and the index of a part in it.
Place = tuple[str, int]


class Speech:
    """The text of one turn's answers, which only grows, from the frames of its session; empty lines divide its parts.

    Deltas may run ahead of the event that creates their message; they are kept until that arrives.
    """

    def __init__(self) -> None:
        self._sent: dict[Place, int] = {}
        self._known: set[str] = set()
        self._waiting: dict[str, list[Mapping[str, Any]]] = defaultdict(list)

    def take(self, frame: Mapping[str, Any]) -> str:
        """Return what a frame adds to the text; often nothing."""
        if frame["type"] == EventType.MESSAGE_CREATED:
            message_id = frame["data"]["message_id"]
            self._known.add(message_id)
            return "".join(self._add(delta) for delta in self._waiting.pop(message_id, []))
        if frame["type"] != "delta" or frame["part_type"] != TextPart.type:
            return ""
        if frame["message_id"] not in self._known:
            self._waiting[frame["message_id"]].append(frame)
            return ""
        return self._add(frame)

    def _add(self, delta: Mapping[str, Any]) -> str:
        place = (delta["message_id"], delta["part_index"])
        new: str = delta["text"][self._sent.get(place, 0) - delta["offset"] :]
        if not new:
            return ""
        divider = "\n\n" if self._sent and place not in self._sent else ""
        self._sent[place] = delta["offset"] + len(delta["text"])
        return divider + new
