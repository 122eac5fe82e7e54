"""The scrub bar: the occupancy of the window over a session's life as a drawing, in words, and as places to go to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compaction_app.inspector.occupancy import Column, Mark, Occupancy
from sessions_app.rendering import format_count, format_counted

WIDTH = 1_000
HEIGHT = 100
"""Of the drawing, in its own units: it is stretched over the place it has."""
HEADROOM = 1.08
"""Of the largest number drawn, so that nothing touches the top."""
WIDEST_GAP = 0.2
"""Of a column's place stays empty, where columns are wide."""
GAPS_UP_TO = 120
"""Columns; more stand side by side without gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A level that is drawn across."""

    name: str
    label: str
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnMark:
    """Compactions between two columns."""

    x: float
    level: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubBar:
    """The drawing with all that is said of it."""

    layers: list[tuple[str, str, str]]
    """(name, label, path) of each, the lowest first."""
    lines: list[Line]
    marks: list[DrawnMark]
    place: int
    """The column, counted from 1, that is shown now."""
    count: int
    place_label: str
    column_width: float
    cursor_x: float
    cursor_width: float
    places: list[list[int]]
    """(number of the call, tokens, percent of usable) of each column, for the script."""
    sentence: str
    usable: str

    @property
    def has_columns(self) -> bool:
        """Whether there is anywhere to go."""
        return self.count > 1

    @property
    def has_cuts(self) -> bool:
        """Whether a compaction cut by rule."""
        return any(mark.level == 3 for mark in self.marks)


LAYERS: Sequence[tuple[str, str, Callable[[Column], tuple[int, int]]]] = (
    ("system", "System and tools", lambda column: (0, column.opening)),
    ("summaries", "Summaries", lambda column: (column.opening, column.opening + column.summaries)),
    ("messages", "Messages", lambda column: (column.opening + column.summaries, column.used)),
)
"""From where to where each reaches, in tokens."""


def draw(occupancy: Occupancy, *, place: int | None = None, shown: tuple[int, int] | None = None) -> ScrubBar:
    """The bar with its cursor at the column ``place``, counted from 1, by default the last one.

    ``shown`` is (number, tokens) of the call on the page, which need not be the one that its column shows.
    """
    columns, budget = occupancy.columns, occupancy.budget
    place = min(max(place or len(columns), 1), len(columns))
    scale = HEIGHT / (HEADROOM * max(budget.usable, *(column.used for column in columns), 1))
    width = WIDTH / len(columns)
    places = [[column.number, column.used, _percent(column.used, budget.usable)] for column in columns]
    here = places[place - 1] if shown is None else [*shown, _percent(shown[1], budget.usable)]
    return ScrubBar(
        layers=[(name, label, _path(map(reach, columns), width, scale)) for name, label, reach in LAYERS],
        lines=[
            Line(name="soft", label=f"soft threshold, {format_count(budget.soft)} tokens", y=_y(budget.soft, scale)),
            Line(name="hard", label=f"usable window, {format_count(budget.usable)} tokens", y=_y(budget.usable, scale)),
        ],
        marks=[_mark(mark, width) for mark in occupancy.marks],
        place=place,
        count=len(columns),
        place_label=label_of(*here),
        column_width=round(width, 4),
        cursor_x=round((place - 1) * width, 2),
        cursor_width=round(max(width, 2.0), 2),
        places=places,
        sentence=_sentence(occupancy),
        usable=f"{budget.usable:,}",
    )


def label_of(number: int, tokens: int, percent: int) -> str:
    """One column in words; ``calls.js`` says it the same way."""
    return f"Call {number:,}: {tokens:,} tokens, {percent} % of usable"


def _path(reaches: Iterable[tuple[int, int]], width: float, scale: float) -> str:
    gap = width * WIDEST_GAP if width * GAPS_UP_TO >= WIDTH else 0.0
    steps = []
    for index, (low, high) in enumerate(reaches):
        if high > low:
            x, bar = index * width + gap / 2, width - gap
            steps.append(f"M{x:.2f} {_y(low, scale):.2f}h{bar:.2f}V{_y(high, scale):.2f}h{-bar:.2f}z")
    return "".join(steps)


def _y(tokens: int, scale: float) -> float:
    return round(HEIGHT - tokens * scale, 2)


def _percent(tokens: int, usable: int) -> int:
    return round(100 * tokens / max(usable, 1))


def _mark(mark: Mark, width: float) -> DrawnMark:
    name = "Compaction" if mark.count == 1 else f"{mark.count} compactions"
    size = f"{format_count(mark.tokens_before)} → {format_count(mark.tokens_after)} tokens"
    return DrawnMark(x=round(mark.before * width, 2), level=mark.level, label=f"{name}: {size}")


def _sentence(occupancy: Occupancy) -> str:
    fullest = max(occupancy.columns, key=lambda column: column.used)
    compactions = sum(mark.count for mark in occupancy.marks)
    said = label_of(fullest.number, fullest.used, _percent(fullest.used, occupancy.budget.usable))
    each = round(occupancy.calls / len(occupancy.columns))
    return (
        f"{format_counted(occupancy.calls, 'call')} of turns, {format_counted(compactions, 'compaction')}. "
        f"The fullest: {said[0].lower()}{said[1:]}."
        + (f" Each column shows the fullest of about {each:,} calls." if each > 1 else "")
    )
