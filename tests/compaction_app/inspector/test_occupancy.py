"""What the scrub bar of the inspector is made of: columns, places and marks, without a database."""

from __future__ import annotations

import pytest

from compaction_app.inspector.occupancy import (
    MOST_COLUMNS,
    EndedRun,
    Mark,
    Standing,
    fullest_of,
    marks_of,
    place_among,
)


def test_thousands_of_calls_are_some_hundred_columns_of_the_fullest() -> None:
    calls = [(f"call_{number}", number % 97) for number in range(10_000)]
    chosen = fullest_of(calls)
    assert len(chosen) == MOST_COLUMNS
    assert {dict(calls)[id] for id in chosen} <= set(range(24, 97))
    assert fullest_of(calls[:7]) == [id for id, _ in calls[:7]]
    assert fullest_of([]) == []


@pytest.mark.parametrize("count", [1, 399, 400, 401, 1_003, 10_000])
def test_every_call_has_its_place_in_the_column_that_stands_for_it(count: int) -> None:
    for number in {1, count // 3 + 1, max(1, count - 1), count}:
        # Only this one takes anything, so the column that shows it is its own.
        calls = [(f"call_{place}", int(place == number)) for place in range(1, count + 1)]
        assert fullest_of(calls)[place_among(number, count) - 1] == f"call_{number}"
    assert place_among(0, count) == 1


def test_compactions_stand_before_the_first_call_that_read_its_context_after_them() -> None:
    runs = [
        EndedRun(seq=seq, level=level, tokens_before=9, tokens_after=seq) for seq, level in ((5, 1), (6, 3), (40, 1))
    ]
    assert marks_of(runs, [2, 5, 9]) == [
        Mark(before=1, count=1, level=1, tokens_before=9, tokens_after=5),
        Mark(before=2, count=1, level=3, tokens_before=9, tokens_after=6),
        Mark(before=3, count=1, level=1, tokens_before=9, tokens_after=40),
    ]
    assert marks_of(runs, [50]) == [Mark(before=0, count=3, level=3, tokens_before=9, tokens_after=40)]


def test_summaries_count_from_the_event_that_added_them_until_the_one_that_removed_them() -> None:
    standing = Standing([(3, 8, 100), (8, None, 60)])
    assert [standing.at(seq) for seq in (2, 3, 7, 8, 99)] == [0, 100, 100, 60, 60]
