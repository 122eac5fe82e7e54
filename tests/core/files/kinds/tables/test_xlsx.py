"""Spreadsheets: sheets, their sizes, and their columns."""

from __future__ import annotations

import datetime
import io

import openpyxl
import pytest

from mnesis_core.files.detection import detect
from mnesis_core.files.detection import explore as explore_any
from mnesis_core.files.kinds import xlsx
from mnesis_core.files.kinds.xlsx import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource
from tests.core.files.kinds.documents.office_files import OLD, changed, with_entities

SHEET, TEXTS, TYPES = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "[Content_Types].xml"
_SPACE = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_TYPE = b"application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"


def written() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Sales"
    sheet.append(["Name", "When", "Sum", None, "Paid"])
    sheet.append(["VICTIM", datetime.datetime(2024, 1, 1), 2.5, 1, True])
    sheet.append([7, datetime.datetime(2024, 1, 2), 2, None, False])
    book.create_sheet("Empty")
    book.create_chartsheet("Chart")
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


def with_shared_texts(*texts: str) -> bytes:
    """Make a workbook as Excel does, whose cells name their texts by number."""
    rows = "".join(f'<row r="{at + 1}"><c r="A{at + 1}" t="s"><v>{at}</v></c></row>' for at in range(len(texts)))
    table = "".join(f"<si><r><t>{text}</t></r></si>" for text in texts)
    return changed(
        written(),
        {
            SHEET: lambda _: b"<worksheet %s><sheetData>%s</sheetData></worksheet>" % (_SPACE, rows.encode()),
            TEXTS: lambda _: b"<?xml version='1.0'?><sst %s>%s</sst>" % (_SPACE, table.encode()),
            TYPES: lambda part: part.replace(
                b"</Types>", b'<Override PartName="/%s" ContentType="%s"/></Types>' % (TEXTS.encode(), _TYPE)
            ),
        },
    )


def test_sheets_are_told_with_their_columns_and_what_is_in_them(source: MakeSource) -> None:
    made = source("a.xlsx", written())
    assert detect(made).name == "xlsx"
    lines = list(explore(made).lines)
    assert lines[0] == "Spreadsheet: 2 sheets"
    assert lines[-3:] == [
        "Sales: 3 rows, 5 columns",
        "  Columns: Name (text or number); When (date); Sum (number); (no name) (number); Paid (yes or no)",
        "Empty: 1 row, 1 column",
    ]


def test_shared_texts_are_found_and_a_size_that_is_not_said_is_not_looked_for(source: MakeSource) -> None:
    lines = list(explore(source("a.xlsx", with_shared_texts("Head", *(["value"] * 150)))).lines)
    assert lines[-3:-1] == ["Sales: 100 rows or more", "  Columns: Head (text)"]


def test_too_many_texts_are_refused(source: MakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MOST_TEXT", 1_000)
    with pytest.raises(Unreadable, match="longer than 1,000 characters"):
        explore(source("a.xlsx", with_shared_texts(*(["text"] * 20))))


@pytest.mark.parametrize("part", [SHEET, TEXTS])
def test_entities_are_not_followed(source: MakeSource, part: str) -> None:
    found = explore_any(source("a.xlsx", changed(with_shared_texts("VICTIM"), {part: _prepared})))
    assert "laugh" not in found.summary
    assert "root:" not in found.summary


def _prepared(part: bytes) -> bytes:
    said = part if b"VICTIM" in part else part.replace(b"<v>0</v>", b"<v>VICTIM</v>")
    return with_entities(said if b"?>" in said else b"<?xml version='1.0'?>" + said)


def test_a_row_far_away_is_not_walked_to(source: MakeSource) -> None:
    sheet = b'<worksheet %s><sheetData><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData></worksheet>'
    lines = explore(source("a.xlsx", changed(written(), {SHEET: lambda _: sheet % _SPACE}))).lines
    assert "Sales: 100 rows or more" in lines


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"plain text", "no readable zip archive"),
        (OLD, "encrypted"),
        (changed(written(), {"xl/workbook.xml": lambda part: part[:300]}), "not readable as a spreadsheet"),
        (changed(written(), {SHEET: lambda part: part[:400]}), "not readable as a spreadsheet"),
    ],
    ids=["text", "encrypted", "broken", "broken sheet"],
)
def test_what_cannot_be_read_says_why(source: MakeSource, data: bytes, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        explore(source("a.xlsx", data))
