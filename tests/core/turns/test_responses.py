"""OpenAI's Responses API: requests as values, and answers as items and events."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from mnesis_core.errors import InvalidRequest, ModelRateLimited, ModelUnavailable, TurnNotFoundError
from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import ReasoningPart, StoredMessage, StoredPart, TextPart, ToolPart, ToolState
from mnesis_core.records import UsageRecord, new_id
from mnesis_core.turns.options import TurnOptions
from mnesis_core.turns.requests import Answered, Head, RequestMessage, Thought
from mnesis_core.turns.response_requests import (
    FREEFORM,
    read_items,
    read_response_id,
    read_response_request,
    read_tools,
    response_id,
)
from mnesis_core.turns.responses import (
    ResponseHead,
    ResponseWriter,
    answer_in,
    items_of_request,
    read_failure,
    read_response,
    repeated,
)
from tests.support.material.drawings import data_url, document

URL = "https://example.org/a"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
TURN, PART = "turn_01K5C0D1E2F3G4H5J6K7M8N9P0", "part_01K5C0D1E2F3G4H5J6K7M8N9P1"  # They are names of tests too.
USAGE = UsageRecord(tokens_input=5, tokens_output=2)
HEAD = ResponseHead(turn_id=TURN, session_id=new_id("sess"), model="demo", created=1)
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "nothing"}


def read(**body: Any) -> Any:
    return read_response_request({"model": "demo", "input": "Hello", **body})


def answered(*parts: Any, **values: Any) -> Answered:
    head = Head(turn_id=TURN, session_id="", model="demo", created=1)
    told = {"text": "", "finish_reason": "stop", "state": "completed", "usage": USAGE, **values}
    return Answered(head=head, parts=parts, **told)


def message(role: Any, *parts: Any) -> StoredMessage:
    stored = tuple(StoredPart(id=id, index=at, part=part, token_estimate=0) for at, (id, part) in enumerate(parts))
    return StoredMessage(id=new_id("msg"), seq=1, turn_id=TURN, role=role, parts=stored, created_at=MOMENT)


def tool(name: str, output: str | None = "done") -> ToolPart:
    return ToolPart(tool_name=name, tool_call_id="c", output=output, state=ToolState.COMPLETED)


def test_an_answer_its_calls_and_its_thinking_are_one_message():
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    custom = {"type": "custom_tool_call", "call_id": "c2", "name": "note", "input": 'a "b"'}
    told = {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "ok"}]}
    messages, referred = read_items([{"role": "user", "content": "Look"}, thought, said, CALL, custom, RESULT, told])
    assert referred == ""
    assert [one.role for one in messages] == ["user", "assistant", "tool", "tool"]
    assert messages[1].text == "I look."
    assert messages[1].tool_calls == (
        ToolCall(id="c1", name="look", arguments="{}"),
        ToolCall(id="c2", name="note", arguments=json.dumps({"input": 'a "b"'})),
    )
    assert [(one.text, one.tool_call_id) for one in messages[2:]] == [("nothing", "c1"), ("ok", "c2")]


def test_what_precedes_an_item_that_is_referred_to_is_left_out():
    number = TURN.removeprefix("turn_")
    reference = {"type": "item_reference", "id": f"msg_{number}_0"}
    messages, referred = read_items([{"role": "user", "content": "One"}, reference, {"role": "user", "content": "Two"}])
    assert ([one.text for one in messages], referred) == (["Two"], TURN)


def test_instructions_stand_before_what_developers_say():
    request = read(instructions="Be brief.", input=[{"role": "developer", "content": "Speak."}]).request
    assert request.messages == (
        RequestMessage(role="system", text="Be brief."),
        RequestMessage(role="system", text="Speak."),
    )


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({}, "new"),
        ({"store": False}, ""),
        ({"input": [CALL, RESULT]}, ""),
        ({"conversation": "conv_" + TURN[5:]}, "sess_" + TURN[5:]),
        ({"conversation": {"id": "sess_x"}}, "sess_x"),
        ({"metadata": {"mnesis_session": "sess_y"}}, "sess_y"),
        ({"previous_response_id": response_id(TURN, PART)}, ""),
    ],
)
def test_a_request_says_where_it_belongs(body, session):
    wanted = read(**body)
    assert (wanted.request.session, wanted.previous) == (session, TURN if "previous_response_id" in body else "")


def test_tools_become_functions():
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    inner = {"type": "function", "name": "close", "parameters": {"type": "object"}}
    tools = read_tools(
        [
            {"type": "function", "name": "look", "description": None, "parameters": None},
            {"type": "custom", "name": "patch", "description": "Patches.", "format": grammar},
            {"type": "namespace", "name": "agents", "tools": [inner]},
            {"type": "web_search", "external_web_access": True},
        ]
    )
    look, patch, close = tools.specs
    assert look.parameters == {"type": "object", "properties": {}}
    assert (patch.parameters, "start: WORD" in patch.description) == (FREEFORM, True)
    assert (close.name, tools.namespaces) == ("agents__close", {"agents__close": ("agents", "close")})
    assert tools.ran == ("web_search",)


def test_parameters_are_read_where_this_api_has_them():
    schema = {"type": "json_schema", "name": "sum", "schema": {"type": "object"}, "strict": True}
    parameters = read(
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": schema, "verbosity": "low"},
        tool_choice={"type": "custom", "name": "patch"},
        tools=[{"type": "custom", "name": "patch"}],
        max_output_tokens=50,
    ).request.parameters
    assert (parameters.effort, parameters.verbosity, parameters.max_output_tokens) == ("low", "low", 50)
    assert parameters.tool_choice == {"type": "function", "function": {"name": "patch"}}
    assert parameters.response_format["json_schema"]["name"] == "sum"
    repeats = repeated(
        TurnOptions(parameters=parameters, tools=read_tools([{"type": "custom", "name": "patch"}]).specs)
    )
    assert (repeats["text"]["format"], repeats["tool_choice"]) == (schema, {"type": "custom", "name": "patch"})


def test_only_allowed_tools_are_offered():
    tools = [{"type": "function", "name": name} for name in ("look", "go")]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "go"}]}
    request = read(tools=tools, tool_choice=choice).request
    assert ([one.name for one in request.tools], request.parameters.tool_choice) == (["go"], "required")
    assert read(tools=tools, tool_choice="none").request.tools == ()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"include": 3}, "include"),
        ({"truncation": "some"}, "truncation"),
        ({"store": "yes"}, "store"),
        ({"text": []}, "text"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"tools": {}}, "tools"),
        ({"tools": [3]}, "tools.0.type"),
        ({"tools": [{"type": "file_search"}]}, "tools.0.type"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": [{"type": "mcp"}]}]}, "tools.0.tools.0.type"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"conversation": 3}, "conversation"),
        ({"conversation": "conv_1", "previous_response_id": response_id(TURN)}, "previous_response_id"),
        ({"input": [3]}, "input.0"),
        ({"input": [{"type": "computer_call"}]}, "input.0.type"),
        ({"input": [{"role": []}]}, "input.0.role"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0.file_data"),
        ({"input": [{"role": "assistant", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type"),
        ({"input": [{"role": "user", "content": 3}]}, "input.0.content"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.id"),
        ({"input": [{**CALL, "call_id": None}]}, "input.0.call_id"),
        ({"input": [{**RESULT, "output": None}]}, "input.0.output"),
        ({"instructions": 3}, "instructions"),
        ({"user": []}, "user"),
    ],
)
def test_what_is_refused_is_named(body, field):
    with pytest.raises(InvalidRequest) as refused:
        read(**body)
    assert refused.value.details["field"] == field


@pytest.mark.parametrize(("kind", "name"), [("input_image", "image_url"), ("input_file", "file_url")])
def test_a_file_elsewhere_is_still_to_be_fetched(kind, name):
    [asked] = read(input=[{"role": "user", "content": [{"type": kind, name: URL}]}]).request.messages
    assert [(sent.url, sent.place) for sent in asked.pictures] == [(URL, f"input.0.content.0.{name}")]


def test_a_pdf_is_read():
    part = {"type": "input_file", "filename": "tides.pdf", "file_data": data_url(document("deep"), "application/pdf")}
    [asked] = read(input=[{"role": "user", "content": [part]}]).request.messages
    assert asked.pictures[0].media_type == "application/pdf"


def test_what_has_no_effect_is_named():
    unused = read(prompt_cache_key="a", include=["reasoning.encrypted_content"], service_tier=None, **{"X\r\n": 1})
    assert unused.request.unused == ("prompt_cache_key",)


@pytest.mark.parametrize(
    "id", ["", "resp_", "resp_1", f"resp_{TURN}", "turn_1", f"{response_id(TURN)}\n", "x" * 10_000]
)
def test_ids_that_are_not_ours_are_not_found(id):
    assert read_response_id(response_id(TURN, PART)) == (TURN, PART)
    with pytest.raises(TurnNotFoundError):
        read_response_id(id)


def test_each_change_of_what_is_said_is_an_item():
    writer = ResponseWriter(HEAD)
    # What divides two texts of an answer is in neither item.
    pieces = (Thought("Hm"), Thought("."), "I look.", Thought("\n\nSo"), "\n\nIt is \ud800.")
    events = [event for piece in pieces for event in writer.take(piece)]
    events += writer.end(answered(refusal="No."))
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert [item["type"] for item in writer.response["output"]] == [
        "reasoning",
        "message",
        "reasoning",
        "message",
        "message",
    ]
    assert writer.response["output"][0]["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert writer.response["output"][2]["summary"] == [{"type": "summary_text", "text": "So"}]
    assert [item["content"][0].get("text") for item in writer.response["output"][1::2]] == ["I look.", "It is \ufffd."]
    assert writer.response["output"][-1]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert events[-1]["response"] == writer.response


@pytest.mark.parametrize(
    ("values", "status", "reason", "event"),
    [
        ({}, "completed", None, "response.completed"),
        ({"finish_reason": "length"}, "incomplete", "max_output_tokens", "response.incomplete"),
        ({"finish_reason": "content_filter"}, "incomplete", "content_filter", "response.incomplete"),
        ({"state": "incomplete"}, "incomplete", "max_output_tokens", "response.incomplete"),
        ({"state": "cancelled"}, "cancelled", None, "response.incomplete"),
        ({"state": "failed"}, "failed", None, "response.failed"),
        ({"state": "running"}, "in_progress", None, "response.incomplete"),
        (
            {"state": "suspended", "tool_calls": (ToolCall(id=PART, name="look", arguments=""),)},
            "completed",
            None,
            "response.completed",
        ),
    ],
)
def test_the_end_of_a_turn_is_the_status_of_its_response(values, status, reason, event):
    writer = ResponseWriter(HEAD)
    last = list(writer.end(answered(**values)))[-1]
    details = writer.response["incomplete_details"]
    assert (writer.response["status"], details and details["reason"], last["type"]) == (status, reason, event)


def test_a_failure_ends_the_item_that_was_being_said():
    writer = ResponseWriter(HEAD)
    list(writer.take("I lo"))
    *_, done, failed = writer.fail(ModelUnavailable("gone \ud800"))
    assert (done["item"]["status"], failed["type"]) == ("incomplete", "response.failed")
    assert failed["response"]["error"] == {"code": "server_error", "message": "gone \ufffd"}
    assert failed["response"]["mnesis"]["code"] == "MODEL_UNAVAILABLE"
    assert read_failure(ModelRateLimited())["code"] == "rate_limit_exceeded"  # type: ignore[index]


def test_a_custom_tools_input_is_text_and_a_namespace_is_named():
    head = replace(HEAD, freeform=frozenset({"note"}), namespaces={"agents__close": ("agents", "close")})
    calls = [
        ("note", '{"input": "a"}'),
        ("note", "[]"),
        ("note", "nonsense"),
        ("agents__close", "{}"),
        ("look", "{\ud800}"),
    ]
    tool_calls = tuple(ToolCall(id=new_id("part"), name=name, arguments=said) for name, said in calls)
    output = read_response(head, answered(tool_calls=tool_calls))["output"]
    assert [item.get("input", item.get("arguments")) for item in output] == ["a", "[]", "nonsense", "{}", "{\ufffd}"]
    assert (output[3]["namespace"], output[3]["name"], output[3]["type"]) == ("agents", "close", "function_call")


def test_the_record_says_which_messages_answer_which_request():
    ours, theirs, more = (new_id("part") for _ in range(3))
    messages = [
        message("user", (new_id("part"), TextPart(text="Look"))),
        message("assistant", (new_id("part"), TextPart(text="I look.")), (ours, tool("lcm_grep"))),
        message("assistant", (theirs, tool("look"))),
        message("user", (new_id("part"), TextPart(text="from a peer"))),
        message("assistant", (new_id("part"), ReasoningPart(text="Hm")), (more, tool("look"))),
        message("assistant", (new_id("part"), TextPart(text="Done."))),
    ]
    callers = frozenset({"look"})
    first, [call] = answer_in(messages, callers, "")
    assert (first, call.id) == (messages[1:3], theirs)
    second, [call] = answer_in(messages, callers, theirs)
    assert (second, call.id) == (messages[4:5], more)
    assert answer_in(messages, callers, more) == (messages[5:], ())
    assert answer_in(messages, callers, new_id("part")) == ([], ())
    [asked] = items_of_request(messages, HEAD)
    [result] = items_of_request(messages, replace(HEAD, answered_part=theirs))
    assert (asked["content"][0]["text"], result["output"]) == ("Look", "done")
