"""How fast a run goes, told from some of its items."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.maps.throughput import Ending, RunSpan, intervals_of, seconds_left, spread

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def endings(*seconds: float, **values: int) -> list[Ending]:
    return [Ending(at=after(at), **values) for at in seconds]


def spell(seconds: float, ended: int, **values: int) -> RunSpan:
    return RunSpan(began=BEGAN, until=after(seconds), ended=ended, **values)


@given(count=st.integers(0, 10_000_000), most=st.integers(1, 400))
def test_numbers_are_spread_evenly_and_are_those_of_items(count: int, most: int) -> None:
    numbers = spread(count, most=most)
    assert len(numbers) == min(count, most)
    assert numbers == sorted(set(numbers))
    assert all(1 <= number <= count for number in numbers)
    gaps = {later - earlier for earlier, later in pairwise(numbers)}
    assert len(gaps) <= 2


def test_stretches_hold_every_item_once_and_end_at_what_was_spent() -> None:
    found = intervals_of(
        endings(*range(100), cost_micros=2, tokens=3), spell(99, 100, tokens=300, cost_micros=200), most=10
    )
    assert len(found) == 10
    assert sum(stretch.completed for stretch in found) == 100
    assert [found[-1].tokens, found[-1].cost_micros] == [300, 200]
    assert found[0].begins == 0
    assert found[-1].ends == 99


def test_some_items_stand_for_all() -> None:
    failed = [Ending(at=after(5), is_failed=True)]
    found = intervals_of([*endings(*[1.0] * 9), *failed], spell(10, 1_000, tokens=50), most=10)
    assert sum(stretch.completed for stretch in found) == 900
    assert sum(stretch.failed for stretch in found) == 100


def test_no_endings_make_no_stretches_and_endings_outside_the_time_fall_on_its_edges() -> None:
    assert intervals_of([], spell(10, 0), most=10) == []
    found = intervals_of(endings(-5, 50), spell(10, 2), most=10)
    assert [found[0].completed, found[-1].completed] == [1, 1]
    assert sum(stretch.completed for stretch in intervals_of(endings(0), spell(0, 1), most=10)) == 1


@pytest.mark.parametrize(("ended", "left"), [(100, 50.0), (200, 25.0)])
def test_what_is_left_takes_as_long_as_the_newest_items_did(ended: int, left: float) -> None:
    # The first half of the time nothing went on: the newest tenth does not know of it.
    sample = endings(*[100 + number for number in range(100)])
    assert seconds_left(sample, spell(199, ended), open_items=50) == pytest.approx(left)


def test_too_few_endings_tell_nothing() -> None:
    assert seconds_left(endings(1, 2), spell(3, 2), open_items=5) is None
    assert seconds_left(endings(0, 0, 0), spell(0, 3), open_items=5) == pytest.approx(0.0, abs=0.01)
