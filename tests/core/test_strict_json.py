"""JSON as every endpoint reads it."""

from __future__ import annotations

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.text import read_json


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "The body is not JSON: Expecting value at line 1, column 1."),
        ('{"a": 1,}', "The body is not JSON: "),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ('{"a": 1e999}', "a number is too large"),
        ("1" * 5_000, "The body cannot be read"),
        (b'"\xff"', "The body is not UTF-8."),
        ("[" * 3_000 + "]" * 3_000, "The body is nested too deeply."),
    ],
)
def test_what_is_no_json_is_named(text: str | bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words.replace(".", r"\.")):
        read_json(text)


def test_json_is_read_as_it_is() -> None:
    assert read_json(b'{"a": [1, 1.5, "\\u0000\\ud800", null, true]}') == {"a": [1, 1.5, "\0\ud800", None, True]}
