"""A loopback provider whose answers a test writes as the provider's own events, with the frames of their protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tests.support.providers.answers import Event, Events
from tests.support.providers.answers import responses as responses
from tests.support.providers.caching_provider import CachingProvider, Refused


class EventProvider(CachingProvider):
    """``answers`` gives the events of the answer of a number, counted from 0. Nothing is refused."""

    def __init__(self, answers: Callable[[int], Iterable[tuple[str, Event]]]) -> None:
        super().__init__(lambda _: "")
        self.answers = answers

    def respond(self, path: str, body: dict[str, Any]) -> Events:
        self.requests.append(body)
        return iter(tuple(self.answers(len(self.requests) - 1)))


def claude(
    *blocks: tuple[Event, Sequence[Event]], stop: str = "end_turn", at: Any = None, searches: int | None = None
) -> Iterator[tuple[str, Event]]:
    """Yield an answer of Anthropic's Messages: blocks as they begin, each with its deltas."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
    usage = {"input_tokens": 5, "output_tokens": 1}
    yield "message_start", {"message": head | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    for index, (block, deltas) in enumerate(blocks):
        yield "content_block_start", {"index": index, "content_block": block}
        yield from (("content_block_delta", {"index": index, "delta": delta}) for delta in deltas)
        yield "content_block_stop", {"index": index}
    ran = {} if searches is None else {"server_tool_use": {"web_search_requests": searches}}
    yield "message_delta", {"delta": {"stop_reason": stop, "stop_sequence": at}, "usage": {"output_tokens": 9, **ran}}
    yield "message_stop", {}


def said(text: str) -> tuple[Event, Sequence[Event]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]


def chat(*deltas: Event, finish: str = "stop") -> Iterator[tuple[str, Event]]:
    """Yield an answer of OpenAI's Chat Completions."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    for delta in deltas:
        yield "", head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield "", head | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}


def gemini(*parts: Event, finish: str = "STOP", **about: Any) -> Iterator[tuple[str, Event]]:
    """Yield an answer of Gemini's, a part at a time; the last has what else is said of the answer."""
    counts = {"promptTokenCount": 5, "candidatesTokenCount": 5, "totalTokenCount": 10}
    for place, part in enumerate(parts):
        candidate: Event = {"index": 0, "content": {"role": "model", "parts": [part]}}
        if place == len(parts) - 1:
            candidate |= {"finishReason": finish, **about}
        yield "", {"candidates": [candidate], "usageMetadata": counts, "responseId": "r1"}


class ReasoningProvider(EventProvider):
    """Wants back the thinking of every answer that calls tools, word for word; DeepSeek's and Kimi's take any.

    https://api-docs.deepseek.com/guides/thinking_mode, "Tool Calls", and
    https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model
    """

    def respond(self, path: str, body: dict[str, Any]) -> Events:
        said = [message for message in body["messages"] if message["role"] == "assistant"]
        for place, message in enumerate(said):
            if "tool_calls" in message and message.get("reasoning_content") != f"Thought {place}.":
                raise Refused("The reasoning_content in the thinking mode must be passed back to the API.")
            if "tool_calls" not in message and "reasoning_content" in message and message["reasoning_content"].strip():
                raise Refused("Stricter than DeepSeek, which ignores it: the thinking of an answer without calls.")
        return super().respond(path, body)
