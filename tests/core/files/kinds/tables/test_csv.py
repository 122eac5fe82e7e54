"""What is said of tables of text."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import csv
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def test_columns_have_types_ranges_and_gaps(source: MakeSource) -> None:
    data = (
        b"id,price,day,paid,name\n1,2.5,2024-01-02,true,Ann\n2,,2024-03-01,false,Bob\n3,7,2023-12-31,true,Cid\n"
        b"4,1e3,2024-01-01,true,Dan\n"
    )
    assert csv.explore(source("a.csv", data)).lines == [
        "4 rows, 5 columns, with a header, commas between cells",
        "id: integer, 1 to 4, 4 different",
        "price: decimal, 2.5 to 1000, 3 different, 1 empty",
        "day: date, 2023-12-31 to 2024-03-01, 4 different",
        "paid: boolean, values true ×3; false ×1",
        "name: text, 4 different as Ann",
    ]


@pytest.mark.parametrize(("delimiter", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars"), (",", "commas")])
def test_the_delimiter_is_found(source: MakeSource, delimiter: str, word: str) -> None:
    data = "a@b@c\n1@2@hello, you\n3@4@x\n".replace("@", delimiter) if delimiter != "," else "a,b,c\n1,2,x;y\n"
    assert (
        csv.explore(source("a.csv", data.encode())).lines[0].endswith(f"3 columns, with a header, {word} between cells")
    )


def test_numbers_only_have_no_header(source: MakeSource) -> None:
    assert csv.explore(source("a.csv", b"1,2\n3,4\n")).lines[:2] == [
        "2 rows, 2 columns, without a header, commas between cells",
        "column 1: integer, 1 to 3, 2 different",
    ]


def test_rows_of_another_width_are_reported(source: MakeSource) -> None:
    data = b"a,b\n" + b"1,2\n" * 5 + b"1\n1,2,3\n"
    assert csv.explore(source("a.csv", data)).lines[1] == "2 rows of another width (1, 3); the first is row 6"


def test_line_ends_within_quotes_are_no_rows(source: MakeSource) -> None:
    assert csv.explore(source("a.csv", b'a,b\n1,"x\ny\nz"\n2,"say ""hi"""\n')).lines[0].startswith("2 rows, 2 columns")


def test_a_cell_of_131_072_characters_is_read(source: MakeSource) -> None:
    found = csv.explore(source("a.csv", b"a,b\n1," + b"x" * 131_073 + b"\n2,y\n"))
    assert found.lines[0].startswith("2 rows, 2 columns")


def test_a_range_goes_on_when_integers_turn_to_decimals(source: MakeSource) -> None:
    data = b"n,m\n-7,1\n" + b"".join(b"%d,1\n" % (99_999 if n == 1_500 else n) for n in range(5_000)) + b"0.5,1\n"
    assert csv.explore(source("a.csv", data)).lines[1] == "n: decimal, -7 to 99999"


def test_a_column_that_turns_to_text_has_no_range(source: MakeSource) -> None:
    data = b"n,m\n" + b"1,1\n" * 3_000 + b"2_000,1\n"
    assert csv.explore(source("a.csv", data)).lines[1] == "n: text, values 1 ×3,000; 2_000 ×1"


def test_utf_16_is_read(source: MakeSource) -> None:
    assert csv.explore(source("a.csv", "name,n\nAnnä,1\n".encode("utf-16"))).lines[1].endswith("as Annä")


def test_a_quote_that_never_ends_is_a_problem_after_the_rows_before(source: MakeSource) -> None:
    data = b"a,b\n" + b"1,2\n" * 5_000 + b'1,"' + b"x\n" * 1_100_000
    found = csv.explore(source("a.csv", data))
    assert found.lines[1].startswith("It cannot be read after row ")
    assert found.covered.startswith("the first ")


@pytest.mark.parametrize("data", [b"", b"\n\n", b"a," * 3_000_000])
def test_what_is_no_table_is_unreadable(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable, match="not a table"):
        csv.explore(source("a.csv", data))
