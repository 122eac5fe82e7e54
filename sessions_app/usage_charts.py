"""Charts of what was spent: a bar for each day, divided by model; with the same in words and as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from sessions_app.queries.spent import Taken, TakenOnDay
from sessions_app.rendering import format_count, format_money, round_up, show_invisible

WIDTH, HEIGHT = 1_000, 100
"""Of the drawing, in its own units: it is stretched over the place it has."""
GAP = 0.2
"""Of a bar's place stays empty."""
MOST_DAYS = 31
"""A longer stretch is drawn by weeks."""
MOST_SERIES = 5
"""Models with a colour of their own; the others are one more."""
OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One model's part of a bar."""

    series: int
    """From 1: its colour."""
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What was spent in one stretch of days."""

    first: date
    last: date
    x: float
    width: float
    segments: tuple[Segment, ...]
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stretch in the table."""

    name: str
    cells: tuple[str, ...]
    """By model, in the order of ``Chart.series``."""
    total: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One measure over the days."""

    name: str
    sentence: str
    series: tuple[str, ...]
    """Names of models, ready to be shown."""
    bars: tuple[Bar, ...]
    highest: str
    middle: str
    times: tuple[str, ...]
    rows: tuple[Row, ...]
    """The newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    name: str
    of: Callable[[Taken], int]
    say: Callable[[int], str]


def _exact(count: int) -> str:
    return f"{count:,}"


TOKENS = _Measure(name="Tokens", of=lambda taken: taken.tokens, say=_exact)
MONEY = _Measure(name="Cost", of=lambda taken: taken.cost_micros, say=format_money)


def draw_tokens(taken: Sequence[TakenOnDay], *, first: date, last: date) -> Chart:
    """The tokens of each day."""
    return _draw(TOKENS, taken, first, last)


def draw_money(taken: Sequence[TakenOnDay], *, first: date, last: date) -> Chart:
    """The money of each day."""
    return _draw(MONEY, taken, first, last)


def _draw(measure: _Measure, taken: Sequence[TakenOnDay], first: date, last: date) -> Chart:
    models = _largest(taken)
    series = [*models[:MOST_SERIES], *([OTHERS] if len(models) > MOST_SERIES else [])]
    stretches = _stretches(first, last)
    sums = _sums(measure, taken, models[:MOST_SERIES], stretches)
    totals = [sum(parts) for parts in sums]
    most = round_up(max(totals, default=0)) or 1
    names = tuple(map(show_invisible, series))
    bars = [
        _bar(measure, names, index, stretch, parts, len(stretches), most)
        for index, (stretch, parts) in enumerate(zip(stretches, sums, strict=True))
    ]
    rows = [
        Row(name=_name(stretch), cells=tuple(map(measure.say, parts)), total=measure.say(sum(parts)))
        for stretch, parts in zip(stretches, sums, strict=True)
    ]
    say_short = format_count if measure is TOKENS else measure.say
    return Chart(
        name=measure.name,
        sentence=_sentence(measure, stretches, totals),
        series=names,
        bars=tuple(bars),
        highest=say_short(round(most)),
        middle=say_short(round(most / 2)),
        times=tuple(f"{day:%-d %b}" for day in dict.fromkeys((first, first + (last - first) / 2, last))),
        rows=tuple(reversed(rows)),
    )


def _largest(taken: Sequence[TakenOnDay]) -> list[str]:
    """The models by their tokens, the largest first: in every chart a model has the same colour."""
    sums: dict[str, int] = {}
    for each in taken:
        sums[each.model] = sums.get(each.model, 0) + each.taken.tokens
    return sorted(sums, key=lambda model: (-sums[model], model))


def _stretches(first: date, last: date) -> list[tuple[date, date]]:
    """Days, or weeks that end with the last day."""
    days = (last - first).days + 1
    length = 1 if days <= MOST_DAYS else 7
    ends = [last - timedelta(days=back) for back in range(0, days, length)]
    return [(max(first, end - timedelta(days=length - 1)), end) for end in reversed(ends)]


def _sums(
    measure: _Measure, taken: Sequence[TakenOnDay], models: Sequence[str], stretches: Sequence[tuple[date, date]]
) -> list[list[int]]:
    """By stretch what each series spent; that of the others comes last, where there are any."""
    place = {day: index for index, (first, last) in enumerate(stretches) for day in _days(first, last)}
    column = {model: index for index, model in enumerate(models)}
    has_others = any(each.model not in column for each in taken)
    sums = [[0] * (len(models) + has_others) for _ in stretches]
    for each in taken:
        if amount := measure.of(each.taken):
            sums[place[each.day]][column.get(each.model, -1)] += amount
    return sums


def _days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _bar(
    measure: _Measure,
    names: Sequence[str],
    index: int,
    stretch: tuple[date, date],
    parts: Sequence[int],
    count: int,
    most: float,
) -> Bar:
    place, top, segments = WIDTH / count, float(HEIGHT), []
    for series, amount in enumerate(parts, start=1):
        height = amount * HEIGHT / most
        top -= height
        if amount:
            segments.append(Segment(series=series, y=round(top, 2), height=round(height, 2)))
    each = [f"{name} {measure.say(amount)}" for name, amount in zip(names, parts, strict=True) if amount]
    unit = " tokens" if measure is TOKENS else ""
    detail = f": {', '.join(each)}" if len(each) > 1 else ""
    return Bar(
        first=stretch[0],
        last=stretch[1],
        x=round(place * (index + GAP / 2), 2),
        width=round(place * (1 - GAP), 2),
        segments=tuple(segments),
        title=f"{_name(stretch)}: {measure.say(sum(parts))}{unit}{detail}",
    )


def _name(stretch: tuple[date, date]) -> str:
    first, last = stretch
    return f"{last:%-d %b %Y}" if first == last else f"{first:%-d %b} to {last:%-d %b %Y}"


def _sentence(measure: _Measure, stretches: Sequence[tuple[date, date]], totals: Sequence[int]) -> str:
    total, most = sum(totals), max(totals, default=0)
    if not total:
        return "None."
    where = _name(stretches[totals.index(most)])
    when = where if stretches[0][0] == stretches[0][1] else f"the week {where}"
    return (
        f"{measure.say(total)} in all; the most, {measure.say(most)}, on {when}."
        if len(totals) > 1
        else f"{measure.say(total)} in all."
    )
