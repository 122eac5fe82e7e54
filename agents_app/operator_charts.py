"""The charts of a run: how many items ended when, and what had been spent by then; with the same in words and as rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mnesis_core.operators.pace import Stretch
from sessions_app.rendering import format_count, format_duration, format_money, round_up

WIDTH = 1_000
HEIGHT = 100
"""Of the drawing, in its own units: it is stretched over the place it has."""
GAP = 0.15
"""Of a bar's place stays empty."""
ROWS = 12
"""Of the table that says the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What ended in one stretch: completed below, failed above."""

    x: float
    width: float
    y: float
    height: float
    failed_y: float
    failed_height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stretch in words."""

    until: str
    """Time since the run began."""
    rate: str
    failed: str
    spent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """Both drawings of a run."""

    bars: list[Bar]
    highest_rate: str
    middle_rate: str
    throughput: str
    """In a sentence."""
    line: str
    """Points of the curve of what was spent."""
    area: str
    measure: str
    """What was spent: ``Cost``, or ``Tokens`` where nobody knows a price."""
    highest_sum: str
    middle_sum: str
    spending: str
    """In a sentence."""
    times: list[str]
    """Below both: the beginning, the middle and the end."""
    rows: list[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    seconds: float
    name: str


def draw(stretches: Sequence[Stretch]) -> Charts | None:
    """The charts of a run; ``None`` before anything has ended."""
    if not stretches:
        return None
    unit = _unit_of(stretches)
    rates = [_rate(stretch, unit) for stretch in stretches]
    highest = round_up(max(rates))
    is_priced = stretches[-1].cost_micros > 0
    sums = [stretch.cost_micros if is_priced else stretch.tokens for stretch in stretches]
    say = _money if is_priced else _tokens
    most = round_up(sums[-1])
    points = _points(stretches, sums, most)
    return Charts(
        bars=[_bar(index, stretch, len(stretches), unit, highest) for index, stretch in enumerate(stretches)],
        highest_rate=f"{_number(highest)} / {unit.name}",
        middle_rate=_number(highest / 2),
        throughput=_throughput(stretches, rates, unit),
        line=points,
        area=f"0,{HEIGHT} {points} {WIDTH},{HEIGHT}",
        measure="Cost" if is_priced else "Tokens",
        highest_sum=say(most),
        middle_sum=say(most / 2),
        spending=f"{say(sums[-1])}{'' if is_priced else ' tokens'} after {_time(stretches[-1].ends)}, "
        f"{say(sums[(len(sums) - 1) // 2])} after half of the time.",
        times=["0", _time(stretches[-1].ends / 2), _time(stretches[-1].ends)],
        rows=_rows(stretches, unit, is_priced, say),
    )


def _unit_of(stretches: Sequence[Stretch]) -> _Unit:
    mean = sum(stretch.completed + stretch.failed for stretch in stretches) / stretches[-1].ends
    if mean >= 1:
        return _Unit(seconds=1, name="s")
    return _Unit(seconds=60, name="min") if mean * 60 >= 1 else _Unit(seconds=3_600, name="h")


def _rate(stretch: Stretch, unit: _Unit) -> float:
    return (stretch.completed + stretch.failed) * unit.seconds / (stretch.ends - stretch.begins)


def _bar(index: int, stretch: Stretch, count: int, unit: _Unit, highest: float) -> Bar:
    place = WIDTH / count
    scale = HEIGHT * unit.seconds / (stretch.ends - stretch.begins) / highest
    height, failed = stretch.completed * scale, stretch.failed * scale
    return Bar(
        x=round(place * (index + GAP / 2), 2),
        width=round(place * (1 - GAP), 2),
        y=round(HEIGHT - height, 2),
        height=round(height, 2),
        failed_y=round(HEIGHT - height - failed, 2),
        failed_height=round(failed, 2),
    )


def _points(stretches: Sequence[Stretch], sums: Sequence[float], most: float) -> str:
    whole = stretches[-1].ends
    places = [(WIDTH * stretch.ends / whole, total) for stretch, total in zip(stretches, sums, strict=True)]
    return " ".join(f"{x:.1f},{HEIGHT - HEIGHT * total / most:.1f}" for x, total in [(0.0, 0.0), *places])


def _throughput(stretches: Sequence[Stretch], rates: Sequence[float], unit: _Unit) -> str:
    seconds = stretches[-1].ends
    items = sum(stretch.completed + stretch.failed for stretch in stretches)
    mean = _number(items * unit.seconds / seconds)
    return (
        f"{_number(items)} item{'' if items == 1 else 's'} ended in {_time(seconds)}: {mean} a {WORDS[unit.name]} on average, "
        f"{_number(max(rates))} at the most."
    )


WORDS = {"s": "second", "min": "minute", "h": "hour"}


def _rows(stretches: Sequence[Stretch], unit: _Unit, is_priced: bool, say: Callable[[float], str]) -> list[Row]:
    step = -(-len(stretches) // ROWS)
    rows = []
    for first in range(0, len(stretches), step):
        group = stretches[first : first + step]
        seconds = group[-1].ends - group[0].begins
        items = sum(stretch.completed + stretch.failed for stretch in group)
        rows.append(
            Row(
                until=_time(group[-1].ends),
                rate=f"{_number(items * unit.seconds / seconds)} / {unit.name}",
                failed=_number(sum(stretch.failed for stretch in group)),
                spent=say(group[-1].cost_micros if is_priced else group[-1].tokens),
            )
        )
    return rows


def _number(value: float) -> str:
    if value < 10 and value != round(value):
        return f"{value:.1f}".removesuffix(".0")
    return format_count(round(value))


def _money(micros: float) -> str:
    return format_money(round(micros))


def _tokens(count: float) -> str:
    return format_count(round(count))


def _time(seconds: float) -> str:
    return format_duration(seconds)
