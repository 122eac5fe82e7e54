"""Spreadsheets: their sheets, and what the first rows of each look like."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from defusedxml.ElementTree import iterparse
from openpyxl.reader.excel import SHARED_STRINGS, ExcelReader
from openpyxl.utils.cell import range_boundaries
from openpyxl.utils.exceptions import InvalidFileException
from openpyxl.worksheet._read_only import ReadOnlyWorksheet

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.kinds.archive import READ_ERRORS, check_parts, properties_of
from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

MOST_SHEETS = 20
MOST_ROWS = 100
MOST_COLUMNS = 30
# Characters of all texts together, and what each text counts beyond its length.
MOST_TEXT, TEXT_OVERHEAD = 134_217_728, 50
_NAMES = {
    int: "number",
    float: "number",
    str: "text",
    bool: "yes or no",
    datetime.datetime: "date",
    datetime.time: "time",
}
_DIMENSION, _DIMENSION_BYTES = re.compile(rb'<(?:\w+:)?dimension ref="([A-Z0-9:]{2,40})"'), 4_096


def explore(source: Source) -> Findings:
    check_parts(source, "xl/", streamed=("xl/worksheets/sheet", "xl/sharedStrings"))
    try:
        # Opened by us: the library refuses names without its ending.
        with warnings.catch_warnings(), source.path.open("rb") as file:
            warnings.simplefilter("ignore")
            reader = _Reader(file, read_only=True, data_only=True)
            reader.read()
            with closing(reader.wb) as book:
                lines = list(_lines(book))
    except (InvalidFileException, *READ_ERRORS) as error:
        raise Unreadable(
            fill(gettext_noop("not readable as a spreadsheet: %(reason)s"), {"reason": shown(str(error))})
        ) from None
    return Findings(lines=lines, covered=f"the first {MOST_ROWS} rows of each sheet")


class _Reader(ExcelReader):  # type: ignore[misc]
    """Streams a workbook's list of texts, and reads no charts."""

    def read_strings(self) -> None:
        part = self.package.find(SHARED_STRINGS)
        if part is None:
            return
        with self.archive.open(part.PartName[1:]) as file:
            self.shared_strings = list(_texts(file))

    def read_worksheets(self) -> None:
        for sheet, relation in self.parser.find_sheets():
            if "chartsheet" not in relation.Type and relation.target in self.valid_files:
                self.wb._sheets.append(_Sheet(self.wb, sheet.name, relation.target, self.shared_strings))


class _Sheet(ReadOnlyWorksheet):  # type: ignore[misc]
    # Takes the size from the beginning; the library reads all of a sheet that does not declare it.

    def _get_size(self) -> None:
        with self._get_source() as file:
            found = _DIMENSION.search(file.read(_DIMENSION_BYTES))
        if found:
            boundaries = range_boundaries(found[1].decode())
            self._min_column, self._min_row, self._max_column, self._max_row = boundaries


def _texts(file: Any) -> Iterator[str]:
    events = iterparse(file, events=("start", "end"))
    _, root = next(events)
    size = 0
    for event, element in events:
        if event == "end" and element.tag.endswith("}si"):
            text = "".join(one.text or "" for one in element.iter() if one.tag.endswith("}t"))
            size += len(text) + TEXT_OVERHEAD
            if size > MOST_TEXT:
                raise Unreadable(
                    fill(gettext_noop("its texts are longer than %(most)s characters"), {"most": MOST_TEXT})
                )
            yield text
            root.clear()


def _lines(book: Any) -> Iterator[str]:
    sheets = book.sheetnames
    yield f"Spreadsheet: {counted(len(sheets), 'sheet')}"
    yield from properties_of(book.properties)
    for name in sheets[:MOST_SHEETS]:
        sheet = book[name]
        rows = list(sheet.iter_rows(max_row=MOST_ROWS, max_col=MOST_COLUMNS, values_only=True))
        size = f"{counted(len(rows), 'row')}{' or more' if len(rows) == MOST_ROWS else ''}"
        if sheet.max_row and sheet.max_column:  # what a sheet says of its size is not checked
            size = f"{counted(sheet.max_row, 'row')}, {counted(sheet.max_column, 'column')}"
        yield f"{shown(name)}: {size}"
        columns = []
        for at, head in enumerate(rows[0] if rows else ()):
            values = [row[at] for row in rows[1:] if at < len(row)]
            kinds = dict.fromkeys(_NAMES.get(type(value), "text") for value in values if value is not None)
            column = "" if head is None else shown(str(head))
            columns.append(f"{column or '(no name)'} ({' or '.join(kinds)})" if kinds else column)
        if any(columns):
            yield f"  Columns: {'; '.join(filter(None, columns))}"
