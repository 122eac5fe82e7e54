"""The parsers over real files: every record accounted for, every id found again, in little time."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mnesis_core.messages import CompactionMarkerPart, TextPart, ToolState
from mnesis_core.transcripts import FORMATS, detect_format
from mnesis_core.transcripts.values import NamedSource, ParseResult, Transcript
from tests.support.material.transcript_lines import assert_balanced, data, messages, only, tools

CLAUDE_CODE_FILES = [
    "short.jsonl",
    "subagent.jsonl",
    "tool_heavy.jsonl",
    "long.jsonl.gz",
    "long_subagents/agent-a881341.jsonl.gz",
    "long_subagents/agent-acompact-fffbd0.jsonl.gz",
]


def lines_of(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        return list(file)


def records_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(path)]


def read(path: Path, **options: Any) -> ParseResult:
    return FORMATS["claude_code"](lines_of(path), name=path.name, **options)


def read_long(root: Path) -> ParseResult:
    folder = root / "claude_code"
    beside = [NamedSource(name=path.name, source=lines_of(path)) for path in sorted(folder.glob("long_subagents/*.gz"))]
    return read(folder / "long.jsonl.gz", companions=beside)


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, str):
        yield value


def all_texts(result: ParseResult) -> set[str]:
    """Every text of every part, and every text inside those that are JSON."""
    found: list[str] = []
    for root in result.transcripts:
        for transcript in (root, *root.children):
            for message in transcript.messages:
                found.append(message.external_id)
                for part in message.parts:
                    values = [
                        getattr(part, name, "") for name in ("text", "input", "output", "error", "tool_name", "data")
                    ]
                    found.extend(text for text in values if text)
                    found.extend(text for value in values if value for text in texts_in(as_json(value)))
    return {text.strip() for text in found}


def missing(texts: Iterable[str], found: set[str]) -> list[str]:
    """Return the texts that stand nowhere, neither alone nor inside another one."""
    alone = {text.strip() for text in texts} - found
    together = "\n".join(found)
    return [text for text in alone if text not in together]


def as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.parametrize("name", CLAUDE_CODE_FILES)
def test_every_record_is_stored_and_every_uuid_and_text_is_found_again(real_data: Path, name: str) -> None:
    path = real_data / "claude_code" / name
    records = records_of(path)
    result = read(path)
    assert_balanced(result)
    assert result.report.read == result.report.stored == dict(Counter(record["type"] for record in records))
    found = all_texts(result)
    assert {record["uuid"] for record in records if "uuid" in record} <= found
    # "Error: " is what toolUseResult writes before a failed result that it repeats.
    said = {text.strip().removeprefix("Error: ") for record in records for text in texts_in(record)}
    assert missing(said, found) == []


@pytest.mark.parametrize("name", CLAUDE_CODE_FILES)
def test_the_format_of_every_real_file_is_detected(real_data: Path, name: str) -> None:
    path = real_data / "claude_code" / name
    with path.open("rb") as file:
        assert detect_format("upload", file.read(65_536)) == "claude_code"


def test_the_long_session_has_its_186_tool_calls_each_with_its_result(real_data: Path) -> None:
    transcript = only(read_long(real_data))
    calls = tools(transcript)
    assert len(calls) == 186
    assert Counter(call.tool_name for call in calls) == {
        "Bash": 79, "Read": 42, "Edit": 35, "Write": 13, "Glob": 8, "Grep": 5, "TaskOutput": 3, "Task": 1,
    }  # fmt: skip
    assert Counter(call.state for call in calls) == {ToolState.COMPLETED: 179, ToolState.ERROR: 7}
    assert all(call.started_at and call.completed_at and call.started_at <= call.completed_at for call in calls)
    results = {
        block["tool_use_id"]: block["content"]
        for record in records_of(real_data / "claude_code" / "long.jsonl.gz")
        if record["type"] == "user" and isinstance(record["message"]["content"], list)
        for block in record["message"]["content"]
        if block["type"] == "tool_result"
    }
    for call in calls:
        expected = results[call.tool_call_id]
        said = expected if isinstance(expected, str) else "\n".join(block["text"] for block in expected)
        assert (call.error if call.state is ToolState.ERROR else call.output) == said


def test_the_long_sessions_shape(real_data: Path) -> None:
    transcript = only(read_long(real_data))
    assert transcript.external_id == "258c7280-ae70-4798-800f-63464d01a85d"
    assert (transcript.title, transcript.model) == ("Implement spotter-gqc", "claude-opus-4-6")
    assert len(transcript.turns) == 6
    assert Counter(message.role for message in transcript.messages) == {"user": 6, "assistant": 152}
    assert sum(len(data(message, "claude_code:progress")) for message in transcript.messages) == 1333
    (summary,) = [message for message in transcript.messages if message.is_summary]
    assert summary.parts[0] == CompactionMarkerPart(
        summary_id=summary.external_id, compacted_message_count=105, compacted_token_count=167094
    )
    assert all(message.usage for message in transcript.messages if message.role == "assistant")
    assert all(message.created_at for message in transcript.messages)


def test_the_long_sessions_agents_hang_where_they_were_launched(real_data: Path) -> None:
    transcript = only(read_long(real_data))
    agent, compaction = transcript.children
    (task,) = [call for call in tools(transcript) if call.tool_name == "Task"]
    assert agent.parent is not None
    assert compaction.parent is not None
    assert (agent.title, agent.parent.tool_call_id) == ("Research Claude hook output", task.tool_call_id)
    assert (agent.parent.kind, compaction.parent.kind) == ("sub_agent", "compaction")
    order = [message.external_id for message in transcript.messages]
    summary = next(index for index, message in enumerate(transcript.messages) if message.is_summary)
    assert order.index(compaction.parent.message_id) == summary - 1
    assert len(tools(agent)) == 2


def test_a_sub_agent_that_only_progress_records_tell_of_becomes_a_child(real_data: Path) -> None:
    (child,) = only(read(real_data / "claude_code" / "subagent.jsonl")).children
    assert child.parent is not None
    assert child.parent.tool_call_id == "toolu_01Cz2Pnv7qNcnK1ZiocxWhQX"
    assert (child.title, child.model) == ("Draft beads for linting setup", "claude-haiku-4-5-20251001")
    assert len(tools(child)) == 9
    assert not [call for call in tools(child) if call.error == "no result in the transcript"]


def test_the_long_session_is_read_within_two_seconds(real_data: Path) -> None:
    started = time.process_time()
    read_long(real_data)
    assert time.process_time() - started < 2


def test_both_locomo_samples_are_read_whole(real_data: Path) -> None:
    text = (real_data / "locomo" / "locomo2.json").read_text(encoding="utf-8")
    assert detect_format("x", text.encode()[:65_536]) == "locomo"
    result = FORMATS["locomo"](text)
    assert_balanced(result)
    assert result.report.read == result.report.stored == {
        "sample": 2, "session": 54, "utterance": 788, "question": 304,
        "event_summary": 2, "observation": 2, "session_summary": 2,
    }  # fmt: skip
    assert [(each.external_id, len(messages(each))) for each in result.transcripts] == [
        ("conv-26", 419),
        ("conv-30", 369),
    ]
    for sample, transcript in zip(json.loads(text), result.transcripts, strict=True):
        assert_sample_is_whole(sample, transcript)


def assert_sample_is_whole(sample: dict[str, Any], transcript: Transcript) -> None:
    by_id = {message.external_id: message for message in transcript.messages}
    for session, said in sample["conversation"].items():
        for utterance in said if isinstance(said, list) else ():
            message = by_id[utterance["dia_id"]]
            assert message.parts[0] == TextPart(text=utterance["text"])
            assert message.created_at is not None
            assert transcript.labels[f"speaker_{message.role}"] == utterance["speaker"], session
    evidence = {
        dia_id
        for question in sample["qa"]
        for entry in question["evidence"]
        for dia_id in re.findall(r"D\d+:\d+", entry)
    }
    assert len(evidence - by_id.keys()) <= 1
    assert json.loads(data(messages(transcript)[-1], "locomo:qa")[0]) == sample["qa"]
    assert not any("locomo:qa" in repr(message) for message in messages(transcript)[:-1])


def test_no_text_of_the_locomo_file_is_lost(real_data: Path) -> None:
    text = (real_data / "locomo" / "locomo2.json").read_text(encoding="utf-8")
    result = FORMATS["locomo"](text)
    labels = {value for transcript in result.transcripts for value in transcript.labels.values()}
    ids = {transcript.external_id for transcript in result.transcripts}
    assert missing(texts_in(json.loads(text)), all_texts(result) | labels | ids) == []
