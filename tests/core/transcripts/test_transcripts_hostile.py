"""No record, however strange, makes a parser raise anything but a refusal of the whole file."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnesis_core.errors import InvalidRequest
from mnesis_core.text import decode_text, encode_text
from mnesis_core.transcripts import FORMATS, detect_format
from mnesis_core.transcripts.values import FORMAT_NAMES, NamedSource, ParseResult
from tests.support.material.transcript_lines import (
    answered,
    assert_balanced,
    data,
    everything,
    messages,
    only,
    parsed,
    said,
    spoken,
    text,
    tool_result,
    tool_use,
    tools,
)

FEW = settings(suppress_health_check=[HealthCheck.too_slow])
DEEP = "[" * 3000 + "]" * 3000

WORDS = st.sampled_from(
    [
        "type", "user", "assistant", "system", "progress", "summary", "message", "content", "role", "id", "uuid", "text",
        "parentUuid", "sessionId", "isSidechain", "agentId", "tool_use", "tool_result", "tool_use_id", "thinking", "input",
        "name", "timestamp", "data", "agent_progress", "toolUseResult", "usage", "input_tokens", "isCompactSummary",
        "isMeta", "mapping", "current_node", "parent", "children", "author", "content_type", "parts", "thoughts",
        "recipient", "metadata", "conversation", "session_1", "session_1_date_time", "speaker", "speaker_a", "dia_id",
        "qa", "messages", "tool_calls", "function_call", "function", "arguments", "tool_call_id", "tool", "developer",
    ]
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | WORDS
    | st.text(st.characters(exclude_categories=()), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=6),
    max_leaves=25,
)
GOOD = [
    said("u1", "go", toolUseResult={"agentId": "abc"}),
    answered("a1", "m1", text("yes"), tool_use("t1", "Task", prompt="p"), usage={"input_tokens": 1}),
    said("u2", [tool_result("t1", [text("x"), {"type": "image"}])], toolUseResult={"agentId": "abc", "n": 1}),
    {"type": "progress", "uuid": "p", "data": {"type": "agent_progress", "agentId": "q", "message": said("i", "p")}},
    {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"preTokens": 5}},
    said("s1", "p", isSidechain=True),
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "out"},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "id": 5},
    {"mapping": {"n": {"message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["x"]}}},
                 "m": {"parent": "n", "message": {"author": {"role": "assistant"}, "recipient": "python",
                                                  "content": {"content_type": "code", "text": "1"}}}}},
    {"sample_id": "c", "qa": [], "conversation": {
        "speaker_a": "A", "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "x", "query": "q"}]}},
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A good record with some of its values, at any depth, replaced, removed or named otherwise."""
    record = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    for _ in range(draw(st.integers(0, 3))):
        place = record
        while isinstance(place, dict | list) and place:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
                place[key] = draw(VALUES)
                break
            place = inner
    return record


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Lines of a file: good, mutated and random records, some of them damaged as text."""
    written = [json.dumps(record) for record in draw(st.lists(mutated() | VALUES, min_size=1, max_size=8))]
    for _ in range(draw(st.integers(0, 2))):
        index = draw(st.integers(0, len(written) - 1))
        cut = draw(st.integers(0, len(written[index])))
        written[index] = written[index][:cut] + draw(st.text(max_size=3)) + written[index][cut + 1 :]
    return written


def read(name: str, source: Any, **options: Any) -> ParseResult | None:
    try:
        result = FORMATS[name](source, **options)
    except InvalidRequest:
        return None
    assert_balanced(result)
    assert_storable(result)
    return result


def assert_storable(result: ParseResult) -> None:
    """Ids are unique and fit, links lead somewhere, the text codec takes every part."""
    roots = [transcript.external_id for transcript in result.transcripts]
    assert len(set(roots)) == len(roots)
    for root in result.transcripts:
        known = {root.external_id}
        for child in root.children:
            assert child.parent is not None
            assert child.parent.transcript_id in known
            assert child.external_id not in known
            known.add(child.external_id)
        for transcript in (root, *root.children):
            assert len(transcript.external_id) <= 200
            assert all(turn.messages for turn in transcript.turns)
            assert all(turn.messages[0].role != "assistant" for turn in transcript.turns[1:])
    everything_said = everything(result)
    assert decode_text(encode_text(everything_said)) == everything_said


@FEW
@given(written=lines(), name=st.sampled_from(FORMAT_NAMES), as_list=st.booleans())
def test_no_mutated_record_makes_a_parser_raise(written: list[str], name: str, as_list: bool) -> None:
    read(name, "[" + ",\n".join(written) + "]" if as_list else written)


@FEW
@given(written=lines(), beside=lines())
def test_no_mutated_companion_makes_claude_code_raise(written: list[str], beside: list[str]) -> None:
    main = [json.dumps(GOOD[1]), *written]
    result = read("claude_code", main, companions=[NamedSource(name="agent-x.jsonl", source=beside)])
    assert result is not None


@FEW
@given(content=st.binary(max_size=200), name=st.sampled_from(FORMAT_NAMES))
def test_no_bytes_make_a_parser_or_the_detection_raise(content: bytes, name: str) -> None:
    assert read(name, content) is None or content
    with suppress(InvalidRequest):
        assert detect_format("x", content) in FORMAT_NAMES


@FEW
@given(written=lines())
def test_no_line_of_a_claude_code_file_is_lost(written: list[str]) -> None:
    unreadable = [line for line in written if line.strip() and not line.lstrip().startswith(("{", " "))]
    result = read("claude_code", [json.dumps(GOOD[0]), *written])
    assert result is not None
    kept = "\n".join(
        part
        for root in result.transcripts
        for transcript in (root, *root.children)
        for message in transcript.messages
        for part in data(message, "claude_code:unreadable")
    )
    assert all(line.split("\n")[0].rstrip("\r") in kept for line in unreadable)


def test_a_record_three_thousand_levels_deep_is_kept_as_text() -> None:
    line = json.dumps(said("u2", "x"))[:-1] + f', "more": {DEEP}}}'
    result = parsed("claude_code", said("u1", "go"), line)
    assert data(messages(only(result))[0], "claude_code:unreadable") == [line]


@pytest.mark.parametrize("depth", [150, 250, 900])
def test_depth_is_limited_where_it_can_still_be_read(depth: int) -> None:
    record = json.dumps(answered("a1", "m1", tool_use("t1", more="HERE"))).replace('"HERE"', "[" * depth + "]" * depth)
    result = parsed("claude_code", said("u1", "go"), record)
    assert ("unreadable" in result.report.read) == (depth > 200)


def test_nul_and_lone_surrogates_pass_through() -> None:
    transcript = only(parsed("claude_code", said("u1", "a\x00b\ud800c\u202e")))
    assert spoken(transcript) == [("user", ["a\x00b\ud800c\u202e"])]
    assert transcript.title == "ab\ufffdc\u202e"


def test_a_line_of_twenty_megabytes_is_read() -> None:
    output = "x" * 20_000_000
    started = time.process_time()
    transcript = only(
        parsed("claude_code", answered("a1", "m1", tool_use("t1")), said("u1", [tool_result("t1", output)]))
    )
    assert tools(transcript)[0].output == output
    assert time.process_time() - started < 10


def test_a_number_of_five_thousand_digits_makes_its_record_unreadable() -> None:
    line = '{"type": "progress", "uuid": "p", "n": ' + "9" * 5000 + "}"
    result = parsed("claude_code", said("u1", "go"), line)
    assert data(messages(only(result))[0], "claude_code:unreadable") == [line]


@pytest.mark.slow
def test_thousands_of_agents_and_equal_ids_take_no_quadratic_time() -> None:
    agents = [said("s", "p", isSidechain=True, agentId=f"a{number}") for number in range(3000)]
    conversations = [json.dumps({"id": "same", "messages": [{"role": "user", "content": "x"}]})] * 3000
    started = time.process_time()
    assert len(only(parsed("claude_code", said("u1", "go"), *agents)).children) == 3000
    assert len(FORMATS["openai_chat"](conversations).transcripts) == 3000
    assert time.process_time() - started < 10


def test_shuffled_records_are_all_kept() -> None:
    records = [
        *(answered(f"a{number}", f"m{number}", tool_use(f"t{number}")) for number in range(20)),
        *(said(f"u{number}", [tool_result(f"t{number}", f"<out {number}>")]) for number in range(20)),
    ]
    for seed in range(10):
        random.Random(seed).shuffle(records)
        found = everything(parsed("claude_code", *records))
        assert all(f"<out {number}>" in found and f"u{number}" in found for number in range(20))
