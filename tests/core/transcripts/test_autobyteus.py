"""A session in the layout of seed 004: field for field as its examples have them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from mnesis_core.facts import FactRecord
from mnesis_core.messages import (
    DataPart,
    Part,
    ReasoningPart,
    Role,
    StoredMessage,
    StoredPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.records import SummaryRecord
from mnesis_core.transcripts.autobyteus import archived_traces, episodic_items, raw_traces, semantic_items

START = datetime.fromtimestamp(1738100000.12, UTC)


def message(seq: int, turn: int, role: Role, *parts: Part) -> StoredMessage:
    stored = tuple(
        StoredPart(id=f"part_{seq}{i}", index=i, part=part, token_estimate=1) for i, part in enumerate(parts)
    )
    return StoredMessage(
        id=f"msg_{seq}",
        seq=seq,
        turn_id=f"turn_{turn}",
        role=role,
        parts=stored,
        created_at=START + timedelta(seconds=seq),
    )


CALL = ToolPart(
    tool_name="list_directory",
    tool_call_id="c1",
    input='{"path": "src"}',
    output="app.py",
    state=ToolState.COMPLETED,
    completed_at=START + timedelta(seconds=9),
)
TALK = [
    message(1, 1, "user", TextPart(text="Please refactor the parser.")),
    message(2, 1, "assistant", ReasoningPart(text="hm"), CALL),
    message(3, 1, "assistant", TextPart(text="Done."), DataPart(label="x", text="y")),
    message(4, 2, "user", TextPart(text="Thanks.")),
    message(5, 1, "assistant", TextPart(text="Late.")),
]


def test_what_is_in_context_is_a_raw_trace_and_the_rest_is_archived():
    active, archived = list(raw_traces(TALK, {"msg_4", "msg_5"})), list(archived_traces(TALK, {"msg_4", "msg_5"}))
    assert [(trace["turn_id"], trace["seq"], trace["trace_type"]) for trace in archived] == [
        ("turn_1", 1, "user"),
        ("turn_1", 2, "tool_call"),
        ("turn_1", 3, "tool_result"),
        ("turn_1", 4, "assistant"),
    ]
    assert [(trace["turn_id"], trace["seq"]) for trace in active] == [("turn_2", 1), ("turn_1", 5)]


def test_fields_and_their_order_are_the_seeds():
    said, call, result, answer = archived_traces(TALK[:3], set())
    assert said == {
        "id": "msg_1",
        "ts": 1738100001.12,
        "turn_id": "turn_1",
        "seq": 1,
        "trace_type": "user",
        "content": "Please refactor the parser.",
        "source_event": "LLMUserMessageReadyEvent",
        "media": {"images": [], "audio": [], "video": []},
        "tags": ["processed"],
    }
    assert list(said)[:7] == ["id", "ts", "turn_id", "seq", "trace_type", "content", "source_event"]
    assert call["tool_args"] == {"path": "src"}
    assert (call["tool_name"], call["tool_call_id"], call["content"]) == ("list_directory", "c1", "")
    assert (call["source_event"], result["source_event"]) == ("PendingToolInvocationEvent", "ToolResultEvent")
    assert (result["tool_result"], "tool_error" in result, result["ts"]) == ("app.py", False, 1738100009.12)
    assert (answer["content"], answer["source_event"], answer["tags"]) == (
        "Done.",
        "LLMCompleteResponseReceivedEvent",
        ["final"],
    )


def test_a_call_that_failed_or_waits_or_makes_no_sense():
    failed = ToolPart(tool_name="t", tool_call_id="c", input="[1]", error="no", state=ToolState.ERROR)
    waiting = ToolPart(tool_name="t", tool_call_id="d", input="not JSON")
    call, result, pending = raw_traces([message(1, 1, "assistant", failed, waiting)], {"msg_1"})
    assert (call["tool_args"], result["tool_error"], "tool_result" in result) == ("[1]", "no", False)
    assert (pending["tool_args"], pending["trace_type"]) == ("not JSON", "tool_call")


def test_leaf_summaries_are_episodes_with_their_turns():
    leaf = summary("sum_1", "leaf", [("message", "msg_1"), ("message", "msg_2"), ("message", "msg_4")])
    top = summary("sum_2", "condensed", [("summary", "sum_1")])
    worse = summary("sum_3", "leaf", [("message", "msg_1")], superseded_seq=9)
    turn_of = {each.id: str(each.turn_id) for each in TALK}
    assert list(episodic_items([leaf, top, worse], turn_of)) == [
        {
            "id": "sum_1",
            "ts": 1738100000.12,
            "turn_ids": ["turn_1", "turn_2"],
            "summary": "They spoke.",
            "tags": [],
            "salience": 0.0,
        }
    ]


def test_live_facts_are_semantic_items():
    live = fact("fact_1", salience=80)
    facts = [live, fact("fact_2", superseded_seq=9), fact("fact_3", withdrawn_seq=9), fact("fact_4", subject="")]
    first, last = semantic_items(facts)
    assert first == {
        "id": "fact_1",
        "ts": 1738100000.12,
        "fact": "Prefers tea.",
        "tags": ["preference", "drinks"],
        "confidence": 1.0,
        "salience": 0.8,
    }
    assert last["tags"] == ["preference"]


def fact(id: str, **values: Any) -> FactRecord:
    usual: dict[str, Any] = {"kind": "preference", "subject": "drinks", "salience": 50, "scope": "session", "model": ""}
    nothing = dict.fromkeys(("valid_from", "valid_to", "superseded_by_id", "superseded_seq", "withdrawn_seq"))
    said = {"session_id": "sess_1", "statement": "Prefers tea.", "method": "person", "said_seq": 1, "created_seq": 1}
    return FactRecord(id=id, **usual | nothing | said | {"said_at": START, "created_at": START} | values)


def summary(id: str, kind: str, sources: list[tuple[str, str]], superseded_seq: int | None = None) -> SummaryRecord:
    numbers = dict.fromkeys(
        ("depth", "level", "token_count", "source_tokens", "first_seq", "last_seq", "message_count", "tokens_input"), 1
    ) | {"branch": 0}
    return SummaryRecord(
        id=id,
        session_id="sess_1",
        run_id="run_1",
        kind=kind,
        text="They spoke.",
        model="demo",
        prompt_version="1",
        tokens_output=1,
        cost_micros=1,
        duration_ms=1,
        created_at=START,
        superseded_seq=superseded_seq,
        revises=None,
        restores=None,
        freshness="fresh",
        source_ids=sources,
        **numbers,
    )
