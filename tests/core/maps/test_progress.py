"""The line that says how far a run is."""

from __future__ import annotations

import pytest

from mnesis_core.maps.throughput import Throughput, progress_line
from mnesis_core.maps.values import Counts


@pytest.mark.parametrize(
    ("counts", "per_second", "line"),
    [
        (Counts(), 0.0, "running: the input is being read"),
        (Counts(items=0), 0.0, "[########################] 100%  0/0  running"),
        (Counts(items=4, completed=1, failed=1), 0.0, "[############------------]  50%  2/4  running  1 failed"),
        (Counts(items=1_000), 2.5, "[------------------------]   0%  0/1,000  running  2.5/s  7 min left"),
        (Counts(items=100_000), 2.5, "[------------------------]   0%  0/100,000  running  2.5/s  11.1 h left"),
        (Counts(items=10, completed=10), 3.0, "[########################] 100%  10/10  running"),
    ],
)
def test_a_line_says_how_far_it_is(counts: Counts, per_second: float, line: str) -> None:
    assert progress_line(counts, state="running", per_second=per_second) == line


def test_the_pace_is_that_of_the_last_while() -> None:
    pace = Throughput()
    assert pace.per_second == 0
    for now in range(100):
        pace.see(0 if now < 50 else (now - 50) * 4, now=float(now))
    assert pace.per_second == pytest.approx(4)
    pace.see(10, now=99.0)  # tried again: fewer have ended than before
    assert pace.per_second == 0
