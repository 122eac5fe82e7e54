"""Finding a file's format, and what all formats have in common."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mnesis_core.transcripts
from mnesis_core.errors import InvalidRequest
from mnesis_core.transcripts import FORMATS, detect_format
from mnesis_core.transcripts.building import Tally, make_ids_unique
from mnesis_core.transcripts.claude_code import Conversation, is_companion
from mnesis_core.transcripts.reading import ByteCount, identifier, one_line, read_elements, read_lines, time_of
from mnesis_core.transcripts.values import FORMAT_NAMES, NamedSource
from tests.support.material.transcript_lines import answered, everything, only, parsed, said, spoken, text

CLAUDE = json.dumps(said("u1", "hello"))
CHAT = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
LOCOMO = {"conversation": {"speaker_a": "A", "session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "hello"}]}}
EXPORT = {"mapping": {"n": {"id": "n", "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hello"]}}}}}  # fmt: skip
TRACE = json.dumps({"id": "rt_1", "ts": 1.5, "turn_id": "t", "seq": 1, "trace_type": "user", "content": "hello"})
SAMPLES = {
    "autobyteus": TRACE,
    "claude_code": CLAUDE,
    "openai_chat": CHAT,
    "locomo": json.dumps([LOCOMO]),
    "chatgpt": json.dumps([EXPORT]),
}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CLAUDE, "claude_code"),
        ('{"type":"summary","summary":"x","leafUuid":"y"}\n', "claude_code"),
        ('{"type":"file-history-snapshot","messageId":"x"}\n', "claude_code"),
        ("{ broken\n" + CLAUDE, "claude_code"),
        ('{"parentUuid":null,"isSidechain":false,"message":{"content":"' + "x" * 70_000, "claude_code"),
        (CHAT, "openai_chat"),
        (json.dumps([{"role": "user", "content": "hello"}], indent=1), "openai_chat"),
        ('{"role":"user","content":"hello"}', "openai_chat"),
        (json.dumps({"messages": [{"role": "user", "content": '{"parentUuid": 1, "mapping": {}}'}]}), "openai_chat"),
        (json.dumps([EXPORT]), "chatgpt"),
        (json.dumps([EXPORT], indent=2), "chatgpt"),
        ('[{"title": "x", "mapping": {"a": {"message": "' + "x" * 70_000, "chatgpt"),
        (json.dumps([LOCOMO]), "locomo"),
        ('[\n{"qa": [\n{"question": "' + "x" * 70_000, "locomo"),
        ("\ufeff" + CLAUDE, "claude_code"),
    ],
)
def test_the_first_bytes_tell_the_format(content: str, expected: str) -> None:
    first_bytes = content.encode()[:65_536]
    assert detect_format("upload", first_bytes) == expected
    assert detect_format("upload.gz", gzip.compress(content.encode())[:65_536]) == expected


def test_the_name_decides_only_where_the_content_does_not() -> None:
    assert detect_format("a/conversations.json", b'[{"title": "cut here') == "chatgpt"
    assert detect_format("a/conversations.json", CHAT.encode()) == "openai_chat"


@pytest.mark.parametrize("content", [b"", b" \n", b"\x1f\x8bnonsense", b"hello", b'{"a": 1}', b"\xff\xfe\x00", b"[[["])
def test_a_file_of_no_known_format_is_refused_with_the_formats_there_are(content: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        detect_format("x\x00.bin", content)
    assert caught.value.details["formats"] == list(FORMAT_NAMES)


def test_every_format_has_a_parser() -> None:
    assert tuple(sorted(FORMATS)) == FORMAT_NAMES


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_text_and_bytes_and_lines_are_read_alike(name: str) -> None:
    content = "\ufeff" + SAMPLES[name]
    sources: list[Any] = [content, content.encode(), content.splitlines(keepends=True), [content.encode()]]
    results = [FORMATS[name](source) for source in sources]
    assert all(result == results[0] for result in results)
    assert spoken(only(results[0])) == [("user", ["hello"])]


@pytest.mark.parametrize("name", ["chatgpt", "locomo", "openai_chat"])
def test_a_format_without_companions_says_that_it_skipped_them(name: str) -> None:
    report = FORMATS[name](SAMPLES[name], companions=[NamedSource(name="x", source="y")]).report
    assert [(skip.kind, skip.count) for skip in report.skipped] == [("file", 1)]
    assert report.read["file"] == 1


def test_companions_are_known_by_their_names() -> None:
    assert is_companion("x/subagents/agent-a1b2.jsonl")
    assert is_companion("agent-acompact-fffbd0.jsonl.gz")
    assert not is_companion("258c7280.jsonl")
    assert not is_companion("agent-a1b2.meta.json")


def test_a_line_separator_inside_a_string_divides_no_lines() -> None:
    line = json.dumps(said("u1", "one\u2028two\u0085three"), ensure_ascii=False)
    assert spoken(only(FORMATS["claude_code"](line.encode()))) == [("user", ["one\u2028two\u0085three"])]


def test_progress_tells_the_bytes_read_up_to_the_last_one() -> None:
    told: list[int] = []
    lines = [json.dumps(said(f"u{number}", "ü" * 5000), ensure_ascii=False) + "\n" for number in range(50)]
    FORMATS["claude_code"](lines, progress=told.append)
    assert told == sorted(told)
    assert len(told) > 3
    assert told[-1] == sum(len(line.encode()) for line in lines)


def test_a_source_that_breaks_off_keeps_what_came_before() -> None:
    def cut(name: str) -> Iterator[str]:
        yield SAMPLES[name]
        raise EOFError("Compressed file ended before the end-of-stream marker was reached")

    for name in FORMAT_NAMES:
        result = FORMATS[name](cut(name))
        assert spoken(only(result)) == [("user", ["hello"])]
        assert any("breaks off" in note.text for note in result.report.notes), name


@pytest.mark.parametrize(
    ("content", "readable", "unreadable"),
    [
        ("[1, 2]", [1, 2], []),
        ('[}, {"a": 1}]', [{"a": 1}], ["}"]),
        ('[{"a": }, {"b": "]}"}, 3]', [{"b": "]}"}, 3], ['{"a": }']),
        ('[1, {"cut": "off', [1], ['{"cut": "off']),
        ("[1] tail", [1], [" tail"]),
        ("[1,,2]", [1], [",2"]),
        ('{"a": 1}', [{"a": 1}], []),
        ("{", [], ["{"]),
    ],
)
def test_a_bad_element_of_a_list_does_not_take_the_others_along(
    content: str, readable: list[Any], unreadable: list[str]
) -> None:
    elements = list(read_elements(content))
    assert [element.value for element in elements if not element.reason] == readable
    assert [element.raw for element in elements if element.reason] == unreadable


def test_bytes_that_are_no_utf8_can_be_had_back() -> None:
    (line,) = read_lines([b"caf\xe9\n"], ByteCount(None))
    assert line.encode("utf-8", "surrogateescape") == b"caf\xe9"


def test_a_report_as_plain_values() -> None:
    report = parsed("claude_code", said("u1", "x"), "oops").report.as_dict()
    assert json.loads(json.dumps(report)) == report
    assert report["read"] == {"user": 1, "unreadable": 1}


def test_a_report_tells_at_most_a_hundred_kinds_apart() -> None:
    records = [{"type": f"kind{number}", "uuid": "x"} for number in range(500)]
    report = parsed("claude_code", *records).report
    assert len(report.read) == 101
    assert sum(report.read.values()) == sum(report.stored.values()) == 500


def test_identifiers_fit_the_store_and_stay_apart() -> None:
    long = ["x" * 5000 + end for end in "ab"]
    assert identifier("D1:3") == "D1:3"
    assert all(len(identifier(text)) <= 200 for text in [*long, "a\x00b", "\ud800"])
    assert len({identifier(text) for text in [*long, "a\x00b", "ab", "\ud800"]}) == 5
    assert one_line("a\n\x00 b\ud800" + "c" * 100, 10) == "a b\ufffdccccc…"


def test_ids_that_come_twice_are_numbered_past_those_that_are_taken() -> None:
    drafts = [Conversation(Tally("claude_code")) for _ in range(4)]
    for draft, external_id in zip(drafts, ["a", "a#2", "a", "a"], strict=True):
        draft.external_id = external_id
    make_ids_unique(drafts)
    assert [draft.external_id for draft in drafts] == ["a", "a#2", "a#3", "a#4"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-02-10T21:00:00.000Z", "2026-02-10T21:00:00+00:00"),
        ("2026-02-10T21:00:00+02:00", "2026-02-10T19:00:00+00:00"),
        ("2026-02-10 21:00:00", "2026-02-10T21:00:00+00:00"),
        (1_770_757_200, "2026-02-10T21:00:00+00:00"),
        (1_770_757_200.5, "2026-02-10T21:00:00.500000+00:00"),
        ("1770757200", "2026-02-10T21:00:00+00:00"),
        (1_770_757_200_000, "2026-02-10T21:00:00+00:00"),
        (-5, None),
        (True, None),
        (float("nan"), None),
        (10**400, None),
        ("0001-01-01T00:00:00+23:00", None),
        ("soon", None),
        ([], None),
    ],
)
def test_times_of_the_source(value: Any, expected: str | None) -> None:
    time = time_of(value)
    assert (time.isoformat() if time else None) == expected


def test_milliseconds_are_told_from_seconds_by_their_size() -> None:
    time = time_of(1_770_757_200_123)
    assert time is not None
    assert time.year == 2026


def test_the_same_text_gives_equal_values() -> None:
    records = [said("u1", "x"), answered("a1", "m1", text("y"))]
    assert everything(parsed("claude_code", *records)) == everything(parsed("claude_code", *records))


def test_transcripts_need_nothing_of_the_core_but_its_plainest_values() -> None:
    allowed = {"facts", "messages", "llm", "text", "errors", "values", "transcripts"}
    ours = {"autobyteus.py", "session_file.py"}  # these write the record
    for path in Path(mnesis_core.transcripts.__file__).parent.glob("*.py"):
        if path.name in ours:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mnesis_core."):
                assert str(node.module).split(".")[1] in allowed, (path.name, node.module)
