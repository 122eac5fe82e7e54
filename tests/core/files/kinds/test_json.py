"""What is said of JSON."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import json
from mnesis_core.files.schemas import schema_lines
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def test_keys_have_types_lengths_and_values(source: MakeSource) -> None:
    data = b'{"name": "x", "tags": ["a", "b"], "people": [{"age": 3}, {"age": 5, "email": null}]}'
    found = json.explore(source("a.json", data))
    assert found.lines == [
        'object of 3 keys: name "x", tags (array of 2 strings: a, b), people (array of 2 objects)',
        "people[]: age (integer 3–5), email (null, in 1 of 2)",
    ]
    assert found.covered == "all of it"


def test_many_keys_with_values_alike_are_told_as_a_map(source: MakeSource) -> None:
    members = ",".join(f'"package-{number}": {{"version": "{number}"}}' for number in range(300))
    found = json.explore(source("a.json", f"{{{members}}}".encode()))
    assert found.lines[0].startswith("object of 300 keys: package-0, package-1,")
    assert found.lines[1] == "*: version (string as 0)"


def test_comments_and_last_commas_are_read(source: MakeSource) -> None:
    found = json.explore(source("a.jsonc", b'// hi\n{"url": "http://x//y", /* no */ "l": [1, 2,],}'))
    assert found.lines == ['object of 2 keys: url "http://x//y", l (array of 2 integers: 1, 2)']


def test_what_is_streamed_has_the_shape_of_what_is_read_whole(source: MakeSource) -> None:
    data = b'{"a\\u00e9": [1, 2.5, "x\\"y", {"b": [true, null]}], "c": {"d": {}}, "e": []}'
    file = source("a.json", data)
    assert schema_lines(json.streamed_schema(file).builder.root) == list(json.explore(file).lines)


def test_a_string_over_many_pieces_is_one_token(source: MakeSource) -> None:
    data = b'["' + b'\\"' * 1_000_000 + b'", 1]'
    shape = json.streamed_schema(source("a.json", data)).builder.root
    assert shape.items is not None
    assert shape.items.types == {"string": 1, "integer": 1}


def test_deep_nesting_is_counted(source: MakeSource) -> None:
    found = json.explore(source("a.json", b"[" * 200_000 + b"]" * 200_000))
    assert found.lines[-1] == "Nested 200,000 levels deep"


def test_a_file_that_breaks_off_says_so(source: MakeSource) -> None:
    assert json.explore(source("a.json", b"[" * 200_000)).lines[0].startswith("It breaks off: 200,000 objects")


def test_values_on_lines_of_their_own_are_records(source: MakeSource) -> None:
    assert json.explore(source("a.json", b'{"a": 1}\n{"a": 2}\n')).lines[0] == "2 records"


@pytest.mark.parametrize("data", [b"", b" ", b'{"a" 1}', b"hello", b'{"a": 1', b"\x00\x01"])
def test_what_is_no_json_is_unreadable(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable, match="not valid JSON"):
        json.explore(source("a.json", data))


def test_a_number_of_thousands_of_digits_is_read(source: MakeSource) -> None:
    assert (
        json.explore(source("a.json", b'{"n": ' + b"9" * 10_000 + b"}")).lines[0].startswith("object of 1 key: n 999")
    )
