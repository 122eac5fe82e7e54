"""Lines of an export: what is written is read, and nothing else is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.errors import InvalidRequest
from mnesis_core.text import decode_text, encode_text
from mnesis_core.transcripts import detect_format
from mnesis_core.transcripts.session_file import Header, RowLine, read_sessions, session_lines
from tests.support.proof.second_verifier import Refused, read_lines

HEADER = Header(session_id="sess_1", event_seq=2, head_hash="ab", rows={"turns": 1, "events": 2})
ROWS = [("turns", {"id": "turn_1", "text": "a"}), ("events", {"seq": 1}), ("events", {"seq": 2})]
LINES = list(session_lines(HEADER, ROWS))


@given(
    st.text(),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text().map(encode_text),
        lambda some: st.lists(some) | st.dictionaries(st.text().map(encode_text), some),
    ),
)
def test_what_is_written_is_read(text: str, value: object):
    """Any text: also NUL, lone surrogates, and two of them side by side, which JSON would take for one character."""
    values = {"text": encode_text(text), "value": value}
    lines = list(session_lines(Header(session_id="sess_1", event_seq=0, head_hash="", rows={"a": 1}), [("a", values)]))
    [_, row, _] = read_sessions(lines)
    assert isinstance(row, RowLine)
    assert row.values == values
    assert decode_text(row.values["text"]) == text
    assert [rows for _, _, rows in read_lines(lines)] == [[(row.line, row.table, row.values)]]
    assert all(line.count(b"\n") == 1 for line in lines)


def test_a_file_of_the_first_form_is_read():
    [header, *_] = read_sessions(sealed([LINES[0].replace(b'"version":2', b'"version":1'), *LINES[1:-1]]))
    assert header == replace(HEADER, version=1)


def test_two_lone_surrogates_stay_two():
    text = "\ud83d" + "\ude00"
    assert json.loads(json.dumps(text)) != text
    test_what_is_written_is_read.hypothesis.inner_test(text, None)  # type: ignore[attr-defined]


def test_joined_files_are_read_one_after_the_other():
    other = list(session_lines(Header(session_id="sess_2", event_seq=0, head_hash="", rows={}), []))
    items = list(read_sessions([*LINES, *other]))
    assert [item.session_id for item in items if isinstance(item, Header)] == ["sess_1", "sess_2"]


def test_the_wrong_command_names_the_right_one():
    with pytest.raises(InvalidRequest, match=r"brought in by import_session\."):
        detect_format("talk.jsonl", LINES[0])
    with pytest.raises(InvalidRequest, match=r"^Line 1: .* is for import_transcript\."):
        list(read_sessions([b'{"type":"user"}\n']))


def sealed(lines: list[bytes]) -> list[bytes]:
    """Lines with an end that fits them, as a forger who knows the format would write it."""
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    return [
        *lines,
        json.dumps({"end": "sess_1", "lines": len(lines), "sha256": digest}, separators=(",", ":")).encode() + b"\n",
    ]


def with_line(number: int, line: bytes) -> Callable[[], list[bytes]]:
    return lambda: sealed([*LINES[: number - 1], line, *LINES[number:-1]])


@pytest.mark.parametrize(
    ("damage", "line", "reason"),
    [
        (lambda: [], 1, "empty"),
        (lambda: LINES[:-1], 5, "cut off"),
        (lambda: [*LINES[:-1], LINES[-1][:20]], 5, "not JSON, or was cut off"),
        (lambda: LINES[1:], 1, "header must stand here"),
        (lambda: [LINES[0], *LINES[2:]], 2, "a row of turns was to come here"),
        (lambda: [LINES[0], LINES[2], LINES[1], *LINES[3:]], 2, "a row of turns"),
        (lambda: [*LINES[:2], LINES[3], LINES[2], LINES[4]], 5, "SHA-256 is another"),
        (lambda: [*LINES[:3], LINES[4]], 4, "1 rows of events are missing"),
        (lambda: [*LINES[:2], LINES[2].replace(b"1", b"7"), *LINES[3:]], 5, "SHA-256 is another"),
        (lambda: [*LINES, LINES[1]], 6, "header must stand here"),
        (with_line(2, b'{"table":"turns","row":{"id":"\\u0000"}}\n'), 2, "not written as an export writes it"),
        (with_line(2, b'{"table":"turns","row":{"id":"\\ud800"}}\n'), 2, "not JSON"),
        (with_line(2, b'{"table":"turns","row":{"id":"\xff"}}\n'), 2, "not JSON"),
        (with_line(2, b'{"table":"turns","row":{"id":1,"id":2}}\n'), 2, "not written as an export"),
        (with_line(2, b'{"table":"turns", "row":{}}\n'), 2, "not written as an export"),
        (with_line(2, b'{"table":"turns","row":{"n":NaN}}\n'), 2, "not JSON"),
        (with_line(2, b'{"table":"turns","row":[]}\n'), 2, "neither a row nor an end"),
        (with_line(2, b'{"table":["turns"],"row":{}}\n'), 2, "neither a row nor an end"),
        (with_line(2, b"[" * 100_000 + b"\n"), 2, "not JSON"),
        (with_line(2, b"\n"), 2, "not JSON"),
        (with_line(1, LINES[0].replace(b'"version":2', b'"version":3')), 1, "version 3 of the format"),
        (with_line(1, LINES[0].replace(b'"version":2', b'"version":0')), 1, "version 0 of the format"),
        (with_line(1, LINES[0].replace(b'"version":2', b'"version":true')), 1, "version True of the format"),
        (with_line(1, LINES[0].replace(b'"event_seq":2', b'"event_seq":"2"')), 1, "which session"),
        (with_line(1, LINES[0].replace(b'"turns":1', b'"turns":-1')), 1, "how many rows"),
        (with_line(1, LINES[0].replace(b'"head_hash"', b'"more":1,"head_hash"')), 1, "not as an export writes it"),
    ],
)
def test_what_is_damaged_is_refused_with_its_line(damage: Callable[[], list[bytes]], line: int, reason: str):
    with pytest.raises(InvalidRequest, match=rf"^Line {line}: .*{reason}") as refusal:
        list(read_sessions(damage()))
    assert refusal.value.details == {"line": line}
    with pytest.raises(Refused) as refused:
        list(read_lines(damage()))
    assert refused.value.line == line


@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject):
    whole = bytearray(b"".join(LINES))
    place = data.draw(st.integers(0, len(whole) - 2))  # the very last line feed may be missing
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidRequest, match=r"^Line ") as refusal:
        list(read_sessions(_lines(bytes(whole))))
    with pytest.raises(Refused) as refused:
        list(read_lines(_lines(bytes(whole))))
    assert refusal.value.details == {"line": refused.value.line}


def _lines(whole: bytes) -> list[bytes]:
    return [line + b"\n" for line in whole.split(b"\n")[:-1]]
