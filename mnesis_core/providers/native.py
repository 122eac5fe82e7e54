"""What a provider's own events say that litellm does not hand on: why an answer ended, and words of a refusal.

litellm (1.102) calls three of Claude's ends ``stop`` or ``content_filter``, passes on the first piece of a refusal in Chat
Completions only, and none of one in Responses. So the events are read as they come, before litellm makes chunks of them.

Stops: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons. Refusals:
https://platform.openai.com/docs/api-reference/chat-streaming and ``…/responses-streaming``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mnesis_core.providers.answer import CONTEXT_FULL

STOPS = ("refusal", CONTEXT_FULL)  # Claude's, where litellm says something else.


class NativeEvents:
    """Reads the events of one answer; ``stop`` is why it ended, where litellm does not say so."""

    def __init__(self) -> None:
        self.stop = ""
        self._refusals: list[str] = []

    def listen(self, upstream: Any) -> None:
        """Have each event of litellm's stream read before litellm reads it."""
        # Internal: these three are where a stream of litellm begins, and where it reads an event of the provider.
        stream, make = getattr(upstream, "completion_stream", None), getattr(upstream, "make_call", None)
        if stream is None and make is not None:

            async def make_and_listen(*args: Any, **options: Any) -> Any:
                made = await make(*args, **options)
                self._listen_to(made, upstream)
                return made

            upstream.make_call = make_and_listen
        elif stream is not None:
            self._listen_to(stream, upstream)

    def refusals(self) -> list[str]:
        """Return the words of a refusal that came since this was asked before."""
        new, self._refusals = self._refusals, []
        return new

    def _listen_to(self, stream: Any, upstream: Any) -> None:
        if hasattr(stream, "chunk_parser"):
            stream.chunk_parser = _after(self._take, stream.chunk_parser)
        else:  # The SDK of OpenAI reads the events itself, and gives objects.
            upstream.chunk_creator = _after(self._take_chunk, upstream.chunk_creator)

    def _take(self, event: Any) -> None:
        if not isinstance(event, Mapping):
            return
        kind, delta = event.get("type"), event.get("delta")
        if kind == "response.refusal.delta" and isinstance(delta, str):
            self._refusals.append(delta)
        elif kind == "message_delta" and isinstance(delta, Mapping) and delta.get("stop_reason") in STOPS:
            self.stop = delta["stop_reason"]
        elif isinstance(choices := event.get("choices"), list):
            for choice in choices[:1]:
                said = choice.get("delta") if isinstance(choice, Mapping) else None
                self._take_refusal(said.get("refusal") if isinstance(said, Mapping) else None)

    def _take_chunk(self, chunk: Any) -> None:
        for choice in (getattr(chunk, "choices", None) or ())[:1]:
            self._take_refusal(getattr(getattr(choice, "delta", None), "refusal", None))

    def _take_refusal(self, text: Any) -> None:
        if isinstance(text, str) and text:
            self._refusals.append(text)


def _after(take: Callable[[Any], None], read: Callable[..., Any]) -> Callable[..., Any]:
    def take_and_read(chunk: Any, *args: Any, **options: Any) -> Any:
        take(chunk)
        return read(chunk, *args, **options)

    return take_and_read
