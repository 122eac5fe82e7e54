"""The doubles of providers refuse what the providers refuse, so that a test against them means something."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.support.providers.caching_provider import Refused
from tests.support.providers.strict import check_chat, check_gemini, check_responses

ASKED = {"role": "user", "content": "How?"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "14"}


def chat(*messages: Any, window: int = 1_000, **more: Any) -> Callable[[], None]:
    return lambda: check_chat({"model": "gpt", "messages": list(messages), **more}, window)


def responses(*items: Any, **more: Any) -> Callable[[], None]:
    return lambda: check_responses({"model": "gpt", "input": list(items), **more})


def gemini(*contents: Any, **more: Any) -> Callable[[], None]:
    return lambda: check_gemini({"contents": list(contents), **more})


ITEM, CALLED = {"type": "message", "role": "user"}, {"type": "function_call", "call_id": "c1"}
OUTPUT, THOUGHT = {"type": "function_call_output", "call_id": "c1"}, {"type": "reasoning", "id": "rs_1"}
SEARCHED = {"type": "web_search_call", "id": "ws_1"}
USER, MODEL = {"role": "user", "parts": [{"text": "?"}]}, {"role": "model", "parts": [{"functionCall": {}}]}
GIVES = {"role": "user", "parts": [{"functionResponse": {}}]}


@pytest.mark.parametrize(
    ("request_of", "says"),
    [
        (chat(ASKED, CALLS, RESULT), ""),
        (chat(ASKED, RESULT), "must be a response"),
        (chat(ASKED, CALLS, ASKED), "must be followed"),
        (chat(ASKED, CALLS), "must be followed"),
        (chat({"role": "human", "content": "?"}), "Invalid value"),
        (chat(ASKED, {"role": "assistant", "content": None}), "got null"),
        (chat(ASKED, effort="high"), "Unrecognized"),
        (chat(ASKED, window=2), "maximum context length"),
        (responses(ITEM, THOUGHT, CALLED, OUTPUT), ""),
        (responses(ITEM, OUTPUT), "No tool call found"),
        (responses(ITEM, CALLED), "No tool output found"),
        (responses(ITEM, THOUGHT), "required following item"),
        (responses(THOUGHT, ITEM), "required following item"),
        (responses(SEARCHED), "Invalid value"),
        (responses(ITEM, messages=[]), "Unrecognized"),
        (gemini(USER, MODEL, GIVES), ""),
        (gemini(MODEL), "begins with a user turn"),
        (gemini(USER, GIVES), "number of function response"),
        (gemini(USER, MODEL), "is followed by"),
        (gemini(USER, {**USER, "role": "assistant"}), "valid role"),
        (gemini(USER, messages=[]), "Unrecognized"),
        (gemini(USER, tools=[{"googleSearch": {}}, {"functionDeclarations": []}]), "unsupported"),
    ],
)
def test_the_doubles_refuse_what_openai_and_google_refuse(request_of: Callable[[], None], says: str) -> None:
    with pytest.raises(Refused, match=says) if says else nullcontext():
        request_of()
