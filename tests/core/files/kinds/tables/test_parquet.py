"""Parquet: its columns and what they span, from the footer."""

from __future__ import annotations

import io

import pyarrow as arrow
import pyarrow.parquet as arrow_parquet
import pytest

from mnesis_core.files.kinds.parquet import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def written(columns: dict[str, object], **options: int) -> bytes:
    target = io.BytesIO()
    arrow_parquet.write_table(arrow.table(columns), target, **options)
    return target.getvalue()


def test_columns_are_told_with_types_and_what_they_span_over_all_row_groups(source: MakeSource) -> None:
    data = written({"id": [1, 2, 3], "name": ["b", None, "a\nb"], "in": [{"x": 1}] * 3}, row_group_size=2)
    findings = explore(source("a.parquet", data))
    assert findings.lines[0] == "Parquet: 3 rows, 3 columns, 2 row groups"
    assert findings.lines[1].startswith("Written by: parquet-cpp-arrow")
    assert list(findings.lines[2:]) == [
        "Compression: SNAPPY",
        "id: int64, from 1 to 3",
        "name: string, from a b to b, 1 null",
        "in: struct<x: int64>",
    ]
    assert findings.covered == "its footer; the rows themselves were not read"


def test_a_table_without_rows_or_columns_is_one(source: MakeSource) -> None:
    assert "id: null" in explore(source("a.parquet", written({"id": []}))).lines
    assert explore(source("a.parquet", written({}))).lines[0].startswith("Parquet: 0 rows, 0 columns")


def test_of_very_many_columns_the_first_are_told(source: MakeSource) -> None:
    lines = explore(source("a.parquet", written({f"c{at}": [at] for at in range(300)}))).lines
    assert lines[-1] == "and 240 more columns"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "too short"),
        (b"PAR1" * 5, "cut off"),
        (written({"id": [1]})[:-20], "cut off"),
        (b"PAR1" + b"\xff" * 50 + (50).to_bytes(4, "little") + b"PAR1", "not readable as Parquet"),
        (b"PAR1" + bytes(20) + b"PARE", "encrypted"),
    ],
)
def test_what_is_no_parquet_says_why(source: MakeSource, data: bytes, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        explore(source("a.parquet", data))
