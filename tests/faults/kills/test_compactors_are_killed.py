"""Eight workers at the same sessions, killed or asleep beyond their lease: each span has one summary and one bill."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from agents_app.turns.lifecycle import create_session
from audit_app.proof.verify import verify_session
from compaction_app import queries
from compaction_app.compact import compact_session, wake_stale
from compaction_app.models import CompactionRun, SummaryEdge, SummaryNode
from compaction_app.queries import live_run
from mnesis_core.records import SessionRecord
from sessions_app.models import ModelCall
from sessions_app.record.context_queries import load_events
from tests.support.processes.children import CHILD_SECONDS, run_child
from tests.support.processes.compactors import SUMMARY, add_turn
from tests.support.proof.record_check import faults_of_record
from tests.support.sites.databases import ask

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

WORKERS, SESSIONS, LEASE_SECONDS = 8, 3, 0.25
EVENTS = 12
SOAK_EVENTS = int(os.environ.get("MNESIS_SOAK_COMPACTORS", "400"))
ENDS = ("compaction.completed", "compaction.failed", "compaction.superseded")


@pytest.mark.parametrize("events", [EVENTS, pytest.param(SOAK_EVENTS, marks=pytest.mark.soak)])
def test_each_span_has_one_summary_and_one_bill(alice: User, script: Callable[..., object], events: int) -> None:
    script(lambda request: SUMMARY)
    config = {"compaction": {"lease_seconds": LEASE_SECONDS}}
    sessions = [create_session(owner=alice, config=config) for _ in range(SESSIONS)]
    for session in sessions:
        for _ in range(4):
            add_turn(session.id)
    seed = random.randrange(10**6)
    print("seed", seed)
    ids = ",".join(session.id for session in sessions)
    printed = run_child(
        "tests.support.processes.compactors", ids, WORKERS, events, LEASE_SECONDS, seed, seconds=CHILD_SECONDS + events
    )
    *asked, told = printed.splitlines()
    paid_in_vain = len(asked) - SummaryNode.objects.count()
    lost = sum(attempts_lost(session) for session in sessions)
    print(f"{told}; {CompactionRun.objects.count()} runs, {len(asked)} questions, {paid_in_vain} in vain, {lost} lost")
    assert set(asked) == {"asked"}
    # Who dies while the model is asked has paid, and the process that takes over pays again: once for each life that was lost.
    assert 0 <= paid_in_vain <= lost
    calls = ModelCall.objects.filter(purpose="summary")
    assert calls.count() >= len(asked), "whatever is paid for is known before"
    for session in sessions:
        recover(session)
        check(session)
    assert not calls.filter(state="running").exists()
    assert faults_of_record(ask) == []


def attempts_lost(session: SessionRecord) -> int:
    """How many attempts did not come to the end of their run."""
    types = Counter(event.type for event in load_events(session.id, limit=100_000))
    return types["compaction.started"] - sum(types[type] for type in ENDS)


def recover(session: SessionRecord) -> None:
    """What is left by the dead is done as soon as their lease is over."""
    time.sleep(LEASE_SECONDS)
    wake_stale()
    if run_id := live_run(session.id):
        assert compact_session(session.id, run_id=run_id).state == "completed"
    assert live_run(session.id) is None


def check(session: SessionRecord) -> None:
    """Nothing is uncovered, nothing covered twice, and the ledger proves and tells it."""
    assert queries.cover(session.id).ok
    sources = Counter(SummaryEdge.objects.filter(node__session_id=session.id).values_list("source_id", flat=True))
    assert set(sources.values()) <= {1}
    assert verify_session(session.id).problems == []
    check_story(session)


def check_story(session: SessionRecord) -> None:
    """Every run was asked for, then started, and has one end and one state; its summaries are those it says."""
    told: dict[str, list[str]] = {}
    made: dict[str, list[str]] = {}
    for event in load_events(session.id, limit=100_000):
        if event.type.startswith("compaction."):
            told.setdefault(event.data["run_id"], []).append(event.type)
        elif event.type == "summary.created":
            made.setdefault(event.data["run_id"], []).append(event.data["summary_id"])
    for run in CompactionRun.objects.filter(session_id=session.id):
        types = told.pop(run.id)
        assert types[0] == "compaction.requested"
        assert types[-1] == f"compaction.{run.state}"
        assert sum(type in ENDS for type in types) == 1
        assert types.count("compaction.started") == run.attempts
        assert run.summary_ids == made.get(run.id, [])
    assert told == {}
