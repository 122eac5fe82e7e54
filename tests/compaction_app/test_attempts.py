"""Processes that die, sleep or meet in the middle of a compaction: each span one summary, each run one end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django_q.models import OrmQ

from compaction_app import store
from compaction_app.compact import claim, compact, compact_now, compact_session, request_manual, wake_stale
from compaction_app.models import LIVE, CompactionRun, SummaryEdge, SummaryNode
from compaction_app.queries import list_runs, list_summaries, load_run
from mnesis_core.config import CompactionConfig, Config
from mnesis_core.errors import TakenOver
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import Script, Step
from mnesis_core.records import SessionRecord
from sessions_app.database.threads import db
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_context_items, load_events
from tests.compaction_app.test_compaction import add_turns, is_summary_request, model_of
from tests.support.people.story import say
from tests.support.processes.attempts import (
    SUMMARY,
    Killed,
    at_once,
    commit_summary,
    die,
    elsewhere,
    first_items,
    first_time,
    is_whole,
    lose_lease,
    said,
)
from tests.support.record.inspected import revise

pytestmark = pytest.mark.both_databases

MOMENT_SECONDS = 1


def test_a_run_whose_worker_was_killed_while_the_model_was_asked_is_done_by_the_next(session, script):
    model = script(first_time(die))
    add_turns(session, 8)
    run_id = request_manual(session.id)
    with pytest.raises(Killed):
        compact_session(session.id, run_id=run_id)
    assert compact_session(session.id, run_id=run_id).state == "running", "its lease is not over"
    lose_lease(run_id)
    run = compact_session(session.id, run_id=run_id)
    assert (run.state, run.attempts, len(model.requests)) == ("completed", 2, 2)
    assert [summary.id for summary in list_summaries(session.id)] == run.summary_ids
    assert is_whole(session)


def test_what_was_pruned_before_the_kill_is_pruned_once_and_counted(session, script):
    script(first_time(die))
    add_turns(session, 6, text="Read it.", output="row of the ledger " * 400)
    run_id = request_manual(session.id)
    with pytest.raises(Killed):
        compact_session(session.id, run_id=run_id)
    killed = load_run(run_id)
    lose_lease(run_id)
    run = compact_session(session.id, run_id=run_id)
    assert run.state == "completed"
    assert (run.pruned_parts, run.pruned_tokens) == (killed.pruned_parts, killed.pruned_tokens)
    assert run.pruned_parts
    assert run.tokens_before == killed.tokens_before
    assert run.tokens_before - run.tokens_after > run.pruned_tokens
    assert said(session).count("prune.completed") == 1
    assert is_whole(session)


def test_a_summary_that_was_committed_before_the_kill_is_the_runs_and_is_not_made_again(session, script):
    model = script(SUMMARY)
    add_turns(session, 8)
    run_id = request_manual(session.id)
    attempt = claim(session.id, run_id)
    assert attempt is not None
    made = commit_summary(session, attempt, first_items(session), cost_micros=70)
    lose_lease(run_id)
    run = compact_session(session.id, run_id=run_id)
    assert (run.state, run.summary_ids[0], len(run.summary_ids)) == ("completed", made, 2)
    assert (run.cost_micros, run.source_count) == (70, 12)
    assert len(model.requests) == 1, "only for what was left"
    assert is_whole(session)


def test_a_sleeper_writes_no_summary_when_it_wakes_up(session, script):
    def meanwhile() -> None:
        lose_lease(run_id)
        assert wake_stale() == 1
        assert compact_session(session.id, run_id=run_id).state == "completed"

    script(first_time(meanwhile))
    add_turns(session, 8)
    run_id = request_manual(session.id)
    run = compact_session(session.id, run_id=run_id)
    assert (run.state, run.attempts, len(run.summary_ids)) == ("completed", 2, 1)
    assert SummaryNode.objects.count() == 1
    whole = ["compaction.started", "summary.tried", "summary.created", "compaction.completed"]
    assert said(session)[-5:] == [*whole, "summary.tried"], "what it was told and what that cost is kept"
    assert is_whole(session)


def test_a_lost_lease_ends_the_question_to_the_model(session, script):
    def meanwhile() -> None:
        lose_lease(run_id)
        assert claim(session.id, run_id)

    model = script(first_time(meanwhile, Step(text=SUMMARY, delay_seconds=30)))
    add_turns(session, 8)
    with change(session.id) as record:
        session_store.update_session(record, config={"compaction": {"lease_seconds": 0.3}})
    run_id = request_manual(session.id)
    assert compact_session(session.id, run_id=run_id).state == "running"
    assert model.abandoned == 1
    assert SummaryNode.objects.count() == 0


def test_a_run_whose_sources_left_the_context_is_superseded_and_harmless(session, script):
    def meanwhile() -> None:
        with change(session.id) as record:
            message_store.swap_context_items(record, removed_ids=first_items(session, 2), summary_id="sum_another")

    script(first_time(meanwhile))
    add_turns(session, 8)
    run_id = request_manual(session.id)
    run = compact_session(session.id, run_id=run_id)
    assert (run.state, run.error_code, run.summary_ids) == ("superseded", "CONTEXT_CHANGED", [])
    assert said(session)[-1] == "compaction.superseded"
    assert SummaryNode.objects.count() == 0
    assert len(load_context_items(session.id)) == 15
    assert not CompactionRun.objects.filter(state__in=LIVE).exists()


def test_of_two_commits_of_one_span_at_once_one_is_refused(session, script):
    add_turns(session, 8)
    attempt = claim(session.id, request_manual(session.id))
    assert attempt is not None
    ends, sources = [], first_items(session)

    def commit() -> None:
        try:
            ends.append(commit_summary(session, attempt, sources)[:4])
        except Exception as error:
            ends.append(type(error).__name__)

    at_once([commit] * 2)
    assert sorted(ends) == ["ContextChanged", "sum_"]
    assert SummaryNode.objects.count() == 1
    assert len(load_context_items(session.id)) == 13


def test_many_sweeps_at_once_wake_one_worker(session):
    add_turns(session, 8)
    run_id = request_manual(session.id)
    assert claim(session.id, run_id)
    lose_lease(run_id)
    queued = OrmQ.objects.count()
    at_once([wake_stale] * 8)
    assert OrmQ.objects.count() == queued + 1
    assert said(session)[-1] == "compaction.requested"
    assert said(session).count("compaction.requested") == 2


def test_a_run_that_kills_every_worker_is_given_up(session, script):
    add_turns(session, 8)
    run_id = request_manual(session.id)
    for _ in range(Config().compaction.max_attempts):
        assert claim(session.id, run_id)
        lose_lease(run_id)
        wake_stale()
    run = load_run(run_id)
    assert (run.state, run.error_code) == ("failed", "COMPACTION_ABANDONED")
    assert said(session)[-1] == "compaction.failed"
    script(model_of(SUMMARY))
    assert compact_now(session.id).state == "completed"
    assert is_whole(session)


def test_without_a_worker_a_run_is_queued_again_less_and_less_often(session):
    add_turns(session, 8)
    run_id = request_manual(session.id)
    created = CompactionRun.objects.get(id=run_id).created_at
    waits = []
    for _ in range(8):
        due = CompactionRun.objects.get(id=run_id).lease_expires_at + timedelta(seconds=1)
        with change(session.id, now=due) as record:
            assert store.requeue_run(record, run_id, max_attempts=1)
            assert not store.requeue_run(record, run_id, max_attempts=1), "another process's sweep, at the same time"
        waits.append(CompactionRun.objects.get(id=run_id).lease_expires_at - due)
    assert (waits[0], waits[-1]) == (store.WAKE_AGAIN_AFTER, store.WAKE_AGAIN_AT_LAST_AFTER)
    assert waits == sorted(waits)
    reasons = [event.data.get("reason") for event in load_events(session.id, limit=10_000)[-8:]]
    assert reasons == ["forgotten"] * 8
    assert CompactionRun.objects.get(id=run_id).created_at == created


def test_the_database_itself_refuses_a_second_summary_of_a_message_but_for_a_revision(session, script):
    script(model_of(SUMMARY))
    add_turns(session, 8)
    [first] = compact_now(session.id).summary_ids
    edges = SummaryEdge.objects.filter(node_id=first).order_by("position")
    revise(session.id, first, [edge.source_id for edge in edges])
    add_turns(session, 2)
    [second] = compact_now(session.id).summary_ids
    with pytest.raises(IntegrityError, match=r"with this key|edge_source_covered_once"):
        SummaryEdge.objects.create(
            session_id=session.id,
            node_id=second,
            position=99,
            source_type="message",
            source_id=edges.first().source_id,
        )
    assert is_whole(session)


@pytest.mark.slow
async def test_no_transaction_is_open_while_a_model_is_asked(session, script):
    def reply(request: Request) -> Script:
        assert not connection.in_atomic_block
        elsewhere(lambda: lock(session))
        return SUMMARY if is_summary_request(request) else "Here it is."

    model = script(reply)
    await db(add_turns, session, 60)
    assert (await say(session, "Where are the ledgers?")).state == "completed"
    kinds = {is_summary_request(request) for request in model.requests}
    assert kinds == {True, False}
    assert {run.state for run in await db(list_runs, session.id)} == {"completed"}


def lock(session: SessionRecord) -> None:
    """Take what a change takes: another process may have it for a moment, not while a model thinks."""
    if connection.vendor == "sqlite":
        with closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=MOMENT_SECONDS)) as another:
            another.execute("BEGIN IMMEDIATE")
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{MOMENT_SECONDS}s'")
        cursor.execute("SELECT id FROM sessions WHERE id = %s FOR UPDATE", [session.id])


def test_a_database_that_is_away_for_a_moment_ends_no_run(session, script):
    def lose_database() -> None:
        raise OperationalError("the database is away")

    script(first_time(lose_database))
    add_turns(session, 8)
    run_id = request_manual(session.id)
    with pytest.raises(OperationalError):
        compact_session(session.id, run_id=run_id)
    assert load_run(run_id).state == "running"
    lose_lease(run_id)
    assert compact_session(session.id, run_id=run_id).state == "completed"
    assert is_whole(session)


def test_the_queue_lets_a_worker_take_as_long_as_a_compaction_may(session):
    add_turns(session, 8)
    request_manual(session.id)
    [task] = [queued.task for queued in OrmQ.objects.all()]
    assert task["timeout"] > CompactionConfig().run_timeout_seconds


def test_a_task_of_a_session_that_was_deleted_does_nothing(session):
    add_turns(session, 8)
    run_id = request_manual(session.id)
    with change(session.id) as record:
        session_store.soft_delete_session(record)
    compact(run_id=run_id)
    assert load_run(run_id).state == "queued"
    assert wake_stale() == 0


def test_the_fence_refuses_each_write_of_a_run_that_was_taken_over(session):
    add_turns(session, 8, output="row of the ledger " * 400)
    run_id = request_manual(session.id)
    old = claim(session.id, run_id)
    assert old is not None
    lose_lease(run_id)
    assert claim(session.id, run_id) is not None
    with pytest.raises(TakenOver):
        old.renew()
    with pytest.raises(TakenOver), old.held():
        pass
    with pytest.raises(TakenOver):
        commit_summary(session, old, first_items(session))
