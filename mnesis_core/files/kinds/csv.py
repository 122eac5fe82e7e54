"""Tables as text, with commas or tabs or others: how many rows, and what each column holds. Read a batch at a time."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
LINE_CHARACTERS = 4_194_304
CELL_CHARACTERS = 2_097_152
MOST_COLUMNS = 200
MOST_CHARACTERS = 268_435_456  # Rows beyond these characters are counted, but their columns are not examined.
MOST_COUNTED = 1_073_741_824
MOST_DIFFERENT = 1_000  # Different values counted in one column.
VALUE_CHARACTERS = 60
FEW_VALUES = 8
MISSING = frozenset(("", "NA", "N/A", "NULL", "null", "NaN", "nan", "None", "\\N"))
BOOLEANS = frozenset(
    ("true", "false", "True", "False", "TRUE", "FALSE", "yes", "no", "Yes", "No", "YES", "NO", "t", "f")
)
_SAMPLE_LINES = 50
_BATCH_ROWS = 2_000
_BATCH_CHARACTERS = 1_048_576
_NO_NUMBER = re.compile(r"[_a-df-zA-DF-Z]")
_DAY = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?:[ T]\d{1,2}:\d\d(?::\d\d)?)?")


def _each(read: Callable[[str], Any], values: list[str]) -> list[Any] | None:
    try:
        return list(map(read, values))
    except ValueError:
        return None


def _numbers(read: Callable[[str], Any], values: list[str]) -> list[Any] | None:
    return None if _NO_NUMBER.search("".join(values)) else _each(read, values)


# Types, the narrowest first. Each reader returns None if not all values are of its type, and nothing if they have no range.
_READERS: tuple[tuple[str, Callable[[list[str]], list[Any] | None]], ...] = (
    ("boolean", lambda values: [] if BOOLEANS.issuperset(values) else None),
    ("integer", partial(_numbers, int)),
    ("decimal", partial(_numbers, float)),
    ("date", partial(_each, lambda value: datetime.fromisoformat(value).replace(tzinfo=None))),
    ("date", lambda values: [] if all(map(_DAY.fullmatch, values)) else None),
)


class Column:
    def __init__(self) -> None:
        self.filled = 0
        self.missing = 0
        self.lowest: Any = None
        self.highest: Any = None
        self.longest = 0
        # How often each value was there. Holds one more than ``MOST_DIFFERENT`` if there are more. A ``Counter`` is slower.
        self.different: dict[str, int] = {}
        self._readers = list(_READERS)  # The first is of the narrowest type that all values have.

    def saw(self, values: Sequence[str]) -> None:
        present = [value for value in values if value not in MISSING]
        self.missing += len(values) - len(present)
        if not present:
            return
        self.filled += len(present)
        self.longest = max(self.longest, max(map(len, present)))
        if len(self.different) <= MOST_DIFFERENT:
            different = self.different
            for value in present:
                value = value[:VALUE_CHARACTERS]
                different[value] = different.get(value, 0) + 1
                if len(different) > MOST_DIFFERENT:
                    break
        while self._readers and not self._read(present):
            # An integer is a decimal too: what they span goes on.
            if self._readers.pop(0)[0] != "integer":
                self.lowest = self.highest = None

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
        if not self.filled:
            return "empty"
        type_ = self._readers[0][0] if self._readers else "text"
        has_range, different = self.lowest is not None, len(self.different)
        facts = [type_, f"{_bound(self.lowest)} to {_bound(self.highest)}"] if has_range else [type_]
        if different <= FEW_VALUES and different * 2 <= self.filled:
            by_times = sorted(self.different.items(), key=itemgetter(1), reverse=True)
            frequent = (f"{shown(value, characters=30)} ×{times:,}" for value, times in by_times)
            facts.append(f"values {'; '.join(frequent)}")
        elif different <= MOST_DIFFERENT:
            example = "" if has_range else f" as {shown(next(iter(self.different)), characters=40)}"
            facts.append(f"{different:,} different{example}")
        elif not has_range:
            is_long = type_ == "text" and self.longest > VALUE_CHARACTERS
            most = f", up to {self.longest:,} characters" if is_long else ""
            facts.append(f"over {MOST_DIFFERENT:,} different values{most}")
        if self.missing:
            facts.append(f"{self.missing:,} empty")
        return ", ".join(facts)


def _bound(value: Any) -> str:
    return value.isoformat(" ").removesuffix(" 00:00:00") if isinstance(value, datetime) else f"{value:.12g}"


@dataclass(slots=True)
class _Table:
    delimiter: str
    characters: int = 0
    header: list[str] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    rows: int = 0
    widths: Counter[int] = field(default_factory=Counter)
    ragged: int = 0
    first_ragged: int = 0
    read_rows: int = 0
    problem: str = ""

    def lines_of(self, source: Source) -> Iterator[str]:
        """Yield the lines of a file with their ends, and count their characters."""
        with source.path.open(encoding=source.encoding, errors="replace", newline="") as file:
            while line := file.readline(LINE_CHARACTERS):
                if len(line) == LINE_CHARACTERS and not line.endswith("\n"):
                    raise Unreadable(
                        fill(
                            gettext_noop("it has a line of more than %(most)s characters"),
                            {"most": LINE_CHARACTERS},
                        )
                    )
                self.characters += len(line)
                yield line


def explore(source: Source) -> Findings:
    csv.field_size_limit(CELL_CHARACTERS)
    sample = [line + "\n" for line in islice(source.lines(), _SAMPLE_LINES) if line.strip()]
    if not sample:
        raise Unreadable(gettext_noop("not a table: it is empty"))
    # The delimiter that splits the most lines alike, into most cells, wins.
    order = ["\t", ",", ";", "|"] if source.suffix in (".tsv", ".tab") else list(DELIMITERS)
    scores = {delimiter: _score(sample, delimiter) for delimiter in order}
    best = max(order, key=lambda delimiter: scores[delimiter])
    table = _Table(delimiter=order[0] if scores[best] == (0, 0) else best)
    try:
        _read(table, csv.reader(table.lines_of(source), delimiter=table.delimiter))
    except (csv.Error, Unreadable) as error:
        if not table.rows:
            raise Unreadable(fill(gettext_noop("not a table: %(reason)s"), {"reason": str(error)})) from None
        table.problem = f"It cannot be read after row {table.rows:,}: {shown(str(error))}"
    covered = "all of it"
    if table.problem:
        covered = f"the first {table.rows:,} rows"
    elif table.characters > MOST_CHARACTERS:
        is_cut = table.characters > MOST_COUNTED
        others = f"{table.rows:,} rows were counted, more follow" if is_cut else "the others were counted"
        covered = f"the columns of the first {table.read_rows:,} rows; {others}"
    return Findings(lines=_lines(table), covered=covered)


def _score(sample: list[str], delimiter: str) -> tuple[float, int]:
    try:
        widths = Counter(len(row) for row in csv.reader(sample, delimiter=delimiter) if row)
    except csv.Error:
        return (0, 0)
    width, rows = max(widths.items(), key=lambda pair: (pair[1], pair[0]), default=(0, 0))
    return (0, 0) if width < 2 else (round(rows / widths.total(), 1), width)


def _read(table: _Table, rows: Iterable[list[str]]) -> None:
    batch: list[Sequence[str]] = []
    characters = 0
    for row in rows:
        if not row:
            continue
        if table.characters > MOST_CHARACTERS:
            table.rows += 1
            if table.characters > MOST_COUNTED:
                break
            continue
        batch.append(row)
        if len(batch) == _BATCH_ROWS or table.characters - characters > _BATCH_CHARACTERS:
            _take(table, batch)
            batch, characters = [], table.characters
    _take(table, batch)


def _take(table: _Table, batch: list[Sequence[str]]) -> None:
    if not batch:
        return
    if not table.columns:
        width = Counter(map(len, batch)).most_common(1)[0][0]
        table.columns = [Column() for _ in range(min(width, MOST_COLUMNS))]
        # A header has different texts, no numbers, dates or truth values, that its columns do not hold again.
        first, below = batch[0], batch[1 : _SAMPLE_LINES + 1]
        names = [name.strip() for name in first]
        is_header = (
            len(set(names)) == len(names)
            and sum(not name for name in names) <= 1
            and all(read([name]) is None for _, read in _READERS for name in names)
            and all(name not in {row[at] for row in below if at < len(row)} for at, name in enumerate(first))
        )
        table.header = list(first) if is_header else []
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
