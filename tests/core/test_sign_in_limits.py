"""How often passwords may be tried: a table of tries and answers, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mnesis_core.config import SignInConfig
from mnesis_core.sign_in_limits import Bucket, decide, password_change_buckets, sign_in_buckets

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET = Bucket(name=("a",), tries=3, seconds=10.0)
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
    other = Bucket(name=("b",), tries=1, seconds=60.0)
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
