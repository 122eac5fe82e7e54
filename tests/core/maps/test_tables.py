"""The rows of a table as the items of a run."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from mnesis_core.errors import InvalidInput
from mnesis_core.maps.tables import rows_as_lines


def items(data: bytes) -> list[Any]:
    file = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")
    return [json.loads(line) for line in rows_as_lines(file)]


@pytest.mark.parametrize(
    "table",
    [
        b"text,stars\nLovely,5\nCold,1\n",
        b"\xef\xbb\xbftext;stars\r\nLovely;5\r\nCold;1",
        b"text\tstars\nLovely\t5\n\n\nCold\t1\n",
        b' text , stars \n"Lovely",5\n"Cold","1"\n',
    ],
)
def test_each_row_is_an_object_with_the_names_of_the_first(table: bytes) -> None:
    assert items(table) == [{"text": "Lovely", "stars": "5"}, {"text": "Cold", "stars": "1"}]


def test_a_cell_keeps_its_lines_quotes_and_commas() -> None:
    assert items(b'text,by\n"One, two\n""three""",Ada\n') == [{"text": 'One, two\n"three"', "by": "Ada"}]


def test_hostile_cells_are_kept() -> None:
    table = 'text\n"\x00"\n\N{RIGHT-TO-LEFT OVERRIDE}=1+1\n'.encode()
    assert items(table) == [{"text": "\x00"}, {"text": "\N{RIGHT-TO-LEFT OVERRIDE}=1+1"}]


def test_a_long_cell_is_kept_whatever_else_reads_csv_in_the_process() -> None:
    csv.field_size_limit(100)
    assert items(b"a\n" + b"x" * 200_000) == [{"a": "x" * 200_000}]


def test_a_short_row_lacks_the_last_names() -> None:
    assert items(b"a,b\n1\n") == [{"a": "1"}]


def test_a_table_of_names_alone_has_no_items() -> None:
    assert items(b"a,b\n") == []


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (b"", "name each column once"),
        (b"a,,b\n1,2,3\n", "name each column once"),
        (b"a,a\n1,2\n", "name each column once"),
        (b"a,b\n1,2\n1,2,3\n", "line 3 has more cells"),
        (b'a,b\n1,"2\n', "Line 2 of the table"),
        (b'a\n"' + (b"x" * 1_000_000 + b"\n") * 5 + b'"\n', "Line 5 of the table"),
        (b"x" * 5_000_000, "longer than 4,000,000 characters"),
        (b"a\n\xff\xfe\n", "not in UTF-8"),
    ],
)
def test_what_is_no_table_is_refused(table: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        items(table)
