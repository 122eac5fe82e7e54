"""Turns that a caller ran with its own model client, recorded at the REST endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from agents_app.turns import lifecycle
from compaction_app.context.state import build_context
from compaction_app.queries import list_runs
from files_app.contents import put_content
from files_app.store import store_file_reference
from mnesis_core.messages import (
    AudioPart,
    CitationPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.records import SessionRecord
from sessions_app.record import turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_turns, load_turn
from tests.support.record.talks import new_session, say


def record(program: Client, session: SessionRecord | str, **body: Any) -> Any:
    session_id = session if isinstance(session, str) else session.id
    body = {"user": "What is due?", "assistant": "The tide table."} | body
    return program.post(f"/api/sessions/{session_id}/record", data=json.dumps(body), content_type="application/json")


def refusal(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()["error"]
    return found


def test_a_recorded_turn_is_a_turn_like_any_other(program, session):
    answer = record(
        program,
        session,
        tokens={"input": 1200, "output": 34, "cache_read": 1000, "cache_write": 0},
        cost=0.0123456,
        finish_reason="stop",
        model="somebody/else",
    )
    assert answer.status_code == 201
    turn = load_turn(answer.json()["id"], session_id=session.id)
    assert (turn.state, turn.origin, turn.model) == ("completed", "record", "somebody/else")
    assert (turn.usage.tokens_input, turn.usage.tokens_cache_read, turn.usage.cost_micros) == (1200, 1000, 12346)
    assert turn.usage.usage_source == "caller"
    messages = load_messages(session.id)
    assert [(message.role, message.parts[0].part) for message in messages] == [
        ("user", TextPart(text="What is due?")),
        ("assistant", TextPart(text="The tide table.")),
    ]
    assert [event.type for event in load_events(session.id, after=1)] == [
        "turn.started",
        "message.created",
        "message.created",
        "message.finalized",
        "turn.completed",
        "session.updated",
    ]
    assert load_session(session.id).title == "What is due?"


def test_what_is_not_known_stays_unknown(program, session):
    turn = load_turn(record(program, session).json()["id"], session_id=session.id)
    assert (turn.usage.tokens_input, turn.usage.cost_micros, turn.usage.usage_source) == (None, None, None)
    assert turn.model == session.model


def test_the_next_turn_sees_what_was_recorded(program, session):
    record(program, session)
    texts = json.dumps(build_context(session.id).payload)
    assert "What is due?" in texts
    assert "The tide table." in texts


def test_parts_of_every_kind_are_kept_as_they_came(program, session):
    with change(session.id) as writing:
        file_id = store_file_reference(
            writing, content_id="ab" * 32, path="/t.csv", file_type="csv", token_count=9, exploration_summary="Tides."
        )
    file = {"type": "file_ref", "file_id": file_id}
    call = {"type": "tool", "tool_name": "look", "tool_call_id": "c1", "input": {"at": "ü"}, "output": "high"}
    failed = {"type": "tool", "tool_name": "look", "tool_call_id": "c2", "input": "not json", "error": "no such port"}
    spoken = [
        {"type": "reasoning", "text": "Hm."},
        call,
        failed | {"state": "error"},
        {"type": "text", "text": "a\x00"},
    ]
    assert record(program, session, user=[{"type": "text", "text": "See"}, file], assistant=spoken).status_code == 201
    user, assistant = ([stored.part for stored in message.parts] for message in load_messages(session.id))
    assert user[1] == FileRefPart(
        file_id=file_id, path="/t.csv", file_type="csv", token_count=9, exploration_summary="Tides."
    )
    assert assistant == [
        ReasoningPart(text="Hm."),
        ToolPart(tool_name="look", tool_call_id="c1", input='{"at": "ü"}', output="high", state=ToolState.COMPLETED),
        ToolPart(tool_name="look", tool_call_id="c2", input="not json", error="no such port", state=ToolState.ERROR),
        TextPart(text="a\x00"),
    ]


def test_what_models_say_and_take_beyond_text_is_kept(program, session):
    png = b"\x89PNG\r\n\x1a\n" + b"x" * 9
    with change(session.id) as writing:
        file_id = store_file_reference(writing, content_id=put_content(png), path="/quay", size=len(png))
    thinking = '{"type": "thinking",  "thinking": "Hm.", "signature": "c2ln", "n": 12345678901234567890123}'
    image = {"type": "image", "file_id": file_id, "caption": "The quay"}
    source = {
        "type": "citation",
        "text": "fourteen",
        "title": "Tides",
        "url": "https://a.example",
        "start": 2,
        "end": 9,
    }
    ran = {
        "type": "provider_tool",
        "provider": "openai",
        "tool_name": "web_search",
        "tool_call_id": "ws_1",
        "input": {"q": 1},
    }
    spoken = [
        {"type": "provider", "provider": "anthropic", "kind": "thinking", "data": thinking},
        {"type": "provider", "provider": "gemini", "kind": "thought_signature", "data": {"thoughtSignature": "ü"}},
        *(ran, {"type": "text", "text": "Fourteen."}, source, {"type": "refusal", "text": "No more."}, image),
    ]
    asked = [image, {"type": "audio", "file_id": file_id}, {"type": "document", "file_id": file_id}]
    assert record(program, session, user=asked, assistant=spoken).status_code == 201
    user, assistant = ([stored.part for stored in message.parts] for message in load_messages(session.id))
    shown = {"file_id": file_id, "media_type": "image/png", "size": len(png), "name": "/quay"}
    assert user == [ImagePart(caption="The quay", **shown), AudioPart(**shown), DocumentPart(**shown)]
    assert assistant == [
        ProviderPart(provider="anthropic", kind="thinking", data=thinking),
        ProviderPart(provider="gemini", kind="thought_signature", data='{"thoughtSignature": "ü"}'),
        ProviderToolPart(provider="openai", tool_name="web_search", tool_call_id="ws_1", input='{"q": 1}'),
        TextPart(text="Fourteen."),
        CitationPart(text="fourteen", title="Tides", url="https://a.example", start=2, end=9),
        RefusalPart(text="No more."),
        user[0],
    ]
    context = program.get(f"/api/sessions/{session.id}/context?format=anthropic").json()
    [thought, *_] = context["payload"]["messages"][1]["content"]
    assert thought == json.loads(thinking)
    assert "Hm." not in json.dumps(
        program.get(f"/api/sessions/{session.id}/context?format=openai_chat").json()["payload"]
    )


@pytest.mark.slow
def test_an_opaque_part_of_ten_megabytes_is_refused_by_the_limit_of_texts_or_kept_whole(program, session, settings):
    part = {"type": "provider", "provider": "openai", "kind": "reasoning", "data": json.dumps({"x": "y" * 10_000_000})}
    error = refusal(record(program, session, assistant=[part]), 413)
    assert (error["code"], error["details"]["field"]) == ("REQUEST_TOO_LARGE", "assistant.0.data")
    assert load_session(session.id).event_seq == 1
    path, config = f"/api/sessions/{session.id}", {"limits": {"message_characters": 20_000_000}}
    assert program.patch(path, data=json.dumps({"config": config}), content_type="application/json").status_code == 200
    assert record(program, session, assistant=[part, {"type": "text", "text": "Done."}]).status_code == 201
    kept, said = (stored.part for stored in load_messages(session.id)[1].parts)
    assert kept == ProviderPart(provider="openai", kind="reasoning", data=part["data"])
    assert said == TextPart(text="Done.")
    assert [message["content"] for message in build_context(session.id).payload["messages"]] == [
        "What is due?",
        "Done.",
    ]


EXACT = ['{"a": 1, "a": 2}', '{"n": 1e3, "big": 123456789012345678901234567890}', ' {"\\u0000": "\\u0000"} ', '"␛0000"']
INEXACT = [
    *("", "no JSON", "NaN", '{"n": -Infinity}', "1e999", '"\x00"', '"\ud800"', '"\\ud800"', "1" * 5_000),
    *("[" * 3_000 + "]" * 3_000, '{"a":' * 101 + "1" + "}" * 101),
]


def test_what_goes_back_is_kept_word_for_word_or_refused(program, session, subtests):
    def part(data: str) -> list[dict[str, str]]:
        return [{"type": "provider", "provider": "openai", "kind": "reasoning", "data": data}]

    for data in INEXACT:
        with subtests.test(ascii(data)[:20]):
            error = refusal(record(program, session, assistant=part(data)), 422)
            assert (error["code"], error["details"]["field"]) == ("INVALID_REQUEST", "assistant.0.data")
            assert load_session(session.id).event_seq == 1
    for data in EXACT:
        with subtests.test(ascii(data)):
            assert record(program, session, assistant=part(data)).status_code == 201
            assert load_messages(session.id)[-1].parts[0].part.data == data


def test_a_key_records_once(program, session):
    first = record(program, session, idempotency_key="k")
    seq = load_session(session.id).event_seq
    again = record(program, session, idempotency_key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert load_session(session.id).event_seq == seq
    for other in (
        {"assistant": "Something else."},
        {"tokens": {"input": 1}},
        {"assistant": _thought("The tide table.")},
    ):
        error = refusal(record(program, session, idempotency_key="k", **other), 409)
        assert error["code"] == "IDEMPOTENCY_MISMATCH"


def _thought(text: str) -> list[dict[str, str]]:
    return [{"type": "reasoning", "text": text}]


def test_a_key_answers_also_when_the_session_takes_no_more_turns(program, session, alice):
    first = record(program, session, idempotency_key="k")
    lifecycle.archive_session(session.id, owner_id=alice.pk)
    assert record(program, session, idempotency_key="k").json() == first.json()
    assert refusal(record(program, session), 409)["code"] == "SESSION_ARCHIVED"


def test_a_busy_session_is_refused_and_unchanged(program, session):
    with change(session.id) as writing:
        turn_id = turn_store.start_turn(writing, model="demo", lease_owner="elsewhere", lease_seconds=60)
    seq = load_session(session.id).event_seq
    error = refusal(record(program, session), 409)
    assert (error["code"], error["details"]["turn_id"]) == ("SESSION_BUSY", turn_id)
    assert load_session(session.id).event_seq == seq


def test_a_turn_whose_process_died_keeps_nobody_out(program, session):
    with change(session.id) as writing:
        turn_store.start_turn(writing, model="demo", lease_owner="dead", lease_seconds=-1)
    assert record(program, session).status_code == 201
    assert [turn.state for turn in list_turns(session.id)] == ["completed", "interrupted"]


def test_somebody_elses_session_and_file_are_not_found(program, session, bob):
    his = new_session(bob)
    assert refusal(record(program, his), 404)["code"] == "SESSION_NOT_FOUND"
    with change(his) as writing:
        file_id = store_file_reference(writing, content_id="ab" * 32, path="/t.csv")
    for unknown in (file_id, "file_nosuch"):
        for part in ({"type": "file_ref"}, {"type": "image"}, {"type": "document"}):
            error = refusal(record(program, session, user=[part | {"file_id": unknown}]), 404)
            assert error["code"] == "FILE_NOT_FOUND"
        error = refusal(record(program, session, assistant=[{"type": "citation", "file_id": unknown}]), 404)
        assert error["code"] == "FILE_NOT_FOUND"
    elsewhere = say(his, ("user", [TextPart(text="Mine.")]))[0]
    error = refusal(record(program, session, assistant=[{"type": "citation", "message_id": elsewhere}]), 404)
    assert error["code"] == "MESSAGE_NOT_FOUND"
    assert load_messages(session.id) == []


def test_a_compaction_is_asked_for_when_it_is_due(program, session):
    record(program, session)
    assert list_runs(session.id) == []
    for _ in range(4):
        record(program, session, assistant="tide and time " * 400)
    assert [run.trigger for run in list_runs(session.id)] == ["soft"]


def tool(**values: Any) -> list[dict[str, Any]]:
    return [{"type": "tool", "tool_name": "t", "tool_call_id": "c", "output": "o"} | values]


def provider(**values: Any) -> list[dict[str, Any]]:
    return [{"type": "provider", "provider": "openai", "kind": "reasoning", "data": "{}"} | values]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"user": ""}, "user"),
    ({"user": " \n"}, "user"),
    ({"user": []}, "user"),
    ({"user": 5}, "user"),
    ({"user": None}, "user"),
    ({"user": [5]}, "user.0"),
    ({"user": [{"text": "x"}]}, "user.0"),
    ({"user": [{"type": "video"}]}, "user.0"),
    ({"user": _thought("x")}, "user.0.type"),
    ({"user": tool()}, "user.0.type"),
    ({"assistant": [{"type": "text"}]}, "assistant.0.text.text"),
    ({"assistant": [{"type": "step_start"}]}, "assistant.0"),
    ({"assistant": [{"type": "text", "text": "x"}] * 1_001}, "assistant"),
    ({"assistant": tool(tool_name="")}, "assistant.0.tool_name"),
    ({"assistant": tool(tool_name="x" * 201)}, "assistant.0.tool_name"),
    ({"assistant": tool(tool_call_id="\x00" * 50)}, "assistant.0.tool_call_id"),
    ({"assistant": tool(output=None)}, "assistant.0"),
    ({"assistant": tool(error="also")}, "assistant.0"),
    ({"assistant": tool(state="error")}, "assistant.0.state"),
    ({"assistant": tool(state="pending")}, "assistant.0.state"),
    ({"assistant": tool(state="gone")}, "assistant.0.tool.state"),
    ({"user": [{"type": "refusal", "text": "x"}]}, "user.0.type"),
    ({"assistant": [{"type": "image"}]}, "assistant.0.image.file_id"),
    ({"assistant": provider(provider="Open AI")}, "assistant.0.provider"),
    ({"assistant": provider(provider="a:b")}, "assistant.0.provider"),
    ({"assistant": provider(kind="")}, "assistant.0.kind"),
    ({"assistant": provider(model="a b")}, "assistant.0.model"),
    ({"assistant": provider(prompt="A:" * 16)}, "assistant.0.prompt"),
    ({"assistant": provider(kind="x" * 65)}, "assistant.0.kind"),
    ({"assistant": provider(data=5)}, "assistant.0.provider.data"),
    ({"assistant": provider(type="provider_tool", tool_name="", tool_call_id="c")}, "assistant.0.tool_name"),
    ({"assistant": provider(type="provider_tool", tool_name="t", tool_call_id="c", data="{")}, "assistant.0.data"),
    ({"assistant": [{"type": "citation", "start": -1}]}, "assistant.0.citation.start"),
    ({"assistant": [{"type": "citation", "data": "{", "provider": "x"}]}, "assistant.0.data"),
    ({"tokens": {"input": -1}}, "tokens.input"),
    ({"tokens": {"input": 1.0}}, "tokens.input"),
    ({"tokens": {"output": True}}, "tokens.output"),
    ({"tokens": {"output": "5"}}, "tokens.output"),
    ({"tokens": {"output": 2**53}}, "tokens.output"),
    ({"tokens": {"prompt_tokens": 5}}, "tokens.prompt_tokens"),
    ({"tokens": 5}, "tokens"),
    ({"cost": -0.01}, "cost"),
    ({"cost": 1e30}, "cost"),
    ({"cost": "nan"}, "cost"),
    ({"finish_reason": "x" * 65}, "finish_reason"),
    ({"model": "x" * 101}, "model"),
    ({"idempotency_key": ""}, "idempotency_key"),
    ({"idempotency_key": "\x00" * 60}, "idempotency_key"),
]
"""What is sent, and the field that is named."""


def test_what_cannot_be_kept_whole_is_refused_by_the_name_of_its_field(program, session, subtests):
    for body, field in REFUSED:
        with subtests.test(field):
            error = refusal(record(program, session, **body), 422)
            assert error["code"] == "INVALID_REQUEST"
            named = [item["field"] for item in error["details"].get("errors", [])] or [error["details"]["field"]]
            assert field in named
            assert load_session(session.id).event_seq == 1


def test_a_text_that_is_too_long_is_refused_in_words(program, session):
    error = refusal(record(program, session, assistant=tool(output="x" * 20_000_000)), 413)
    assert (error["code"], error["details"]["field"]) == ("REQUEST_TOO_LARGE", "assistant.0.output")


@pytest.mark.parametrize("depth", [100, 900, 3_000])
def test_arguments_nested_deeply_are_kept_or_refused_in_words(program, session, depth):
    deep = '{"a":' * depth + "1" + "}" * depth
    body = f'{{"user": "x", "assistant": [{{"type": "tool", "tool_name": "t", "tool_call_id": "c", "output": "o", "input": {deep}}}]}}'
    answer = program.post(f"/api/sessions/{session.id}/record", data=body, content_type="application/json")
    assert answer.status_code in (201, 422), answer.content[:500]


@pytest.mark.parametrize("text", ["\x00", "\ud800", "\u202e", "␛0000", "😀"])
def test_hostile_text_comes_back_as_it_was(program, session, text):
    assert record(program, session, user=f"a{text}", assistant=tool(output=text, input=text)).status_code == 201
    messages = load_messages(session.id)
    part = messages[1].parts[0].part
    assert messages[0].parts[0].part == TextPart(text=f"a{text}")
    assert (part.output, part.input) == (text, text)
