"""The demo model as a provider of litellm, so that it is reached through the same door as every other.

litellm asks its own providers for ``acompletion`` and ``astreaming`` and looks at nothing else, so this is
no subclass of its ``CustomLLM``: that would need litellm to be imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from mnesis_core.llm import ToolCall
from mnesis_core.providers.answer import estimate_payload
from mnesis_core.providers.demo import DemoAnswer, answer, shortened, words
from mnesis_core.tokens import estimate_text

_FAILURES = {
    "401": ("AuthenticationError", "The demo model refuses this key, as it was asked to."),
    "429": ("RateLimitError", "The demo model has had too many requests, as it was asked to say."),
    "500": ("InternalServerError", "The demo model has an internal error, as it was asked to."),
}


class DemoProvider:
    """What ``litellm.custom_provider_map`` holds for ``demo``."""

    async def acompletion(
        self, messages: list[dict[str, Any]], model_response: Any, optional_params: dict[str, Any], **_: Any
    ) -> Any:
        """The whole answer at once."""
        from litellm import Message, Usage

        given = await _answer(messages, optional_params)
        _raise_if_asked(given)
        choice = model_response.choices[0]
        calls = [_tool_use(call, at) for at, call in enumerate(given.tool_calls)]
        choice.message = Message(content=given.text, tool_calls=calls or None)
        choice.finish_reason = given.finish_reason
        model_response.usage = Usage(**_usage(messages, optional_params, given))
        return model_response

    async def astreaming(
        self, messages: list[dict[str, Any]], optional_params: dict[str, Any], **_: Any
    ) -> AsyncIterator[Any]:
        """The answer, a chunk for each word."""
        given = await _answer(messages, optional_params)
        _raise_if_asked(given)
        for word in words(given.reasoning):
            yield _reasoning_chunk(word)
            await asyncio.sleep(given.word_delay_seconds)
        for word in words(given.text):
            yield _chunk(text=word)
            await asyncio.sleep(given.word_delay_seconds)
        for at, call in enumerate(given.tool_calls):
            yield _chunk(tool_use=_tool_use(call, at))
        if not given.failure:
            yield _chunk(finish_reason=given.finish_reason, usage=_usage(messages, optional_params, given))


async def _answer(messages: list[dict[str, Any]], optional_params: dict[str, Any]) -> DemoAnswer:
    # In a thread: a long context takes longer to search than the event loop may be held up.
    given = await asyncio.to_thread(answer, messages, optional_params.get("tools"))
    return shortened(given, int(optional_params.get("max_tokens") or 0))


def _raise_if_asked(given: DemoAnswer) -> None:
    if given.failure not in _FAILURES:
        return
    from litellm import exceptions

    kind, text = _FAILURES[given.failure]
    raise getattr(exceptions, kind)(message=text, llm_provider="demo", model="chat")


def _chunk(
    *,
    text: str = "",
    tool_use: dict[str, Any] | None = None,
    finish_reason: str = "",
    usage: dict[str, int] | None = None,
) -> dict[str, Any]:
    """litellm's ``GenericStreamingChunk``."""
    return {
        "text": text,
        "tool_use": tool_use,
        "is_finished": bool(finish_reason),
        "finish_reason": finish_reason,
        "usage": usage,
        "index": 0,
    }


def _reasoning_chunk(text: str) -> Any:
    # The generic chunk has no place for reasoning; litellm passes this one on as it is.
    from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

    return ModelResponseStream(choices=[StreamingChoices(index=0, delta=Delta(reasoning_content=text))])


def _tool_use(call: ToolCall, index: int) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "index": index, "function": function}


def _usage(messages: list[dict[str, Any]], optional_params: dict[str, Any], given: DemoAnswer) -> dict[str, int]:
    prompt = estimate_payload({"messages": messages, "tools": optional_params.get("tools") or []})
    calls = "".join(call.name + call.arguments for call in given.tool_calls)
    written = estimate_text(given.text + given.reasoning + calls)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
