"""HTTP's ranges: what programs that resume a download send, and what no program should send."""

from __future__ import annotations

import pytest

from mnesis_core.errors import RangeNotSatisfiable
from mnesis_core.files.lines import Span, parse_range


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-", (0, 10)),
        ("bytes=4-", (4, 10)),
        ("bytes=4-4", (4, 5)),
        ("bytes=4-99", (4, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("Bytes= 4-5 ", (4, 6)),
    ],
)
def test_a_range_is_the_bytes_it_names(header, expected):
    span = parse_range(header, size=10)
    assert span == Span(first=expected[0], end=expected[1])


@pytest.mark.parametrize(
    "header", ["", "bytes=-", "bytes=5-4", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes=²-", "bytes=-5-6"]
)
def test_what_is_no_single_range_asks_for_everything(header):
    assert parse_range(header, size=10) is None


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=-0", 10), ("bytes=0-", 0)]
)
def test_bytes_that_are_not_there_are_refused(header, size):
    with pytest.raises(RangeNotSatisfiable) as refused:
        parse_range(header, size=size)
    assert refused.value.details["size"] == size
