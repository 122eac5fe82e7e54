"""How often something may be tried: a table of tries and answers, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.config import RequestConfig, SignInConfig
from mnesis_core.network.rate_limits import Bucket, decide, password_change_buckets, request_bucket, sign_in_buckets

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET = Bucket(name=("a",), attempts=3, seconds=10.0)
CONFIG = SignInConfig()


@pytest.mark.parametrize(
    ("seconds_until_empty", "wait_seconds", "seconds_until_empty_after"),
    [
        (None, 0, 10.0),
        (-1000.0, 0, 10.0),
        (0.0, 0, 10.0),
        (10.0, 0, 20.0),
        (20.0, 0, 30.0),
        (20.1, 1, None),
        (25.0, 5, None),
        (30.0, 10, None),
    ],
)
def test_so_many_at_once_and_then_one_in_so_many_seconds(
    seconds_until_empty: float | None, wait_seconds: int, seconds_until_empty_after: float | None
) -> None:
    kept = {} if seconds_until_empty is None else {("a",): NOW + timedelta(seconds=seconds_until_empty)}
    decision = decide([BUCKET], kept, NOW)
    assert decision.wait_seconds == wait_seconds
    expected = seconds_until_empty_after
    assert decision.empty_at == ({} if expected is None else {("a",): NOW + timedelta(seconds=expected)})


def test_the_fullest_bucket_decides_and_a_refused_try_fills_none() -> None:
    other = Bucket(name=("b",), attempts=1, seconds=60.0)
    decision = decide([BUCKET, other], {("b",): NOW + timedelta(seconds=42)}, NOW)
    assert (decision.wait_seconds, decision.empty_at) == (42, {})


def test_whoever_keeps_trying_waits_no_longer_than_the_seconds_of_the_bucket() -> None:
    kept: dict[tuple[str, ...], datetime] = {}
    now, allowed = NOW, 0
    for _ in range(1000):
        decision = decide([BUCKET], kept, now)
        assert decision.wait_seconds <= BUCKET.seconds
        allowed += not decision.wait_seconds
        kept |= decision.empty_at
        now += timedelta(seconds=1)
    assert allowed == 3 + 99  # three at once, and one every ten seconds


@pytest.mark.parametrize(("per_second", "burst"), [(50.0, 200), (1.5, 3), (7.0, 10), (0.1, 1)])
def test_a_burst_of_requests_is_allowed_and_then_one_for_each_that_has_emptied(per_second: float, burst: int) -> None:
    bucket = request_bucket(RequestConfig(per_second=per_second, burst=burst), ("key", "a"))
    assert allowed(bucket, [timedelta()] * (burst + 1)) == burst
    assert (
        allowed(bucket, [*[timedelta()] * (burst + 1), timedelta(seconds=1.001 / per_second), timedelta()]) == burst + 1
    )
    pause = timedelta(seconds=1_000 * burst / per_second)
    assert allowed(bucket, [*[timedelta()] * (burst + 1), pause, *[timedelta()] * burst]) == 2 * burst


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.1, 100), st.integers(1, 20))
def test_nobody_gets_more_than_the_burst_and_what_has_emptied_since(
    pauses: list[float], per_second: float, burst: int
) -> None:
    bucket = request_bucket(RequestConfig(per_second=per_second, burst=burst), ("key", "a"))
    assert allowed(bucket, [timedelta(seconds=pause) for pause in pauses]) <= burst + sum(pauses) * per_second + 0.001


def allowed(bucket: Bucket, pauses: list[timedelta]) -> int:
    """How many tries are allowed, one after each pause."""
    kept: dict[tuple[str, ...], datetime] = {}
    now, count = NOW, 0
    for pause in pauses:
        now += pause
        decision = decide([bucket], kept, now)
        kept |= decision.empty_at
        count += not decision.wait_seconds
    return count


def test_of_an_unknown_device_pair_address_and_account_count() -> None:
    buckets = sign_in_buckets(CONFIG, account="ada", network="192.0.2.1", device="")
    assert [bucket.name for bucket in buckets] == [
        ("account and address", "ada", "192.0.2.1"),
        ("address", "192.0.2.1"),
        ("account", "ada"),
    ]
    assert [bucket.is_own for bucket in buckets] == [True, False, False]


def test_a_known_device_shares_no_bucket_with_anybody() -> None:
    strangers = sign_in_buckets(CONFIG, account="ada", network="192.0.2.1", device="")
    own = sign_in_buckets(CONFIG, account="ada", network="192.0.2.1", device="d1")
    change = password_change_buckets(CONFIG, account="ada")
    names = [{bucket.name for bucket in buckets} for buckets in (strangers, own, change)]
    assert sum(map(len, names)) == len(set.union(*names))
    assert own != sign_in_buckets(CONFIG, account="ben", network="192.0.2.1", device="d1")


def test_an_account_meets_fewer_tries_a_year_than_anybody_needs_to_guess() -> None:
    a_year = timedelta(days=365).total_seconds() / CONFIG.account_seconds + CONFIG.account_tries
    assert a_year < 300_000
