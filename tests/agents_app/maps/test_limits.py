"""Limits of what is in flight hold for all workers together."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from agents_app.models import OperatorBrake, OperatorShare
from agents_app.queries import braked_until
from agents_app.store import Demand, brake_model, drop_shares, renew_shares
from mnesis_core.config import OperatorConfig
from mnesis_core.maps.throughput import permits

pytestmark = pytest.mark.both_databases

ONE = Demand(run_id="one", wanted=100, in_flight=0, concurrency=16, model="demo", provider="demo", owner_id=1)
TWO = replace(ONE, run_id="two")
CONFIG = OperatorConfig()


def renew(worker: str, *demands: Demand, **limits: int) -> dict[str, int]:
    return renew_shares(worker, demands, replace(CONFIG, **limits))


def held() -> list[int]:
    return list(OperatorShare.objects.order_by("id").values_list("permits", flat=True))


def test_workers_share_a_run_s_limit(db):
    assert renew("a", ONE) == {"one": 16}
    assert renew("b", ONE) == {"one": 0}, "the first holds all until it renews"
    assert renew("a", ONE) == {"one": 8}
    assert renew("b", ONE) == {"one": 8}
    drop_shares("a")
    assert renew("b", ONE) == {"one": 16}


def test_what_is_in_flight_stays_the_worker_s_until_it_has_ended(db):
    renew("a", ONE)
    renew("b", ONE)
    assert renew("a", replace(ONE, in_flight=16)) == {"one": 8}
    assert renew("b", ONE) == {"one": 0}
    assert renew("a", replace(ONE, in_flight=10)) == {"one": 8}
    assert renew("b", ONE) == {"one": 6}
    assert sum(held()) == 16


def test_who_wants_little_leaves_the_rest_to_others(db):
    renew("a", replace(ONE, wanted=3))
    assert renew("b", ONE) == {"one": 13}


def test_a_worker_that_died_holds_nothing_after_its_lease(db):
    renew("dead", ONE)
    OperatorShare.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert renew("b", ONE) == {"one": 16}
    assert list(OperatorShare.objects.values_list("worker", flat=True)) == ["b"]


def test_a_run_that_is_missing_is_given_back(db):
    renew("a", ONE, TWO)
    renew("a", TWO)
    assert list(OperatorShare.objects.values_list("run_id", flat=True)) == ["two"]


@pytest.mark.parametrize("name", ["per_model", "per_provider", "per_owner"])
def test_runs_share_what_is_limited_for_all_of_them(name, db):
    assert renew("a", ONE, TWO) == {"one": 16, "two": 16}, "far below the site's limits"
    drop_shares("a")
    for _ in range(4):
        for worker in ("a", "b"):
            renew(worker, ONE, TWO, **{name: 20})
            assert sum(held()) <= 20
    assert held() == [5] * 4


@pytest.mark.parametrize("apart", [{"model": "m"}, {"provider": "p", "model": "m"}, {"owner_id": 2}])
def test_other_models_providers_and_people_are_counted_apart(apart, db):
    other = replace(TWO, **apart)
    [name] = {"model", "provider", "owner_id"} & ({"provider"} if "provider" in apart else apart.keys())
    limit = {"model": "per_model", "provider": "per_provider", "owner_id": "per_owner"}[name]
    assert renew("a", ONE, other, **{limit: 10}) == {"one": 10, "two": 10}


def test_a_refusal_slows_everybody_down(db):
    assert renew("a", ONE) == {"one": 16}
    began = timezone.now()
    until = brake_model("demo", seconds=7, began=began)
    assert timedelta(seconds=6) < until - began < timedelta(seconds=8)
    assert braked_until(["demo", "other"]) == {"demo": until}
    assert renew("a", ONE) == {"one": 8}
    brake_model("demo", seconds=1, began=began)
    assert renew("a", ONE) == {"one": 8}, "the same refusal, said once more"
    brake_model("demo", seconds=1, began=timezone.now())
    assert renew("a", ONE) == {"one": 4}
    assert renew("b", replace(TWO, model="other")) == {"two": 16}
    long_ago = timezone.now() - timedelta(seconds=25)
    OperatorBrake.objects.filter(model="demo").update(until=long_ago, since=long_ago)
    assert braked_until(["demo"]) == {}
    assert renew("a", ONE) == {"one": 16}


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_sum_never_passes_the_limit_whoever_renews_at_the_same_time(monkeypatch):
    sums = []

    def in_no_hurry(*asked):
        time.sleep(0.01)  # between what is read and what is written
        return permits(*asked)

    monkeypatch.setattr("agents_app.store.permits", in_no_hurry)

    def work(worker: str) -> None:
        try:
            for _ in range(10):
                renew(worker, ONE)
                sums.append(sum(held()))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, ["a", "b", "c", "d"]))
    assert max(sums) <= 16
    for _ in range(2):
        for worker in ("a", "b", "c", "d"):
            renew(worker, ONE)
    assert held() == [4] * 4
