"""The doubles of providers refuse what the providers refuse, so that a test against them means something."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.support.material.drawings import drawing, image_part, moving
from tests.support.providers import prompts
from tests.support.providers.beginnings import OPENAI, Beginnings, Steps, steps_of_gemini
from tests.support.providers.prompts import Prompt, Refused
from tests.support.providers.strict import check_chat, check_gemini, check_responses

ASKED = {"role": "user", "content": "How?"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "14"}


def chat(*messages: Any, window: int = 1_000, **more: Any) -> Callable[[], Prompt]:
    return lambda: check_chat({"model": "gpt", "messages": list(messages), **more}, window)


def responses(*items: Any, window: int = 1_000, **more: Any) -> Callable[[], Prompt]:
    return lambda: check_responses({"model": "gpt", "input": list(items), **more}, window)


def gemini(*contents: Any, window: int = 1_000, **more: Any) -> Callable[[], Prompt]:
    return lambda: check_gemini({"contents": list(contents), **more}, "gemini-3-pro", window)


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
        (chat({**ASKED, "reasoning_content": "Hm."}), "reasoning_content"),
        (chat(ASKED, window=2), "maximum context length"),
        (chat(ASKED, max_tokens=999), "999 in the completion"),
        (responses(ITEM, THOUGHT, CALLED, OUTPUT), ""),
        (responses(ITEM, OUTPUT), "No tool call found"),
        (responses(ITEM, CALLED), "No tool output found"),
        (responses(ITEM, THOUGHT), "required following item"),
        (responses(THOUGHT, ITEM), "required following item"),
        (responses(SEARCHED), "Invalid value"),
        (responses(ITEM, messages=[]), "Unrecognized"),
        (responses(ITEM, window=2), "exceeds the context window"),
        (gemini(USER, MODEL, GIVES), ""),
        (gemini(MODEL), "begins with a user turn"),
        (gemini(USER, GIVES), "number of function response"),
        (gemini(USER, MODEL), "is followed by"),
        (gemini(USER, {**USER, "role": "assistant"}), "valid role"),
        (gemini(USER, messages=[]), "Unrecognized"),
        (gemini(USER, window=2), r"input token count \(\d+\) exceeds"),
        (gemini(USER, tools=[{"googleSearch": {}}, {"functionDeclarations": []}]), "unsupported"),
    ],
)
def test_the_doubles_refuse_what_openai_and_google_refuse(request_of: Callable[[], Prompt], says: str) -> None:
    with pytest.raises(Refused, match=says) if says else nullcontext():
        request_of()


def in_chat(data: bytes, media_type: str = "image/png", *, count: int = 1) -> Callable[[], Prompt]:
    return chat({"role": "user", "content": [image_part(data, media_type)] * count}, window=1_000_000)


def in_responses(data: bytes, media_type: str = "image/png", *, count: int = 1) -> Callable[[], Prompt]:
    part = {"type": "input_image", "image_url": image_part(data, media_type)["image_url"]["url"]}
    return responses({"type": "message", "role": "user", "content": [part] * count}, window=1_000_000)


def in_gemini(data: bytes, media_type: str = "image/png", *, count: int = 1) -> Callable[[], Prompt]:
    part = {"inlineData": {"mimeType": media_type, "data": base64.b64encode(data).decode()}}
    return gemini({"role": "user", "parts": [part] * count}, window=1_000_000)


PNG, GIF = drawing(), drawing(kind="GIF", mode="P")


@pytest.mark.parametrize(
    ("request_of", "says"),
    [
        (in_chat(PNG), ""),
        (in_chat(GIF, "image/gif"), ""),
        (in_chat(PNG, count=500), ""),
        (in_chat(PNG, count=501), "Too many images"),
        (in_chat(moving(), "image/gif"), "unsupported image"),
        (in_chat(PNG[:-40]), "valid image"),
        (in_chat(PNG, "image/jpeg"), "media type"),
        (in_responses(PNG), ""),
        (in_responses(PNG, count=501), "Too many images"),
        (in_gemini(PNG), ""),
        (in_gemini(GIF, "image/gif"), "unsupported image"),
        (in_gemini(b"no picture"), "valid image"),
        (in_gemini(PNG, count=3_601), "at most 3600"),
    ],
)
def test_the_doubles_refuse_the_pictures_that_openai_and_google_refuse(
    request_of: Callable[[], Prompt], says: str
) -> None:
    with pytest.raises(Refused, match=says) if says else nullcontext():
        request_of()


@pytest.mark.parametrize(
    ("name", "request_of", "says"),
    [
        ("MOST_BYTES_OF_OPENAI", in_chat(PNG), "bytes"),
        ("MOST_BYTES_OF_OPENAI", in_responses(PNG), "bytes"),
        ("MOST_BYTES_OF_GEMINI", in_gemini(PNG), "payload size"),
    ],
)
def test_the_whole_request_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, name: str, request_of: Callable[[], Prompt], says: str
) -> None:
    request_of()
    monkeypatch.setattr(prompts, name, len(PNG))
    with pytest.raises(Refused, match=says):
        request_of()


def test_a_picture_counts_its_tiles_and_not_its_bytes() -> None:
    small, large = (in_chat(drawing(*size))().tokens for size in ((512, 512), (2048, 4096)))
    assert large - small == 1_105 - 255
    small, large = (in_gemini(drawing(*size))().tokens for size in ((384, 384), (1536, 800)))
    assert large - small == 1_032 - 258


def prompt(text: str) -> Prompt:
    return Prompt(text, (), 0)


@pytest.mark.parametrize(
    ("steps", "tokens", "read"),
    [
        (OPENAI, 1_023, 0),
        (OPENAI, 1_024, 1_024),
        (OPENAI, 1_200, 1_152),
        (steps_of_gemini("gemini-2.5-pro"), 2_047, 0),
        (steps_of_gemini("gemini-2.5-pro"), 2_049, 2_049),
        (steps_of_gemini("gemini-3-pro-preview"), 4_095, 0),
        (steps_of_gemini("gemini-3-pro-preview"), 4_097, 4_097),
    ],
)
def test_a_beginning_is_read_from_a_least_length_on(steps: Steps, tokens: int, read: int) -> None:
    kept = Beginnings()
    assert kept.read(prompt("a" * 4 * tokens + "b"), steps, now=0.0) == 0
    assert kept.read(prompt("a" * 4 * tokens + "c"), steps, now=1.0) == read


def test_what_is_not_used_for_five_minutes_is_forgotten_and_use_renews_it() -> None:
    kept, text = Beginnings(), "a" * 8_000
    times = [0.0, 299.0, 598.0, 897.0, 1_197.0]
    assert [kept.read(prompt(text), OPENAI, now=now) > 0 for now in times] == [False, True, True, True, False]


def test_another_model_reads_nothing() -> None:
    kept = Beginnings()
    for model in ("gpt-4.1", "gpt-5"):
        body = {"model": model, "messages": [{"role": "user", "content": "a" * 8_000}]}
        assert kept.read(check_chat(body, 10_000), OPENAI, now=0.0) == 0
