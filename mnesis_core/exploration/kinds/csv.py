"""Tables as text, with commas or tabs or others: how many rows, and what each column holds."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mnesis_core.exploration.columns import Column, is_typed
from mnesis_core.exploration.findings import Findings, Unreadable, counted, listed, shown
from mnesis_core.exploration.source import Source

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
LINE_CHARACTERS = 4_194_304
CELL_CHARACTERS = 2_097_152
MOST_COLUMNS = 200
"""That are looked into."""
MOST_CHARACTERS = 268_435_456
"""Whose columns are looked into; the rows after them are counted."""
MOST_COUNTED = 1_073_741_824
_SAMPLE_LINES = 50
_BATCH_ROWS = 2_000
_BATCH_CHARACTERS = 1_048_576


@dataclass(slots=True)
class _Table:
    """What was read of a table."""

    delimiter: str
    header: list[str] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    rows: int = 0
    widths: Counter[int] = field(default_factory=Counter)
    ragged: int = 0
    first_ragged: int = 0
    read_rows: int = 0
    """Whose columns were looked into."""
    problem: str = ""


class _Lines:
    """The lines of a file with their ends, and how many characters were given away."""

    def __init__(self, source: Source) -> None:
        self.characters = 0
        self._source = source

    def __iter__(self) -> Iterator[str]:
        with self._source.path.open(encoding=self._source.encoding, errors="replace", newline="") as file:
            while line := file.readline(LINE_CHARACTERS):
                if len(line) == LINE_CHARACTERS and not line.endswith("\n"):
                    raise Unreadable(f"it has a line of more than {LINE_CHARACTERS:,} characters")
                self.characters += len(line)
                yield line


def explore(source: Source) -> Findings:
    """Tell delimiter, header, rows and columns.

    :raises Unreadable: it is empty, has no delimiter, or a line too long to be a row.
    """
    csv.field_size_limit(CELL_CHARACTERS)
    sample = _sample(source)
    table = _Table(delimiter=_delimiter(sample, source.suffix))
    lines = _Lines(source)
    try:
        _read(table, lines)
    except (csv.Error, Unreadable) as error:
        if not table.rows:
            raise Unreadable(f"not a table: {error}") from None
        table.problem = f"It cannot be read after row {table.rows:,}: {shown(str(error))}"
    return Findings(lines=_told(table), covered=_covered(table, lines))


def _sample(source: Source) -> list[str]:
    sample = [line + "\n" for line, _ in zip(source.lines(), range(_SAMPLE_LINES), strict=False) if line.strip()]
    if not sample:
        raise Unreadable("not a table: it is empty")
    return sample


def _delimiter(sample: list[str], suffix: str) -> str:
    """The delimiter that splits the most lines alike, into most cells."""
    order = ["\t", ",", ";", "|"] if suffix in (".tsv", ".tab") else list(DELIMITERS)
    scores = {delimiter: _score(sample, delimiter) for delimiter in order}
    best = max(order, key=lambda delimiter: scores[delimiter])
    if scores[best] == (0, 0):
        return order[0]
    return best


def _score(sample: list[str], delimiter: str) -> tuple[float, int]:
    try:
        widths = Counter(len(row) for row in csv.reader(sample, delimiter=delimiter) if row)
    except csv.Error:
        return (0, 0)
    width, rows = max(widths.items(), key=lambda pair: (pair[1], pair[0]), default=(0, 0))
    return (0, 0) if width < 2 else (round(rows / widths.total(), 1), width)


def _read(table: _Table, lines: _Lines) -> None:
    batch: list[Sequence[str]] = []
    characters = 0
    for row in csv.reader(lines, delimiter=table.delimiter):
        if not row:
            continue
        if lines.characters > MOST_CHARACTERS:
            table.rows += 1
            if lines.characters > MOST_COUNTED:
                break
            continue
        batch.append(row)
        if len(batch) == _BATCH_ROWS or lines.characters - characters > _BATCH_CHARACTERS:
            _take(table, batch)
            batch, characters = [], lines.characters
    _take(table, batch)


def _take(table: _Table, batch: list[Sequence[str]]) -> None:
    """Look into a batch of rows; the first one of all may be the header."""
    if not batch:
        return
    if not table.columns:
        width = Counter(map(len, batch)).most_common(1)[0][0]
        table.columns = [Column() for _ in range(min(width, MOST_COLUMNS))]
        table.header = list(batch[0]) if _is_header(batch) else []
        batch = batch[1:] if table.header else batch
        table.widths[width] = 0
    width = next(iter(table.widths))
    table.widths[width] += len(batch)
    for number, row in enumerate(batch, start=table.rows + 1):
        if len(row) != width:
            table.ragged += 1
            table.first_ragged = table.first_ragged or number
            table.widths[len(row) if len(table.widths) < 20 else 0] += 1
    for position, column in enumerate(table.columns):
        column.saw([row[position] for row in batch if position < len(row)])
    table.rows += len(batch)
    table.read_rows = table.rows


def _is_header(batch: list[Sequence[str]]) -> bool:
    """Whether the first row names columns: different texts, which their columns do not hold again."""
    first, rest = batch[0], batch[1 : _SAMPLE_LINES + 1]
    names = [name.strip() for name in first]
    if len(set(names)) < len(names) or sum(not name for name in names) > 1 or any(map(is_typed, names)):
        return False
    return all(
        name not in {row[position] for row in rest if position < len(row)} for position, name in enumerate(first)
    )


def _told(table: _Table) -> list[str]:
    width = next(iter(table.widths), 0)
    header = "with a header" if table.header else "without a header"
    between = DELIMITERS[table.delimiter]
    lines = [f"{counted(table.rows, 'row')}, {counted(width, 'column')}, {header}, {between} between cells"]
    if table.problem:
        lines.append(table.problem)
    if table.ragged:
        others = listed(f"{cells}" for cells in list(table.widths)[1:] if cells)
        lines.append(
            f"{counted(table.ragged, 'row')} of another width ({others}); the first is row {table.first_ragged:,}"
        )
    for position, column in enumerate(table.columns):
        name = table.header[position] if position < len(table.header) else ""
        lines.append(f"{shown(name, characters=60) or f'column {position + 1}'}: {column.told()}")
    if width > MOST_COLUMNS:
        lines.append(f"{width - MOST_COLUMNS:,} more columns are not looked into")
    return lines


def _covered(table: _Table, lines: _Lines) -> str:
    if table.problem:
        return f"the first {table.rows:,} rows"
    if lines.characters > MOST_COUNTED:
        return f"the columns of the first {table.read_rows:,} rows; {table.rows:,} rows were counted, more follow"
    if lines.characters > MOST_CHARACTERS:
        return f"the columns of the first {table.read_rows:,} rows; the others were counted"
    return "all of it"
