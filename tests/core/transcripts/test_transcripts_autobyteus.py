"""Autobyteus' memory read: traces become turns, calls get their results, and what was not said is no fact."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.facts import FactKind
from mnesis_core.messages import ToolPart, ToolState
from mnesis_core.transcripts import FORMATS, detect_format
from mnesis_core.transcripts.autobyteus import MOST_FACTS, is_of_layout
from mnesis_core.transcripts.values import NamedSource, Transcript
from tests.support.material.transcript_lines import messages, notes, only, parsed, spoken, texts

# The examples of the seed, section 10.1A.
SEED = [
    '{"id":"rt_001","ts":1738100000.12,"turn_id":"turn_0001","seq":1,"trace_type":"user","content":"Please refactor the parser.","source_event":"LLMUserMessageReadyEvent","media":{"images":[],"audio":[],"video":[]},"tags":["processed"]}',
    '{"id":"rt_002","ts":1738100002.45,"turn_id":"turn_0001","seq":2,"trace_type":"tool_call","content":"","source_event":"PendingToolInvocationEvent","tool_name":"list_directory","tool_args":{"path":"src"}}',
    '{"id":"rt_003","ts":1738100003.11,"turn_id":"turn_0001","seq":3,"trace_type":"tool_result","content":"","source_event":"ToolResultEvent","tool_name":"list_directory","tool_result":["app.py","parser.py"]}',
    '{"id":"rt_004","ts":1738100005.90,"turn_id":"turn_0001","seq":4,"trace_type":"assistant","content":"I will refactor the parser next.","source_event":"LLMCompleteResponseReceivedEvent","tags":["final"]}',
]


def trace(number: int, kind: str, content: str = "", *, turn: int = 1, **fields: Any) -> dict[str, Any]:
    """A trace as the layout has it, numbered through and a second apart."""
    own = {"id": f"rt_{number}", "ts": 1738100000.0 + number, "turn_id": f"turn_{turn:04}", "seq": number}
    return own | {"trace_type": kind, "content": content, "source_event": "E"} | fields


def call(number: int, id: str, *, turn: int = 1, **fields: Any) -> dict[str, Any]:
    return trace(number, "tool_call", turn=turn, tool_name="t", tool_call_id=id, tool_args={"n": number}, **fields)


def result(number: int, id: str, said: Any = "done", *, turn: int = 1, **fields: Any) -> dict[str, Any]:
    return trace(number, "tool_result", turn=turn, tool_name="t", tool_call_id=id, tool_result=said, **fields)


def semantic(fact: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": "sem_1",
        "ts": 1738100501.0,
        "fact": fact,
        "tags": ["preference", "Drinks"],
        "confidence": 0.8,
    } | fields


def tools(transcript: Transcript) -> list[list[tuple[str, str | None, str | None]]]:
    """Id, output and error of the calls of each message that has any."""
    parts = [[part for part in message.parts if isinstance(part, ToolPart)] for message in messages(transcript)]
    return [[(part.tool_call_id, part.output, part.error) for part in calls] for calls in parts if calls]


def test_the_seeds_example_is_a_turn_with_a_call_and_its_result() -> None:
    transcript = only(parsed("autobyteus", *SEED))
    assert spoken(transcript) == [
        ("user", ["Please refactor the parser."]),
        ("assistant", []),
        ("assistant", ["I will refactor the parser next."]),
    ]
    [part] = [part for part in messages(transcript)[1].parts if isinstance(part, ToolPart)]
    assert (part.tool_name, part.input, part.state) == ("list_directory", '{"path":"src"}', ToolState.COMPLETED)
    assert part.output == '["app.py","parser.py"]'
    assert [turn.external_id for turn in transcript.turns] == ["rt_001"]
    assert transcript.title == "Please refactor the parser."


def test_traces_are_known_by_their_fields_and_empty_files_by_their_names() -> None:
    assert detect_format("x.jsonl", SEED[0].encode()) == "autobyteus"
    assert detect_format("x.jsonl", b'{"cut": 1, "trace_type": "user", "content": "' + b"x" * 70_000) == "autobyteus"
    assert [is_of_layout(name) for name in ("a/episodic.jsonl", "raw_traces.jsonl.gz", "sessions.jsonl")] == [
        True,
        True,
        False,
    ]


def test_calls_of_one_step_are_one_message_and_a_call_after_a_result_is_another() -> None:
    said = [trace(1, "user", "Go."), trace(2, "assistant", "I look."), call(3, "a"), call(4, "b")]
    answered = [
        result(5, "b", "B"),
        trace(6, "tool_result", tool_call_id="a", tool_error="no"),
        call(7, "c"),
        result(8, "c", None),
    ]
    transcript = only(parsed("autobyteus", *said, *answered))
    assert tools(transcript) == [[("a", None, "no"), ("b", "B", None)], [("c", "", None)]]
    assert [texts(message) for message in messages(transcript)] == [["Go."], ["I look."], []]


def test_a_result_that_came_late_belongs_to_its_call_all_the_same() -> None:
    late = [trace(1, "user", "Go."), call(2, "a"), trace(4, "user", "And?", turn=2), result(9, "a", "late")]
    transcript = only(parsed("autobyteus", *late))
    assert tools(transcript) == [[("a", "late", None)]]
    assert [turn.external_id for turn in transcript.turns] == ["rt_1", "rt_4"]


def test_what_has_no_call_or_no_result_is_told_of() -> None:
    found = parsed("autobyteus", trace(1, "user", "Go."), result(2, "nobody"), call(3, "a"))
    assert tools(only(found)) == [[("a", None, "no result in the transcript")]]
    assert notes(found) == {
        "results of no call are kept as data": 1,
        "tool calls have no result in the transcript and are stored as errors": 1,
    }


def test_turns_stand_in_the_order_of_their_times_across_both_files() -> None:
    active = json.dumps(trace(5, "user", "Second.", turn=2))
    archive = NamedSource(
        name="raw_traces_archive.jsonl", source=json.dumps(trace(1, "user", "First.")) + f"\n{active}\n"
    )
    found = FORMATS["autobyteus"](active, name="raw_traces.jsonl", companions=[archive])
    assert [text for _, [text] in spoken(only(found))] == ["First.", "Second."]
    assert [(skip.kind, skip.reason, skip.count) for skip in found.report.skipped] == [
        ("trace", "the very same line came before", 1)
    ]
    before = parsed("autobyteus", trace(1, "user", "First."), active)
    assert only(found).external_id == only(before).external_id
    mixed = [trace(5, "user", "Second.", turn=2), trace(1, "user", "First.", ts=None)]
    assert [text for _, [text] in spoken(only(parsed("autobyteus", *mixed)))] == ["Second.", "First."]
    within = [trace(2, "assistant", "B"), trace(1, "user", "A")]
    assert [text for _, [text] in spoken(only(parsed("autobyteus", *within)))] == ["A", "B"]


def test_what_was_said_word_for_word_is_a_fact_and_the_rest_is_told_with_its_reason() -> None:
    said = [
        trace(1, "user", "I prefer tea to coffee."),
        trace(2, "assistant", "Noted: tea."),
        call(3, "a"),
        result(4, "a", "Oslo"),
    ]
    items = [
        semantic("prefer tea", salience=0.9),
        semantic("prefer te"),
        semantic("Oslo"),
        semantic(" "),
        semantic("tea " * 99),
    ]
    found = parsed("autobyteus", *said, *items, semantic("coffee", tags=[7, "x"], salience=True))
    facts = only(found).facts
    assert [(fact.statement, fact.kind, fact.subject, fact.salience, fact.message_id) for fact in facts] == [
        ("prefer tea", FactKind.PREFERENCE, "drinks", 90, "rt_1"),
        ("coffee", FactKind.ENTITY, "x", None, "rt_1"),
    ]
    assert {skip.reason: skip.count for skip in found.report.skipped} == {
        "these words were not said, and a fact is what was said word for word": 2,
        "a fact has 1 to 300 characters": 2,
    }


def test_so_many_facts_are_looked_for_and_no_more() -> None:
    items = [semantic("tea", id=f"sem_{number}") for number in range(MOST_FACTS + 2)]
    found = parsed("autobyteus", trace(1, "user", "tea"), *items)
    assert (len(only(found).facts), sum(skip.count for skip in found.report.skipped)) == (MOST_FACTS, 2)


def test_episodes_are_data_behind_everything() -> None:
    episode = {
        "id": "ep_1",
        "ts": 1738100500.0,
        "turn_ids": ["turn_0001"],
        "summary": "They spoke.",
        "tags": [],
        "salience": 0.7,
    }
    transcript = only(parsed("autobyteus", episode, trace(1, "user", "Go."), trace(2, "assistant", "Went.")))
    last = messages(transcript)[-1]
    assert (last.external_id, last.role, [json.loads(part.text) for part in last.parts]) == (  # type: ignore[union-attr]
        "episode:ep_1",
        "system",
        [episode],
    )
    assert [turn.external_id for turn in transcript.turns] == ["rt_1", "episode:ep_1"]


@pytest.mark.parametrize(
    "line",
    [
        "{ broken",
        "[" * 3_000,
        '{"trace_type": "dance"}',
        '{"trace_type": ["user"]}',
        '{"fact": 7}',
        '{"summary": "x", "turn_ids": 7}',
        "\x00\ud800",
        "7",
        "9" * 5_000,
    ],
)
def test_a_line_that_makes_no_sense_is_kept_as_text(line: str) -> None:
    found = parsed("autobyteus", trace(1, "user", "Go."), line)
    assert spoken(only(found)) == [("user", ["Go."])]
    assert found.report.read["unreadable"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ["x"], "turn_id": {}, "seq": "1", "ts": "never"},
        {"seq": 10**400, "ts": 1e308},
        {"ts": -1, "tags": 7, "media": "x", "content": {"a": [1]}},
        {"content": None, "tool_args": [1], "tool_name": None, "tool_call_id": 7.5},
        {"content": "\ud800\x00‮", "id": "\x00" * 999, "turn_id": "‮"},
        {"tool_args": None, "tool_result": {"deep": [[[]]]}, "tool_error": 0},
    ],
)
def test_fields_of_any_type_are_borne(fields: dict[str, Any]) -> None:
    kinds = ("user", "tool_call", "tool_result", "assistant")
    traces = [trace(number, kind, turn=number % 2) | fields for number, kind in enumerate(kinds)]
    transcript = only(parsed("autobyteus", *traces, trace(9, "user", "Go.", turn=9)))
    assert ("user", ["Go."]) in spoken(transcript)
    ids = [message.external_id for message in messages(transcript)]
    assert len(set(ids)) == len(ids)


def test_the_same_files_are_the_same_session_and_another_agents_are_not() -> None:
    first = only(parsed("autobyteus", *SEED)).external_id
    assert only(parsed("autobyteus", *SEED, trace(9, "user", "More.", turn=2))).external_id == first
    assert only(parsed("autobyteus", SEED[0].replace("1738100000.12", "1738100000.13"))).external_id != first


def test_a_file_without_traces_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="trace_type"):
        parsed("autobyteus", semantic("tea"))
