"""Charts that the server draws as SVG, each with the same in words and as the rows of a table.

A drawing is ``WIDTH`` by ``HEIGHT`` in its own units: it is stretched over the place it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from mnesis_core.maps.throughput import Interval
from sessions_app.pages.markdown import format_count, format_duration, format_money, round_up, show_invisible
from sessions_app.usage.spending_queries import TakenOnDay

WIDTH, HEIGHT = 1_000, 100
DAY_GAP, RUN_GAP = 0.2, 0.15
"""The share of a bar's place that stays empty."""
MOST_DAYS = 31
"""Longer ranges are drawn by week."""
MOST_SERIES = 5
"""Models with a colour of their own; the others share one more."""
MOST_ROWS = 12
UNITS = ((1, "s", "second"), (60, "min", "minute"), (3_600, "h", "hour"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    name: str
    """Its CSS class."""
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Segments on top of each other, with the days they stand for."""

    x: float
    width: float
    segments: list[Segment]
    title: str = ""
    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One drawing: bars, or a curve."""

    name: str
    sentence: str
    highest: str
    middle: str
    times: list[str]
    bars: Sequence[Bar] = ()
    series: Sequence[str] = ()
    """Names of a bar's segments, ready to be shown."""
    points: str = ""
    """The curve, as SVG points."""
    rows: Sequence[Sequence[str]] = ()


def _bar(index: int, count: int, gap: float, heights: dict[str, float]) -> Bar:
    top, segments = float(HEIGHT), []
    for name, height in heights.items():
        top -= height
        segments.append(Segment(name=name, y=round(top, 2), height=round(height, 2)))
    place = WIDTH / count
    return Bar(x=round(place * (index + gap / 2), 2), width=round(place * (1 - gap), 2), segments=segments)


def draw_days(taken: Sequence[TakenOnDay], measure: str, *, first: date, last: date) -> Chart:
    """Draw the ``Tokens`` or the ``Cost`` of each day, or of each week where there are many days, divided by model."""
    is_money = measure == "Cost"
    say: Callable[[int], str] = format_money if is_money else "{:,}".format
    models = _largest_models(taken)
    has_others = len(models) > MOST_SERIES
    series = [show_invisible(model) for model in models[:MOST_SERIES]] + ["others"] * has_others
    stretches = _days_or_weeks(first, last)
    column = {model: min(index, MOST_SERIES) for index, model in enumerate(models)}
    place = {day: index for index, (begin, end) in enumerate(stretches) for day in _days(begin, end)}
    sums = [[0] * len(series) for _ in stretches]
    for each in taken:
        amount = each.taken.cost_micros if is_money else each.taken.tokens
        sums[place[each.day]][column[each.model]] += amount
    totals = [sum(parts) for parts in sums]
    most = round_up(max(totals, default=0)) or 1
    bars = []
    for index, ((begin, end), parts) in enumerate(zip(stretches, sums, strict=True)):
        heights = {f"series-{number}": amount * HEIGHT / most for number, amount in enumerate(parts, start=1) if amount}
        each_said = [f"{name} {say(amount)}" for name, amount in zip(series, parts, strict=True) if amount]
        detail = f": {', '.join(each_said)}" if len(each_said) > 1 else ""
        title = f"{_name(begin, end)}: {say(sum(parts))}{'' if is_money else ' tokens'}{detail}"
        drawn = _bar(index, len(stretches), DAY_GAP, heights)
        bars.append(Bar(x=drawn.x, width=drawn.width, segments=drawn.segments, title=title, first=begin, last=end))
    say_short = format_money if is_money else format_count
    rows = [
        (_name(*stretch), *map(say, parts), say(sum(parts))) for stretch, parts in zip(stretches, sums, strict=True)
    ]
    return Chart(
        name=measure,
        sentence=_sum_up(stretches, totals, say),
        series=series,
        bars=bars,
        highest=say_short(round(most)),
        middle=say_short(round(most / 2)),
        times=[f"{day:%-d %b}" for day in dict.fromkeys((first, first + (last - first) / 2, last))],
        rows=rows[::-1],
    )


def _largest_models(taken: Sequence[TakenOnDay]) -> list[str]:
    """Return the models by their tokens, the largest first: a model has the same colour in every chart."""
    sums: dict[str, int] = {}
    for each in taken:
        sums[each.model] = sums.get(each.model, 0) + each.taken.tokens
    return sorted(sums, key=lambda model: (-sums[model], model))


def _days_or_weeks(first: date, last: date) -> list[tuple[date, date]]:
    """Return days, or weeks of which the last one ends with the last day."""
    days = (last - first).days + 1
    length = 1 if days <= MOST_DAYS else 7
    ends = [last - timedelta(days=back) for back in range(0, days, length)]
    return [(max(first, end - timedelta(days=length - 1)), end) for end in reversed(ends)]


def _days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _name(first: date, last: date) -> str:
    return f"{last:%-d %b %Y}" if first == last else f"{first:%-d %b} to {last:%-d %b %Y}"


def _sum_up(stretches: Sequence[tuple[date, date]], totals: Sequence[int], say: Callable[[int], str]) -> str:
    total, most = sum(totals), max(totals, default=0)
    if not total:
        return "None."
    if len(totals) == 1:
        return f"{say(total)} in all."
    week = "" if stretches[0][0] == stretches[0][1] else "the week "
    return f"{say(total)} in all; the most, {say(most)}, on {week}{_name(*stretches[totals.index(most)])}."


def draw_run(stretches: Sequence[Interval]) -> tuple[Chart, Chart] | None:
    """Draw how many items of a run ended when, and what had been spent by then; ``None`` before any has ended.

    The rows are those of both: the time since the run began, the rate, the items that failed, and the sum spent.
    """
    if not stretches:
        return None
    whole, count = stretches[-1].ends, len(stretches)
    mean = sum(map(_items, stretches)) / whole
    seconds, unit, unit_word = next((unit for unit in UNITS if mean * unit[0] >= 1), UNITS[-1])
    rates = [_items(stretch) * seconds / (stretch.ends - stretch.begins) for stretch in stretches]
    fastest = round_up(max(rates))
    is_priced = stretches[-1].cost_micros > 0
    sums = [stretch.cost_micros if is_priced else stretch.tokens for stretch in stretches]
    most = round_up(sums[-1])
    times = ["0", format_duration(whole / 2), format_duration(whole)]

    def say(amount: float) -> str:
        return format_money(round(amount)) if is_priced else format_count(round(amount))

    bars = []
    for index, stretch in enumerate(stretches):
        scale = HEIGHT * seconds / (stretch.ends - stretch.begins) / fastest
        heights = {"item-completed": stretch.completed * scale, "item-failed": stretch.failed * scale}
        bars.append(_bar(index, count, RUN_GAP, heights))
    points = [(0.0, 0.0), *((stretch.ends, total) for stretch, total in zip(stretches, sums, strict=True))]
    rows = _rows_of_run(stretches, seconds, unit, [say(total) for total in sums])
    items = sum(map(_items, stretches))
    throughput = Chart(
        name="Throughput",
        sentence=f"{_say_number(items)} item{'' if items == 1 else 's'} ended in {format_duration(whole)}: "
        f"{_say_number(items * seconds / whole)} a {unit_word} on average, {_say_number(max(rates))} at the most.",
        bars=bars,
        highest=f"{_say_number(fastest)} / {unit}",
        middle=_say_number(fastest / 2),
        times=times,
        rows=rows,
    )
    spending = Chart(
        name="Cost" if is_priced else "Tokens",
        sentence=f"{say(sums[-1])}{'' if is_priced else ' tokens'} after {format_duration(whole)}, "
        f"{say(sums[(count - 1) // 2])} after half of the time.",
        points=" ".join(f"{WIDTH * end / whole:.1f},{HEIGHT - HEIGHT * total / most:.1f}" for end, total in points),
        highest=say(most),
        middle=say(most / 2),
        times=times,
        rows=rows,
    )
    return throughput, spending


def _rows_of_run(
    stretches: Sequence[Interval], seconds: float, unit: str, spent: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    """Return at most ``MOST_ROWS`` rows, each of as many intervals as it takes."""
    step = -(-len(stretches) // MOST_ROWS)
    rows = []
    for first in range(0, len(stretches), step):
        group = stretches[first : first + step]
        rate = sum(map(_items, group)) * seconds / (group[-1].ends - group[0].begins)
        failed = _say_number(sum(stretch.failed for stretch in group))
        spent_by_then = spent[first + len(group) - 1]
        rows.append((format_duration(group[-1].ends), f"{_say_number(rate)} / {unit}", failed, spent_by_then))
    return rows


def _items(stretch: Interval) -> float:
    return stretch.completed + stretch.failed


def _say_number(value: float) -> str:
    if value < 10 and value != round(value):
        return f"{value:.1f}".removesuffix(".0")
    return format_count(round(value))
