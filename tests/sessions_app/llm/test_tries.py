"""Tries are counted for all processes together, and what means nothing any more goes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mnesis_core.network.rate_limits import Bucket
from sessions_app.llm import spending_store
from sessions_app.llm.spending_store import MOST_TRIMMED, count_try, seconds_to_wait, take_back_try
from sessions_app.models import TryBucket
from tests.support.processes.children import run_child
from tests.support.processes.triers import BUCKETS

pytestmark = pytest.mark.both_databases

PROCESSES = 4
OWN = Bucket(name=("own",), attempts=2, seconds=60.0, is_own=True)
SHARED = Bucket(name=("shared",), attempts=3, seconds=60.0)


@pytest.mark.slow
def test_of_many_processes_no_more_try_than_one_would(transactional_db: None) -> None:
    with ThreadPoolExecutor(PROCESSES) as processes:
        done = processes.map(lambda _: run_child("tests.support.processes.triers", 20), range(PROCESSES))
        assert sum(map(int, done)) == BUCKETS[0].attempts
    assert seconds_to_wait(BUCKETS) > 0


def test_a_refused_try_writes_nothing(db: None) -> None:
    assert [bool(count_try([OWN])) for _ in range(3)] == [False, False, True]
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert 0 < count_try([OWN, SHARED]) <= 60
        assert 0 < seconds_to_wait([OWN, SHARED]) <= 60
    assert [query["sql"].split()[0] for query in asked] == ["SELECT", "SELECT"]


def test_a_try_with_the_right_password_empties_the_owners_bucket_and_takes_one_out_of_others(db: None) -> None:
    for _ in range(2):
        assert not count_try([OWN, SHARED])
    take_back_try([OWN, SHARED])
    assert not TryBucket.objects.filter(key=spending_store._key(OWN.name)).exists()
    assert [bool(count_try([SHARED])) for _ in range(3)] == [False, False, True]


def test_rows_do_not_grow_without_bound(db: None) -> None:
    past = timezone.now() - timedelta(seconds=1)
    TryBucket.objects.bulk_create([TryBucket(key=str(number), empty_at=past) for number in range(2 * MOST_TRIMMED)])
    for number in range(3):
        assert not count_try([Bucket(name=("new", str(number)), attempts=1, seconds=60.0)])
    assert TryBucket.objects.count() == 3


def test_who_is_overtaken_again_and_again_waits_a_second(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not count_try([SHARED])
    monkeypatch.setattr(spending_store, "_load_times", lambda buckets: {})  # always too old
    assert count_try([SHARED]) == 1
