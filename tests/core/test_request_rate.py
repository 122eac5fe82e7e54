"""A bucket of tokens: so many requests at once, then so many a second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.request_rate import Bucket, Rate, is_full, take

RATE = Rate(per_second=50, burst=200)


def test_a_burst_is_allowed_and_the_next_request_waits_for_one_token() -> None:
    bucket: Bucket | None = None
    for _ in range(RATE.burst):
        bucket, wait = take(bucket, RATE, 7.0)
        assert wait == 0
    after, wait = take(bucket, RATE, 7.0)
    assert (after, wait) == (bucket, pytest.approx(0.02))
    assert take(after, RATE, 7.021)[1] == 0


def test_a_pause_fills_the_bucket_and_no_more() -> None:
    empty = Bucket(tokens=0, at=0)
    assert take(empty, RATE, 1.0)[0].tokens == 49
    assert take(empty, RATE, 1_000.0)[0].tokens == 199
    assert not is_full(empty, RATE, 3.9)
    assert is_full(empty, RATE, 4.0)


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.1, 100), st.integers(1, 20))
def test_nobody_gets_more_than_the_burst_and_what_has_come_in_since(
    pauses: list[float], per_second: float, burst: int
) -> None:
    rate, bucket, now, allowed = Rate(per_second=per_second, burst=burst), None, 0.0, 0
    for pause in pauses:
        now += pause
        bucket, wait = take(bucket, rate, now)
        allowed += wait == 0
        assert 0 <= bucket.tokens <= burst
        assert wait >= 0
    assert allowed <= burst + now * per_second + 0.001
