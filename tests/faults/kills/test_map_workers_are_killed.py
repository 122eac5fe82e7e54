"""Workers are killed over a run of an operator: every item has one result, and none is paid for again once it is stored."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
from django.contrib.auth.models import User

from agents_app.maps.worker import work_for_a_slice
from agents_app.models import OperatorItem, OperatorTry
from agents_app.queries import load_run
from agents_app.turns.lifecycle import create_session
from audit_app.proof.verify import verify_session
from mnesis_core.maps.values import OperatorKind
from sessions_app.models import ModelCall, Turn
from tests.support.processes.children import CHILD_SECONDS, run_child
from tests.support.proof.record_check import faults_of_record
from tests.support.record.maps import output_of, start
from tests.support.sites.databases import ask
from tests.support.sites.map_site import begin_in_site, map_in_site, wait_for, worker_of
from tests.support.sites.site import Site, wait_until
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

WORKERS, LEASE_SECONDS = 3, 1.0
SOAK_ITEMS = int(os.environ.get("MNESIS_SOAK_MAP_ITEMS", "10000"))
SOAK_KILLS = int(os.environ.get("MNESIS_SOAK_MAP_KILLS", "20"))


def test_a_run_goes_through_the_worker_of_a_site(site: Site) -> None:
    ended = map_in_site(site, 20, seconds=60)
    assert (ended["state"], ended["completed"], ended["problems"]) == ("completed", 20, [])
    assert [line["input"] for line in ended["output"]] == list(range(1, 21))


def test_sub_agents_work_in_the_worker_of_a_site(site: Site) -> None:
    ended = map_in_site(site, 12, seconds=90, kind="agentic")
    assert (ended["state"], ended["completed"], ended["problems"]) == ("completed", 12, [])


def test_a_new_worker_of_a_site_goes_on_with_what_a_killed_one_left(site: Site) -> None:
    begun = begin_in_site(site, 40, seconds=90, template="!slow 60 Say {{ item }}", concurrency=8)
    for _ in range(2):
        worker = busy_worker(site)
        worker.kill()
        worker.wait(PATIENCE_SECONDS)
    ended = wait_for(begun, seconds=90)
    assert (ended["state"], ended["completed"], ended["problems"]) == ("completed", 40, [])


def busy_worker(site: Site) -> psutil.Process:
    """A worker that works on runs now and did so half a second ago; one whose slice of the work is over is let go."""
    while True:
        wait_until(lambda: worker_of(site))
        time.sleep(0.5)
        if worker := worker_of(site):
            return worker


@pytest.mark.parametrize(
    ("items", "kills", "between"),
    [(150, 3, 0.4), pytest.param(SOAK_ITEMS, SOAK_KILLS, 1.5, marks=pytest.mark.soak)],
    ids=["short", "long"],
)
def test_every_item_has_one_result_whoever_is_killed(
    alice: User, tmp_path: Path, items: int, kills: int, between: float
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"[operators]\nlease_seconds = {LEASE_SECONDS}\nheartbeat_seconds = 0.1\n")
    run_id = start(create_session(owner=alice), items, concurrency=12)
    seed = random.randrange(10**6)
    print("seed", seed)
    arguments = (run_id, WORKERS, kills, between, seed)
    printed = run_child(
        "tests.support.processes.map_workers", *arguments, seconds=CHILD_SECONDS + items / 10, MNESIS_CONFIG=str(config)
    ).splitlines()
    work_for_a_slice()
    run = load_run(run_id)
    asked = Counter(line.removeprefix("asked ") for line in printed[:-1])
    lost = ModelCall.objects.filter(purpose="map", error_code="MODEL_CALL_ABANDONED").count()
    print(f"{printed[-1]}; {asked.total()} questions for {items} items; {lost} calls lost")
    assert printed[-1] == f"{kills} killed before the end"
    assert (run.state, run.counts.completed) == ("completed", items)
    check_items(run_id, items)
    # A call whose worker died may have been paid for in vain; a result that is stored is never asked for again.
    assert set(asked) == {f"Say {number}" for number in range(1, items + 1)}
    assert asked.total() - items <= lost
    assert ModelCall.objects.filter(purpose="map", state="completed").count() == items
    assert not ModelCall.objects.filter(state="running").exists()
    assert [line["output"] for line in output_of(run)] == [f"SAY {number}" for number in range(1, items + 1)]
    assert verify_session(run.session_id).problems == []
    assert faults_of_record(ask) == []


def test_sub_agents_go_on_where_killed_workers_left_them(alice: User, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    fast = f"lease_seconds = {LEASE_SECONDS}\nheartbeat_seconds = 0.1\n"
    config.write_text(f"[operators]\n{fast}[turn]\n{fast}")
    items, kills = 30, 2
    run_id = start(create_session(owner=alice), items, kind=OperatorKind.AGENTIC, concurrency=4)
    seed = random.randrange(10**6)
    print("seed", seed)
    arguments = (run_id, WORKERS, kills, 0.5, seed)
    printed = run_child("tests.support.processes.map_workers", *arguments, MNESIS_CONFIG=str(config)).splitlines()
    work_for_a_slice()
    run = load_run(run_id)
    print(printed[-1])
    assert printed[-1] == f"{kills} killed before the end"
    assert (run.state, run.counts.completed) == ("completed", items)
    check_items(run_id, items)
    sessions = dict(OperatorItem.objects.filter(run_id=run_id).values_list("number", "child_session_id"))
    assert len(set(sessions.values())) == items
    refused = OperatorTry.objects.filter(run_id=run_id, accepted=False)
    assert [str(Turn.objects.get(id=one.child_turn_id).state) for one in refused] == ["interrupted"] * len(refused)
    assert not ModelCall.objects.filter(state="running").exists()
    # Cancelled: by a worker that was so slow that it was taken for dead, and another had the item.
    assert {state for _, state in turn_states(sessions.values())} <= {"completed", "interrupted", "cancelled"}
    for session_id in (run.session_id, *sessions.values()):
        assert verify_session(session_id).problems == []
    assert faults_of_record(ask) == []


def turn_states(session_ids: Iterable[str]) -> list[tuple[str, str]]:
    return list(Turn.objects.filter(session_id__in=list(session_ids)).values_list("session_id", "state"))


def check_items(run_id: str, items: int) -> None:
    """Each item has one try that was accepted, and says so."""
    accepted = dict(OperatorTry.objects.filter(run_id=run_id, accepted=True).values_list("item", "id"))
    states = OperatorItem.objects.filter(run_id=run_id).values_list("number", "state", "accepted_try_id")
    assert sorted(states) == [(number, "completed", accepted[number]) for number in range(1, items + 1)]
