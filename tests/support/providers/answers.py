"""What doubles of providers answer, as the events of each provider's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SECONDS = {"5m": 300.0, "1h": 3_600.0}
Event = dict[str, Any]
Events = Iterator[tuple[str, Event]]
Answer = str | tuple[str, dict[str, Any]]  # a text, or the name of a tool and its arguments


@dataclass(frozen=True, slots=True)
class Streaming:
    """How an answer comes: in pieces of so many characters, and in writes of so many bytes, which end anywhere."""

    characters: int = 1_000_000
    bytes: int = 1_000_000

    def pieces(self, text: str) -> list[str]:
        """Return a text as it comes; an empty one comes too."""
        return [text[at : at + self.characters] for at in range(0, len(text), self.characters)] or [text]


WHOLE = Streaming()


@dataclass(frozen=True, slots=True)
class Bill:
    """The prompt tokens of one call."""

    fresh: int
    read: int = 0
    written: dict[str, int] = field(default_factory=dict)  # by lifetime

    @property
    def total(self) -> int:
        return self.fresh + self.read + sum(self.written.values())


def stopped(answer: Any, body: dict[str, Any]) -> tuple[Any, str | None]:
    """Return a text up to the first stop sequence in it, and which one that is."""
    asked = body.get("stop_sequences") or body.get("stop") or ()
    if not isinstance(answer, str):
        return answer, None
    places = {answer.find(stop): stop for stop in ([asked] if isinstance(asked, str) else asked) if stop in answer}
    return (answer[: min(places)], places[min(places)]) if places else (answer, None)


def ending(reason: str, stop: str | None) -> dict[str, Any]:
    """Return why an answer of Anthropic's ended. https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons"""
    return {"stop_reason": "stop_sequence" if stop else reason, "stop_sequence": stop}


def anthropic(answer: Answer, bill: Bill, number: int, stop: str | None) -> Events:
    usage = {
        "input_tokens": bill.fresh,
        "cache_read_input_tokens": bill.read,
        "cache_creation_input_tokens": sum(bill.written.values()),
        "cache_creation": {f"ephemeral_{life}_input_tokens": bill.written.get(life, 0) for life in SECONDS},
        "output_tokens": 1,
    }
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude", "content": []}
    yield "message_start", {"message": head | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    if isinstance(answer, str):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": answer}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": answer[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer[1])}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "end_turn" if isinstance(answer, str) else "tool_use"
    yield "message_delta", {"delta": ending(reason, stop), "usage": {"output_tokens": 20}}
    yield "message_stop", {}


def chat(answer: Answer, bill: Bill, number: int, _: str | None) -> Events:
    delta: dict[str, Any] = {"role": "assistant", "content": answer}
    if not isinstance(answer, str):
        function = {"name": answer[0], "arguments": json.dumps(answer[1])}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [call]}
    reason = "stop" if isinstance(answer, str) else "tool_calls"
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    yield "", head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield "", head | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    counts = {"prompt_tokens": bill.total, "completion_tokens": 20, "total_tokens": bill.total + 20}
    yield "", head | {"choices": [], "usage": counts | {"prompt_tokens_details": {"cached_tokens": bill.read}}}


def gemini(answer: Answer, bill: Bill, number: int, _: str | None) -> Events:
    part = {"text": answer} if isinstance(answer, str) else {"functionCall": {"name": answer[0], "args": answer[1]}}
    content = {"role": "model", "parts": [part]}
    counts = {"promptTokenCount": bill.total, "candidatesTokenCount": 20, "totalTokenCount": bill.total + 20}
    usage = counts | {"cachedContentTokenCount": bill.read}
    candidate = {"index": 0, "content": content, "finishReason": "STOP"}
    yield "", {"candidates": [candidate], "usageMetadata": usage, "responseId": f"r{number}"}


def response(answer: Answer, bill: Bill, number: int, _: str | None) -> Events:
    done = {"status": "completed"}
    if isinstance(answer, str):
        said = {"type": "output_text", "text": answer, "annotations": []}
        item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [said], **done}
        about = {"type": "response.output_text.delta", "item_id": item["id"], "content_index": 0, "delta": answer}
    else:
        given = json.dumps(answer[1])
        item = {"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number}", "name": answer[0], **done}
        item["arguments"] = given
        about = {"type": "response.function_call_arguments.delta", "item_id": item["id"], "delta": given}
    return responses(item, between={0: [about]}, bill=bill, number=number)


def responses(
    *items: Event,
    between: Mapping[int, Sequence[Event]] | None = None,
    cut: str = "",
    bill: Bill | None = None,
    number: int = 1,
) -> Events:
    """Yield an answer of OpenAI's Responses.

    :param between: by the place of an item, the events between its beginning and its end
    :param cut: why the response is incomplete, if it is
    :param bill: what its prompt counts
    """
    bill = bill or Bill(fresh=10)
    counted = {"input_tokens": bill.total, "output_tokens": 5, "total_tokens": bill.total + 5}
    details = {"input_tokens_details": {"cached_tokens": bill.read}, "output_tokens_details": {"reasoning_tokens": 0}}
    about = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "model": "gpt-5", "created_at": 1}
    begun = {
        "id": f"resp_{number}",
        "object": "response",
        "status": "in_progress",
        "output": [],
        "usage": None,
        **about,
    }
    ended = {"status": "incomplete" if cut else "completed", "incomplete_details": {"reason": cut} if cut else None}
    found: list[Event] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(items):
        empty = {"message": {"content": []}, "function_call": {"arguments": ""}}.get(item["type"], {})
        begins = item | {"status": "in_progress"} | empty
        found.append({"type": "response.output_item.added", "output_index": index, "item": begins})
        found += [{"output_index": index, **event} for event in (between or {}).get(index, ())]
        found.append({"type": "response.output_item.done", "output_index": index, "item": item})
    whole = begun | ended | {"output": list(items), "usage": counted | details}
    found.append({"type": f"response.{ended['status']}", "response": whole})
    for number, event in enumerate(found):
        yield event["type"], event | {"sequence_number": number}
