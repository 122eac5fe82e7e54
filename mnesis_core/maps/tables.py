"""Tables as the input of a run: the rows of a CSV file as JSON Lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from typing import TextIO

from mnesis_core.errors import InvalidInput, gettext_noop
from mnesis_core.maps.values import one_line

DELIMITERS = ",;\t"
"""What spreadsheets write between cells; a semicolon where the comma is the decimal sign."""
LONGEST_LINE = 4_000_000
"""The most characters of a line, and of a cell, so that no file is read into memory as one."""


def rows_as_lines(file: TextIO) -> Iterator[bytes]:
    """Yield each row of a table as a JSON object, whose names are the cells of the first row. A row without a cell lacks its name.

    :param file: opened with ``newline=""``
    :raises InvalidInput: it is not CSV, the first row does not name each column once, or a row has more cells than that
    """
    csv.field_size_limit(LONGEST_LINE)  # of the process, so whatever reads CSV in it sets its own
    try:
        lines = _lines(file)
        first = next(lines, "")
        rows = csv.reader(chain([first], lines), delimiter=max(DELIMITERS, key=first.count), strict=True)
        names = [name.strip() for name in next(rows, [])]
        if not names or not all(names) or len(set(names)) < len(names):
            raise InvalidInput(gettext_noop("The first row of a table must name each column once."))
        for row in rows:
            if len(row) > len(names):
                raise InvalidInput(
                    gettext_noop("The row that ends in line %(number)s has more cells than the first one."),
                    {"number": str(rows.line_num)},
                )
            if row:
                yield f"{one_line(dict(zip(names, row, strict=False)))}\n".encode()
    except UnicodeDecodeError:
        raise InvalidInput(gettext_noop("The table is not in UTF-8.")) from None
    except csv.Error:
        raise InvalidInput(
            gettext_noop("Line %(number)s of the table cannot be read as CSV."), {"number": str(rows.line_num)}
        ) from None


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise InvalidInput(
                gettext_noop("A line of the table is longer than %(most)s characters."), {"most": LONGEST_LINE}
            )
        yield line
