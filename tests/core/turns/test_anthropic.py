"""Anthropic's Messages: what of a request is read, and that answers are of the types of Anthropic's own package."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import anthropic.types as sdk
import pytest
from anthropic.types.shared import ErrorResponse
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from mnesis_core.errors import InvalidPicture, InvalidRequest, ModelRateLimited, SessionBusy
from mnesis_core.files.pictures import ANTHROPIC, GEMINI, OPENAI, PDF
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.llm.parameters import Parameters
from mnesis_core.messages import ReasoningPart, TextPart
from mnesis_core.records import UsageRecord
from mnesis_core.turns.anthropic import (
    MessageEvents,
    count_tokens,
    read_answer,
    read_error,
    read_messages,
    read_request,
    shows_thinking,
    status_of,
)
from mnesis_core.turns.requests import Answered, CompletionRequest, Head, RequestMessage, Thought, pieces_of
from tests.core.providers.sdk import accepts
from tests.support.material.drawings import document, drawing

HEAD = Head(turn_id="turn_1", session_id="sess_1", model="demo", created=1)
PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/jpeg", "data": base64.b64encode(drawing()).decode()},
}
CALL = {"type": "tool_use", "id": "part_c", "name": "look", "input": {"at": "Kiel"}}
ASKED: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "part_c", "content": content, **more}


def asked(**values: Any) -> CompletionRequest:
    return read_request(ASKED | values, session="")


def answer(*parts: TextPart | ReasoningPart, **values: Any) -> Answered:
    spoken = "\n\n".join(part.text for part in parts if isinstance(part, TextPart) and part.text)
    usage = UsageRecord(tokens_input=10, tokens_output=2, tokens_cache_read=6, tokens_cache_write=3)
    given = {"head": HEAD, "finish_reason": "stop", "state": "completed", "usage": usage}
    return Answered(**{**given, "text": spoken, "parts": parts, **values})


def test_blocks_are_read_as_the_shared_messages():
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    tides = {
        "type": "document",
        "title": "Tides",
        "source": {"type": "text", "media_type": "text/plain", "data": "9"},
    }
    found = {"type": "search_result", "title": "Harbours", "source": "https://a", "content": [text("deep")]}
    history = [
        user(text("Look", cache_control={"type": "ephemeral"}), PICTURE, text("there")),
        {"role": "assistant", "content": [thinking, text("I look."), text("Now."), CALL]},
        user(result([text("nine")])),
        {"role": "system", "content": "Be long."},
        user(tides, found),
    ]
    accepts(list[sdk.MessageParam], history)
    asking, called, looked, told, read = read_messages(history)
    assert (asking.role, asking.text, asking.pictures[0].media_type) == ("user", "Look\nthere", "image/png")
    call = ToolCall(id="part_c", name="look", arguments='{"at": "Kiel"}')
    assert called == RequestMessage(role="assistant", text="I look.\n\nNow.", tool_calls=(call,), place=1)
    assert looked == RequestMessage(role="tool", text="nine", tool_call_id="part_c", place=2)
    assert told == RequestMessage(role="system", text="Be long.", place=3)
    assert read.text == "Tides\n\n9\nHarbours\n\nhttps://a\n\ndeep"


def test_documents_are_read_in_messages_and_results():
    source = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(document("deep")).decode()}
    history = [user({"type": "document", "source": source}), user(result([{"type": "document", "source": source}]))]
    accepts(list[sdk.MessageParam], history)
    assert [one.pictures[0].media_type for one in read_messages(history)] == ["application/pdf"] * 2
    with pytest.raises(InvalidPicture):
        read_messages([user({"type": "document", "source": PICTURE["source"]})])


def test_what_is_said_beside_results_goes_with_the_last_of_them():
    other = {"type": "tool_result", "tool_use_id": "part_b", "is_error": True}
    first, last = read_messages([user(result("one"), other, text("Hurry."), PICTURE)])
    assert first == RequestMessage(role="tool", text="one", tool_call_id="part_c")
    assert (last.text, last.tool_call_id, last.is_error, len(last.pictures)) == ("Hurry.", "part_b", True, 1)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, {}),
        ({"max_tokens": 9, "temperature": 1, "top_p": 0.5}, {"max_output_tokens": 9, "temperature": 1.0, "top_p": 0.5}),
        ({"stop_sequences": []}, {}),
        ({"stop_sequences": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"thinking": {"type": "disabled"}}, {"effort": "none"}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"effort": "low"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 5000}}, {"effort": "medium"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, {"effort": "high"}),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, {"effort": "max"}),
        ({"tool_choice": {"type": "auto"}}, {"tool_choice": "auto"}),
        (
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        (
            {"tool_choice": {"type": "tool", "name": "look"}},
            {"tool_choice": {"type": "function", "function": {"name": "look"}}},
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "result", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
    ],
)
def test_parameters_have_our_names(given: dict[str, Any], read: dict[str, Any]):
    # The package has no field for these two any more; the API takes them.
    typed = {name: value for name, value in given.items() if name not in ("temperature", "top_p")}
    accepts(list[sdk.message_create_params.MessageCreateParamsNonStreaming], [ASKED | {"max_tokens": 9} | typed])
    assert asked(**given).parameters == Parameters(**read)


def test_a_request_says_where_it_belongs_and_what_has_no_effect():
    tool = {
        "name": "look",
        "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"},
        "type": "custom",
    }
    read = asked(
        system=[text("Be"), text("brief.")],
        tools=[tool],
        metadata={"user_id": "anna", "mnesis_session": "sess_1"},
        **{
            "top_k": 3,
            "service_tier": "auto",
            "cache_control": {"type": "ephemeral"},
            "X\r\nEvil": 1,
            "container": None,
        },
    )
    assert read.messages[0] == RequestMessage(role="system", text="Be\n\nbrief.")
    assert read.tools == (ToolSpec(name="look", description="", parameters={"type": "object"}),)
    assert (read.origin, read.user, read.session, read.unused) == (
        "anthropic",
        "anna",
        "sess_1",
        ("service_tier", "top_k"),
    )
    assert asked(tools=[tool], tool_choice={"type": "none"}).tools == ()
    assert read_request(ASKED | {"metadata": {"mnesis_session": "a"}}, session="b").session == "b"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"messages": [user({"type": "audio"})]}, "messages.0.content.0.type"),
        ({"messages": [user(text(["a"]))]}, "messages.0.content.0.text"),
        ({"messages": [user(CALL)]}, "messages.0.content.0.type"),
        ({"messages": [user({"type": "image", "source": "a"})]}, "messages.0.content.0.source"),
        ({"messages": [user({"type": "image", "source": {"type": "file"}})]}, "messages.0.content.0.source.type"),
        ({"messages": [user(result([{"type": "audio"}]))]}, "messages.0.content.0.content.0.type"),
        ({"messages": [user(result(7))]}, "messages.0.content.0.content"),
        ({"messages": [user({"type": "tool_result", "content": "a"})]}, "messages.0.content.0.tool_use_id"),
        ({"messages": [{"role": "assistant", "content": [CALL | {"input": []}]}]}, "messages.0.content.0.input"),
        ({"messages": [user({"type": "document", "source": {"type": "url"}})]}, "messages.0.content.0.source.url"),
        ({"messages": [user({"type": "document", "source": {"type": "file"}})]}, "messages.0.content.0.source.type"),
        ({"system": 7}, "system"),
        ({"system": [7]}, "system.0"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.type"),
        ({"tools": [{"name": 7}]}, "tools.0.name"),
        ({"mcp_servers": [{"url": "https://a"}]}, "mcp_servers"),
        ({"metadata": 7}, "metadata"),
        ({"metadata": {"user_id": 7}}, "metadata.user_id"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"thinking": "on"}, "thinking"),
        ({"thinking": {"type": ["enabled"]}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"tool_choice": {"type": ["any"]}}, "tool_choice.type"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": "json"}}, "output_config.format"),
    ],
)
def test_what_cannot_be_taken_is_named(given: dict[str, Any], field: str):
    with pytest.raises(InvalidRequest) as refused:
        asked(**given)
    assert refused.value.details["field"] == field


@pytest.mark.parametrize(("kind", "media_type"), [("image", ""), ("document", PDF)])
def test_a_picture_or_a_document_elsewhere_is_still_to_be_fetched(kind: str, media_type: str):
    block = {"type": kind, "source": {"type": "url", "url": "https://a/b"}}
    [sent] = asked(messages=[user(block)]).messages[0].pictures
    assert (sent.url, sent.media_type, sent.place) == ("https://a/b", media_type, "messages.0.content.0.source.url")
    assert count_tokens(asked(messages=[user(block)]), OPENAI) > 1_000
    with pytest.raises(InvalidPicture):
        asked(messages=[user({"type": kind, "source": {"type": "url", "url": "ftp://a/b"}})])


@pytest.mark.parametrize("rule", [ANTHROPIC, OPENAI, GEMINI])
def test_a_count_grows_with_everything_that_is_sent(rule: Any):
    tool = {"name": "look", "description": "Look about.", "input_schema": {"type": "object"}}
    few = count_tokens(asked(), rule)
    more = [
        asked(system="Be brief."),
        asked(tools=[tool]),
        asked(messages=[user(text("Hello"), PICTURE)]),
        asked(messages=[user(text("Hello")), {"role": "assistant", "content": [CALL]}]),
    ]
    assert all(count_tokens(request, rule) > few for request in more)
    assert count_tokens(asked(), rule, ratio=2.0) == 2 * few


def check(shape: Any, value: Any) -> None:
    """Check a value against the package's own type, every key of which must be known."""
    _known(_adapter(shape).validate_python(value))


_adapter = cache(TypeAdapter)


def _known(value: Any) -> None:
    if isinstance(value, BaseModel):
        # A stream of Anthropic's says what is kept how long at its beginning, where it is not known here.
        ours = {"mnesis", "code", "details"} | (
            {"cache_creation"} if isinstance(value, sdk.MessageDeltaUsage) else set()
        )
        assert not set(value.model_extra or ()) - ours, value
        value = [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, list):
        for item in value:
            _known(item)


PARTS = st.lists(
    st.builds(ReasoningPart, text=st.text("ab\n", max_size=4)) | st.builds(TextPart, text=st.text("ab\n", max_size=4))
)
CALLS = st.lists(st.sampled_from(["{}", '{"a": [1]}', "[]", "{", '{"a": "\\ud800"}', "[" * 3000]), max_size=2)


@given(PARTS, CALLS, st.booleans(), st.sampled_from(["", "I will not."]))
def test_a_stream_and_the_whole_say_the_same_in_the_packages_types(parts, calls, thinks, refusal):
    tool_calls = tuple(ToolCall(id=f"part_{n}", name="look", arguments=said) for n, said in enumerate(calls))
    answered = answer(*parts, tool_calls=tool_calls, refusal=refusal, finish_reason="tool_calls" if calls else "stop")
    whole = read_answer(answered, thinks=thinks)
    check(sdk.Message, whole)
    events = MessageEvents(HEAD, thinks=thinks)
    told = [*events.begin()]
    for piece in pieces_of(parts):
        told += events.add(piece)
    told += events.end(answered)
    for event in told:
        if event["type"] != "ping":  # The package drops it before it reads its type.
            check(sdk.RawMessageStreamEvent, event)
    assert put_together(told) == [printable_block(block) for block in whole["content"]]
    assert told[-2]["usage"] == whole["usage"]
    assert told[-2]["delta"]["stop_reason"] == whole["stop_reason"]


def printable_block(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "citations"}


def put_together(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of a stream, as the package puts them together."""
    blocks: list[dict[str, Any]] = []
    open_ones: set[int] = set()
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert not open_ones
                assert event["index"] == len(blocks)
                open_ones.add(event["index"])
                blocks.append(printable_block(event["content_block"]))
            case "content_block_delta":
                assert open_ones == {event["index"]}
                block, delta = blocks[-1], event["delta"]
                for name in ("text", "thinking", "signature"):
                    if name in delta:
                        block[name] += delta[name]
                if "partial_json" in delta:
                    block["input"] = json.loads(delta["partial_json"])
            case "content_block_stop":
                open_ones.remove(event["index"])
    assert not open_ones
    return blocks


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "end_turn"),
        ({"finish_reason": "length"}, "max_tokens"),
        ({"finish_reason": "content_filter"}, "refusal"),
        ({"finish_reason": "tool_calls"}, "tool_use"),
        ({"refusal": "No."}, "refusal"),
    ],
)
def test_an_answer_says_why_it_ends(values: dict[str, Any], reason: str):
    assert read_answer(answer(TextPart(text="a"), **values), thinks=False)["stop_reason"] == reason


def test_tokens_of_the_cache_are_counted_beside_the_others():
    answered = answer(TextPart(text="a"), cache_write_1h=2)
    usage = read_answer(answered, thinks=False)["usage"]
    assert usage == {
        "input_tokens": 1,
        "cache_read_input_tokens": 6,
        "cache_creation_input_tokens": 3,
        "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2},
        "output_tokens": 2,
    }
    first, *_, last, _ = [*MessageEvents(HEAD, thinks=False).begin(), *MessageEvents(HEAD, thinks=False).end(answered)]
    assert first["message"]["usage"]["cache_creation"] is None
    assert last["usage"] == usage


@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
        ({"type": "adaptive", "display": "summarized"}, True),
    ],
)
def test_thinking_is_shown_to_those_who_ask(thinking: Any, shown: bool):
    assert shows_thinking(ASKED | ({"thinking": thinking} if thinking else {})) is shown
    events = MessageEvents(HEAD, thinks=shown)
    assert bool([*events.add(Thought("Hm"))]) is shown


def test_errors_carry_our_codes_in_anthropics_shape():
    for error, status, kind in (
        (InvalidRequest("no", field="a\ud800"), 400, "invalid_request_error"),
        (SessionBusy(turn_id="turn_1"), 409, "invalid_request_error"),
        (ModelRateLimited(), 429, "rate_limit_error"),
    ):
        told = read_error(error, request_id="req_1")
        check(ErrorResponse, told)
        assert (status_of(error), told["error"]["type"], told["request_id"]) == (status, kind, "req_1")
        assert told["error"]["details"]["error_code"] == told["error"]["code"] == error.code
