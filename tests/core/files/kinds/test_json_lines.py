"""What is said of JSON Lines."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import json
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def test_records_and_their_keys_are_counted(source: MakeSource) -> None:
    data = b'{"role": "user", "n": 1}\n{"role": "tool", "n": 2}\n\n{"role": "user"}\n{"role": "tool"}\n'
    found = json.explore_json_lines(source("a.jsonl", data))
    assert found.lines == [
        "4 records",
        "Each record: object of 1–2 keys: role (string: user ×2, tool ×2), n (integer 1–2, in 2 of 4)",
    ]


def test_after_many_records_the_rest_is_counted(source: MakeSource) -> None:
    found = json.explore_json_lines(source("a.jsonl", b'{"a": 1}\n' * 20_500))
    assert found.lines[0] == "20,500 lines, one record each"
    assert found.covered == "the first 20,000 records; the others counted"


def test_a_broken_line_is_named(source: MakeSource) -> None:
    found = json.explore_json_lines(source("a.jsonl", b'{"a": 1}\n{"a": \n{"a": 2}\n'))
    assert found.lines[1].startswith("1 line is no JSON: line 2: ")


def test_a_record_of_a_megabyte_is_one_record(source: MakeSource) -> None:
    found = json.explore_json_lines(source("a.jsonl", b'{"a": "' + b"x" * 1_000_000 + b'"}\n{"a": "y"}\n'))
    assert found.lines[0] == "2 records"


@pytest.mark.parametrize("data", [b"", b"hello\nworld\n", b"[" * 200_000])
def test_what_is_no_json_is_unreadable(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable, match="not JSON Lines"):
        json.explore_json_lines(source("a.jsonl", data))
