"""Inputs of operators: each line found again by its place, and what is no JSON Lines named by its item."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from mnesis_core.errors import InvalidInput
from mnesis_core.maps import values
from mnesis_core.maps.values import NewItem, input_lines, one_line, read_item


def _read(data: bytes, **options: Any) -> list[Any]:
    found = _items(data, **options)
    assert [item.number for item in found] == list(range(1, len(found) + 1))
    return [read_item(data[item.offset : item.offset + item.length]) for item in found]


def _items(data: bytes, **options: Any) -> list[NewItem]:
    return list(input_lines(lambda offset, size: data[offset : offset + size], len(data), **options))


@pytest.mark.parametrize(
    ("data", "items"),
    [
        (b"", []),
        (b"\n\n \t\r\n", []),
        (b"1", [1]),
        (b'{"a": 1}\n[2]\n"x"\nnull\n', [{"a": 1}, [2], "x", None]),
        (b"1\r\n2\r\n", [1, 2]),
        (b"\xef\xbb\xbf1\n2", [1, 2]),
        (b"\n 1 \n\n\t2\n\n", [1, 2]),
        ('"é‮😀"\n"\\u0000\\ud800"'.encode(), ["é‮😀", "\0\ud800"]),
        ('"a\u2028b\x0b\x0c\u0085c"'.replace("\x0b\x0c", "").encode(), ["a\u2028b\u0085c"]),
    ],
)
def test_lines_are_items(data: bytes, items: list[Any]) -> None:
    assert _read(data) == items


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"1\n{\n3", r"Item 2 of the input \(at byte 2\) cannot be read. It is not JSON"),
        (b"1 2", "not JSON"),
        (b"NaN", "NaN is not JSON"),
        (b"1e999", "too large"),
        (b"\0", "not JSON"),
        (b'"\xff"', "It is not UTF-8"),
        (b"1\x00", "not JSON"),
        (b'"' + b"\xed\xa0\x80" + b'"', "It is not UTF-8"),
        (b"[" * 3_000 + b"]" * 3_000, "too deeply"),
        (b"[" * 101 + b"]" * 101, "nests more than 100"),
        ("[1]".encode("utf-16"), "UTF-16-LE; write it as UTF-8"),
        ("[1]".encode("utf-32"), "UTF-32-LE; write it as UTF-8"),
        (b'[\n  {"a": 1}\n]', "Item 1"),
        (b"a;b\n1;2", "Item 1"),
        (b"1\n2\n3\n4\n", "more than 3 items"),
        (b'"' + b"x" * 60_000_000 + b'"', "longer than 1,000,000 bytes"),
        (b"x" * 2_000_000 + b"\n1", "longer than 1,000,000 bytes"),
    ],
)
def test_what_is_no_json_lines_is_named(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        _items(data, line_bytes=1_000_000, most_items=3)


def test_a_blank_line_of_any_length_hides_nothing() -> None:
    data = b"1\n" + b" " * 3_000_000 + b"\n2\n" + b" " * 1_500_000 + b'"x"\n'
    assert _read(data, line_bytes=1_000) == [1, 2, "x"]


@pytest.mark.parametrize("seed", range(5))
def test_pieces_and_pauses_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    items = [["é" * dice.randrange(50), number] for number in range(200)]
    ends = [dice.choice(["\n", "\r\n", "\n\n"]) for _ in items]
    data = "".join(json.dumps(value, ensure_ascii=False) + end for value, end in zip(items, ends, strict=True)).encode()
    whole = _items(data)
    monkeypatch.setattr(values, "READ_BYTES", dice.randrange(1, 300))
    assert _items(data) == whole
    assert _read(data) == items
    known = dice.randrange(200)
    assert _items(data, after=whole[known]) == whole[known + 1 :]


@pytest.mark.parametrize("value", ["\ud800", {"\udc00": ["é\u2028\n\0"]}, [1.5, None, True], "😀"])
def test_a_result_is_one_line_that_can_be_written(value: Any) -> None:
    line = one_line(value)
    assert b"\n" not in line.encode()
    assert json.loads(line) == value
