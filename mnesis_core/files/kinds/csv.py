"""Tables as text, with commas or tabs or others: how many rows, and what each column holds. Read a batch at a time."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

# Different values counted in one column.
MOST_DIFFERENT = 1_000
VALUE_CHARACTERS = 60
FEW_VALUES = 8
MISSING = frozenset(("", "NA", "N/A", "NULL", "null", "NaN", "nan", "None", "\\N"))
BOOLEANS = frozenset(
    ("true", "false", "True", "False", "TRUE", "FALSE", "yes", "no", "Yes", "No", "YES", "NO", "t", "f")
)
_NO_NUMBER = re.compile(r"[_a-df-zA-DF-Z]")
_DAY = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?:[ T]\d{1,2}:\d\d(?::\d\d)?)?")


class Column:
    def __init__(self) -> None:
        self.filled = 0
        self.missing = 0
        self.lowest: Any = None
        self.highest: Any = None
        self.longest = 0
        # Holds one value more than ``MOST_DIFFERENT`` if there are more.
        self.different: dict[str, int] = {}
        self._readers = list(_READERS)

    @property
    def type(self) -> str:
        """Return the narrowest type that all values have."""
        if not self.filled:
            return "empty"
        return self._readers[0][0] if self._readers else "text"

    def saw(self, values: Sequence[str]) -> None:
        present = [value for value in values if value not in MISSING]
        self.missing += len(values) - len(present)
        if not present:
            return
        self.filled += len(present)
        self.longest = max(self.longest, max(map(len, present)))
        self._count(present)
        while self._readers and not self._read(present):
            if self._readers.pop(0)[0] != "integer":
                # An integer is a decimal too: what they span goes on.
                self.lowest = self.highest = None

    def _count(self, present: list[str]) -> None:
        if len(self.different) > MOST_DIFFERENT:
            return
        for value in present:
            cut = value[:VALUE_CHARACTERS]
            self.different[cut] = self.different.get(cut, 0) + 1
            if len(self.different) > MOST_DIFFERENT:
                return

    def _read(self, present: list[str]) -> bool:
        """Return whether the values of this batch and of earlier ones are of the first type left."""
        read = self._readers[0][1](present)
        if read is None:
            return False
        if read and self.filled > len(present) and self.lowest is None:
            # A narrower type held the earlier values, and their range went with it.
            earlier = self._readers[0][1](list(self.different))
            if earlier is None:
                return False
            read = [*read, *earlier]
        if read:
            self.lowest = min(read) if self.lowest is None else min(self.lowest, min(read))
            self.highest = max(read) if self.highest is None else max(self.highest, max(read))
        return True

    def description(self) -> str:
        facts = [fact for fact in (self._span(), self._variety()) if fact]
        if self.missing and self.filled:
            facts.append(f"{self.missing:,} empty")
        return ", ".join([self.type, *facts])

    def _span(self) -> str:
        if self.lowest is None:
            return ""
        if isinstance(self.lowest, datetime):
            return f"{_day(self.lowest)} to {_day(self.highest)}"
        return f"{self.lowest:.12g} to {self.highest:.12g}"

    def _variety(self) -> str:
        if not self.filled:
            return ""
        count = len(self.different)
        if count > MOST_DIFFERENT:
            most = (
                f", up to {self.longest:,} characters"
                if self.type == "text" and self.longest > VALUE_CHARACTERS
                else ""
            )
            return f"over {MOST_DIFFERENT:,} different values{most}" if self.lowest is None else ""
        if count <= FEW_VALUES and count * 2 <= self.filled:
            frequent = sorted(self.different.items(), key=lambda pair: -pair[1])
            return "values " + "; ".join(f"{shown(value, characters=30)} ×{times:,}" for value, times in frequent)
        example = shown(next(iter(self.different)), characters=40)
        return f"{count:,} different" + (f" as {example}" if self.lowest is None else "")


def _day(moment: datetime) -> str:
    return moment.isoformat(" ").removesuffix(" 00:00:00")


def _booleans(values: list[str]) -> list[Any] | None:
    return [] if BOOLEANS.issuperset(values) else None


def _integers(values: list[str]) -> list[Any] | None:
    if _NO_NUMBER.search("".join(values)):
        return None
    return _each(int, values)


def _decimals(values: list[str]) -> list[Any] | None:
    if _NO_NUMBER.search("".join(values)):
        return None
    return _each(float, values)


def _moments(values: list[str]) -> list[Any] | None:
    read = _each(datetime.fromisoformat, values)
    return None if read is None else [moment.replace(tzinfo=None) for moment in read]


def _days(values: list[str]) -> list[Any] | None:
    return [] if all(map(_DAY.fullmatch, values)) else None


def _each(read: Callable[[str], Any], values: list[str]) -> list[Any] | None:
    try:
        return list(map(read, values))
    except ValueError:
        return None


# The narrowest first.
_READERS: tuple[tuple[str, Callable[[list[str]], list[Any] | None]], ...] = (
    ("boolean", _booleans),
    ("integer", _integers),
    ("decimal", _decimals),
    ("date", _moments),
    ("date", _days),
)


def is_typed(value: str) -> bool:
    """Return whether a value is a number, date or truth value, which a column's name is not."""
    return any(read([value]) is not None for _, read in _READERS)


DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
LINE_CHARACTERS = 4_194_304
CELL_CHARACTERS = 2_097_152
MOST_COLUMNS = 200
# Rows beyond these characters are counted, but their columns are not examined.
MOST_CHARACTERS = 268_435_456
MOST_COUNTED = 1_073_741_824
_SAMPLE_LINES = 50
_BATCH_ROWS = 2_000
_BATCH_CHARACTERS = 1_048_576


@dataclass(slots=True)
class _Table:
    delimiter: str
    header: list[str] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    rows: int = 0
    widths: Counter[int] = field(default_factory=Counter)
    ragged: int = 0
    first_ragged: int = 0
    read_rows: int = 0
    problem: str = ""


class _Lines:
    """The lines of a file with their ends, counting the characters handed out."""

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
    csv.field_size_limit(CELL_CHARACTERS)
    sample = _sample(source)
    # The delimiter that splits the most lines alike, into most cells, wins.
    order = ["\t", ",", ";", "|"] if source.suffix in (".tsv", ".tab") else list(DELIMITERS)
    scores = {delimiter: _score(sample, delimiter) for delimiter in order}
    best = max(order, key=lambda delimiter: scores[delimiter])
    table = _Table(delimiter=order[0] if scores[best] == (0, 0) else best)
    lines = _Lines(source)
    try:
        _read(table, lines)
    except (csv.Error, Unreadable) as error:
        if not table.rows:
            raise Unreadable(f"not a table: {error}") from None
        table.problem = f"It cannot be read after row {table.rows:,}: {shown(str(error))}"
    return Findings(lines=_lines(table), covered=_covered(table, lines))


def _sample(source: Source) -> list[str]:
    sample = [line + "\n" for line, _ in zip(source.lines(), range(_SAMPLE_LINES), strict=False) if line.strip()]
    if not sample:
        raise Unreadable("not a table: it is empty")
    return sample


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
    # A header has different texts that its columns do not hold again.
    first, rest = batch[0], batch[1 : _SAMPLE_LINES + 1]
    names = [name.strip() for name in first]
    if len(set(names)) < len(names) or sum(not name for name in names) > 1 or any(map(is_typed, names)):
        return False
    return all(
        name not in {row[position] for row in rest if position < len(row)} for position, name in enumerate(first)
    )


def _lines(table: _Table) -> list[str]:
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
        lines.append(f"{shown(name, characters=60) or f'column {position + 1}'}: {column.description()}")
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
