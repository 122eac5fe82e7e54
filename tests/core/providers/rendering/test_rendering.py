"""What holds for the payload of every provider: all that is said leaves, once, in order, and a prefix stays as it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import EMPTY_MESSAGE, ContextMessage, Prompt
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import ToolCall
from mnesis_core.providers.rendering import INTERRUPTED, RENDERERS, CallIds, arguments_object, digest, render
from mnesis_core.text import printable
from tests.core.context import contexts as make
from tests.core.providers.rendering.rendered import Answered, Called, Said, read

every_provider = pytest.mark.parametrize("provider", RENDERERS)
NEW = ("openai_responses", "anthropic", "gemini")
MAIN = {"openai_chat": "messages", "openai_responses": "input", "anthropic": "messages", "gemini": "contents"}


@st.composite
def any_prompt(draw: st.DrawFn) -> Prompt:
    """What assembly makes of any record in any room, or a prompt that nothing has checked."""
    if draw(st.booleans()):
        return draw(make.prompts())
    usable = draw(st.sampled_from([300, 3_000, 60_000]))
    tools = (make.CALCULATOR,)
    return assemble(draw(make.contexts()), system_prompt="Be brief.", tools=tools, budget=make.budget(usable))


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


@every_provider
@given(prompt=any_prompt())
def test_it_can_leave_as_json(provider: str, prompt: Prompt) -> None:
    as_json(render(prompt, provider=provider)).encode()


@every_provider
@given(prompt=any_prompt())
def test_each_call_is_followed_by_its_results_exactly_once(provider: str, prompt: Prompt) -> None:
    items = read(render(prompt, provider=provider), provider)
    open_calls: list[str] = []
    for item in items:
        if isinstance(item, Called):
            open_calls.append(item.id)
        elif isinstance(item, Answered):
            assert item.id == open_calls.pop(0)
        else:
            assert not open_calls
    assert not open_calls
    assert len([item for item in items if isinstance(item, Called)]) == sum(
        len(message.tool_calls) for message in prompt.messages
    )


@pytest.mark.parametrize("provider", NEW)
@given(prompt=any_prompt())
def test_no_two_calls_have_one_id(provider: str, prompt: Prompt) -> None:
    ids = [item.id for item in read(render(prompt, provider=provider), provider) if isinstance(item, Called)]
    assert len(ids) == len(set(ids))


@every_provider
@given(prompt=any_prompt())
def test_every_text_survives_in_order(provider: str, prompt: Prompt) -> None:
    items = read(render(prompt, provider=provider), provider)
    said = iter([item.text for item in items if isinstance(item, Said)])
    for message in prompt.messages:
        if message.text.strip():
            assert any(text.endswith(printable(message.text)) for text in said)
    results = [item.text for item in items if isinstance(item, Answered)]
    for text, wanted in zip(results, wanted_results(prompt.messages), strict=True):
        assert text == printable(wanted) or not wanted.strip()


def wanted_results(messages: Sequence[ContextMessage]) -> list[str]:
    return [
        next((result.text for result in message.tool_results if result.call_id == call.id), INTERRUPTED)
        for message in messages
        for call in message.tool_calls
    ]


@every_provider
@given(prompt=make.prompts(), count=st.integers(1, 9))
def test_a_longer_history_only_appends(provider: str, prompt: Prompt, count: int) -> None:
    before = render(replace(prompt, messages=prompt.messages[:count]), provider=provider)
    after = render(prompt, provider=provider)
    main = MAIN[provider]
    if prompt.messages:
        assert as_json(before | {main: []}) == as_json(after | {main: []})
    kept = len(before[main]) - 1
    assert after[main][:kept] == before[main][:kept] if kept >= 0 else True
    # The last one may have grown: it is the same up to its closing brackets.
    assert as_json(after[main]).startswith(as_json(before[main]).rstrip("]}"))


@pytest.mark.parametrize("provider", ["openai_chat", "openai_responses"])
@given(prompt=make.prompts(), count=st.integers(1, 9))
def test_openai_s_items_never_change(provider: str, prompt: Prompt, count: int) -> None:
    before = render(replace(prompt, messages=prompt.messages[:count]), provider=provider)[MAIN[provider]]
    assert render(prompt, provider=provider)[MAIN[provider]][: len(before)] == before


@pytest.mark.parametrize("provider", NEW)
def test_a_message_of_white_space_says_that_it_is_empty(provider: str) -> None:
    prompt = Prompt(messages=(ContextMessage(role="user", text=" \n"),), tools=())
    assert read(render(prompt, provider=provider), provider) == [Said("user", EMPTY_MESSAGE)]


@pytest.mark.parametrize("provider", NEW)
def test_an_empty_prompt_names_neither_system_nor_tools(provider: str) -> None:
    assert render(Prompt(messages=(), tools=()), provider=provider) == {MAIN[provider]: []}


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="openai_chat, openai_responses, anthropic, gemini"):
        render(Prompt(messages=(), tools=()), provider="morse")


def test_ids_are_made_of_plain_letters_and_told_apart() -> None:
    ids = CallIds()
    assert [ids.new(name) for name in ("a b", "a_b", "a_b_2", "a_b", "", "é" * 70, "_" * 70)] == [
        *("a_b", "a_b_2", "a_b_2_2", "a_b_3", "call"),
        *("_" * 64, "_" * 62 + "_2"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        '"a"',
        "{not json",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1' + "0" * 400 + "}",
        '{"a":' * 3_000 + "1" + "}" * 3_000,
    ],
)
def test_arguments_that_are_no_readable_object_are_sent_whole_inside_one(text: str) -> None:
    assert arguments_object(text) == {"invalid_arguments": text}


@pytest.mark.parametrize("levels", [64, 65])
def test_arguments_may_be_so_deep(levels: int) -> None:
    text = '{"a": ' + "[" * (levels - 1) + "1" + "]" * (levels - 1) + "}"
    assert (arguments_object(text) == json.loads(text)) == (levels == 64)


def test_arguments_without_a_word_are_an_empty_object() -> None:
    assert arguments_object(" ") == {}


def test_no_lone_surrogate_leaves_in_arguments() -> None:
    assert arguments_object('{"\\ud800": ["\\udfff", 1]}') == {"\ufffd": ["\ufffd", 1]}


@pytest.mark.parametrize("provider", NEW)
def test_arguments_are_those_of_the_call(provider: str) -> None:
    call = ToolCall(id="call_1", name="read_file", arguments='{"path": "a.txt", "lines": [1, 2.5, null, true]}')
    prompt = Prompt(messages=(ContextMessage(role="assistant", text="", tool_calls=(call,)),), tools=())
    said = [item for item in read(render(prompt, provider=provider), provider) if isinstance(item, Called)]
    assert said == [Called("call_1", "read_file", {"path": "a.txt", "lines": [1, 2.5, None, True]})]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(payload=st.dictionaries(st.text(st.characters()), JSON))
def test_a_digest_is_that_of_the_one_canonical_text(payload: dict[str, Any]) -> None:
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest(payload) == hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
