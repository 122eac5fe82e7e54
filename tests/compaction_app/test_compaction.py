"""Compaction of a session: what it swaps, what it keeps, and that a turn gets its answer whatever fails."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ

from agents_app.turns import lifecycle
from compaction_app import store
from compaction_app.compact import compact, compact_now, compact_session, request_manual, wake_stale
from compaction_app.context.state import build_context, load_meter, load_state
from compaction_app.models import CompactionRun, SummaryNode
from compaction_app.queries import covering_summaries, list_runs, list_summaries
from mnesis_core.context.entries import MessageEntry, SummaryEntry
from mnesis_core.errors import Conflict, MnesisError, ModelUnreachable
from mnesis_core.llm.interface import Request
from mnesis_core.messages import Message, TextPart, ToolPart, ToolState
from mnesis_core.providers.scripted import Script, Step
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db, work
from sessions_app.models import ContextItem, MessagePart
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_context_items, load_events
from sessions_app.record.message_queries import load_messages
from tests.support.people.story import history, say, spoken

WORDS = "The harbour office moved its ledgers to the new building in March, and Ines checked every one of them. "


def is_summary_request(request: Request) -> bool:
    return any("MNESIS-SUMMARISE" in str(message["content"]) for message in request.payload["messages"])


def model_of(summary: Script, answer: str = "Noted.") -> object:
    """A script for any number of calls: summaries where a summary is asked for, answers otherwise."""

    def reply(request: Request) -> Script:
        return summary if is_summary_request(request) else answer

    return reply


def add_turns(session: SessionRecord, count: int, *, text: str = WORDS * 8, output: str = "") -> None:
    """Finished turns, as an import writes them."""
    for index in range(count):
        with change(session.id) as record:
            turn_id = turn_store.start_turn(record, model="demo")
            user = Message(role="user", parts=(TextPart(text=f"Question {index}. {text}"),))
            message_store.append_message(record, turn_id=turn_id, message=user)
            tool = ToolPart(tool_name="read", tool_call_id=f"c{index}", output=output, state=ToolState.COMPLETED)
            parts = (TextPart(text=f"Answer {index}."), *((tool,) if output else ()))
            message_store.append_message(record, turn_id=turn_id, message=Message(role="assistant", parts=parts))
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)


def kinds(session: SessionRecord) -> list[str]:
    return ["summary" if isinstance(entry, SummaryEntry) else "message" for entry in load_state(session.id).entries]


@pytest.mark.both_databases
def test_the_oldest_turns_become_a_summary_in_their_place_and_stay_in_the_record(session, script):
    script(model_of("## Goal\n- Move the ledgers."))
    add_turns(session, 8)
    before = load_messages(session.id)
    run = compact_now(session.id)
    assert (run.state, run.outcome, run.level, run.trigger) == ("completed", "target_met", 1, "manual")
    assert run.tokens_after < run.tokens_before
    [summary] = list_summaries(session.id)
    assert (summary.kind, summary.depth, summary.first_seq, summary.last_seq) == ("leaf", 0, 1, 12)
    assert [id for _, id in summary.source_ids] == [message.id for message in before[:12]]
    assert kinds(session) == ["summary", *["message"] * 4]
    assert load_messages(session.id) == before
    assert covering_summaries(session.id, [1, 12, 13]) == {1: summary.id, 12: summary.id}
    payload = build_context(session.id).payload
    assert "Move the ledgers" in payload["messages"][0]["content"]
    assert summary.id in payload["messages"][0]["content"]


@pytest.mark.both_databases
def test_any_past_context_can_be_rebuilt(session, script):
    script(model_of("- A summary."))
    add_turns(session, 8)
    seq = load_events(session.id, limit=10_000)[-1].seq
    before = build_context(session.id)
    compact_now(session.id)
    assert build_context(session.id).digest != before.digest
    assert build_context(session.id, at=seq).digest == before.digest


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("", "empty"), (ModelUnreachable(), "MODEL_UNREACHABLE"), ("x " * 20_000, ""), ("I cannot help with that.", "")],
)
def test_a_useless_summary_is_refused_and_level_three_always_ends_it(session, script, reply, reason):
    script(model_of(reply))
    add_turns(session, 8)
    run = compact_now(session.id)
    assert (run.state, run.level) == ("completed", 3)
    assert run.tries
    assert not any(attempt.accepted for attempt in run.tries if attempt.level < 3)
    if reason:
        assert any(attempt.reason == reason for attempt in run.tries)
    [summary] = list_summaries(session.id)
    assert summary.token_count < summary.source_tokens
    assert "Question 0" in summary.text


async def test_above_the_soft_threshold_a_compaction_is_queued_with_the_turns_end(session, script):
    script(model_of("- A summary."))
    await db(add_turns, session, 20)
    meter = await db(load_meter, session.id)
    assert meter.soft_tokens < meter.used_tokens < meter.hard_tokens
    await say(session, "And now?")
    [run] = await db(list_runs, session.id)
    assert (run.state, run.trigger) == ("queued", "soft")
    assert await db(OrmQ.objects.count) == 1
    await say(session, "Again?")
    assert len(await db(list_runs, session.id)) == 1
    await db(compact, run_id=run.id)
    after = await db(load_meter, session.id)
    assert after.used_tokens < after.soft_tokens
    await say(session, "And once more?")
    assert len(await db(list_runs, session.id)) == 1


async def test_above_the_hard_threshold_a_turn_gets_its_answer_without_a_worker(session, script):
    model = script(model_of("- A summary.", "Here it is."))
    await db(add_turns, session, 60)
    meter = await db(load_meter, session.id)
    assert meter.used_tokens > meter.hard_tokens
    turn = await say(session, "Where are the ledgers?")
    assert turn.state == TurnState.COMPLETED
    assert spoken((await history(session))[-1]) == "Here it is."
    run = (await db(list_runs, session.id))[-1]
    assert (run.state, run.trigger) == ("completed", "hard")
    asked = [request for request in model.requests if not is_summary_request(request)]
    assert "Where are the ledgers?" in asked[-1].payload["messages"][-1]["content"]
    assert (await db(load_meter, session.id)).used_tokens <= meter.hard_tokens


async def test_above_the_hard_threshold_a_model_that_only_fails_still_leaves_a_context_that_fits(session, script):
    script(model_of(ModelUnreachable(), "Still here."))
    await db(add_turns, session, 60)
    turn = await say(session, "Where are the ledgers?")
    assert turn.state == TurnState.COMPLETED
    run = (await db(list_runs, session.id))[-1]
    assert run.level == 3


async def test_one_huge_message_is_shortened_with_a_way_to_read_the_rest_and_answered(session, script):
    model = script(model_of("- A summary.", "Long indeed."))
    turn = await say(session, WORDS * 5_000)
    assert turn.state == TurnState.COMPLETED
    shown = str(model.requests[-1].payload["messages"][-1]["content"])
    assert len(shown) < 40_000
    assert "lcm_read" in shown
    assert spoken((await history(session))[0]) == WORDS * 5_000


def test_stale_tool_outputs_become_tombstones_and_keep_their_original(session, script):
    script(model_of("- A summary."))
    add_turns(session, 6, text="Read it.", output="row of the ledger " * 400)
    run = compact_now(session.id)
    assert run.pruned_parts > 0
    parts = MessagePart.objects.filter(session_id=session.id, part_type="tool")
    assert parts.filter(compacted_at__isnull=False).count() == run.pruned_parts
    assert set(parts.values_list("output", flat=True)) == {"row of the ledger " * 400}


@pytest.mark.slow
def test_summaries_of_summaries_keep_the_context_below_the_target(session, script):
    script(model_of("- " + "A detail of the move. " * 60))
    for _ in range(14):
        add_turns(session, 4)
        compact_now(session.id)
    nodes = list_summaries(session.id)
    assert any(node.kind == "condensed" and node.depth >= 1 for node in nodes)
    meter = load_meter(session.id)
    assert meter.used_tokens < meter.soft_tokens
    entries = load_state(session.id).entries
    covered = [
        seq
        for entry in entries
        if isinstance(entry, SummaryEntry)
        for seq in range(entry.first_seq, entry.last_seq + 1)
    ]
    shown = [entry.message.seq for entry in entries if isinstance(entry, MessageEntry)]
    assert covered + shown == list(range(1, 113))


@pytest.mark.both_databases
def test_there_is_never_a_second_live_compaction(session, script):
    script(model_of("- A summary."))
    add_turns(session, 8)
    first = request_manual(session.id)
    assert request_manual(session.id) == first
    assert CompactionRun.objects.count() == 1


def test_a_task_that_comes_twice_or_late_does_nothing_more(session, script):
    model = script(model_of("- A summary."))
    add_turns(session, 8)
    run_id = request_manual(session.id)
    compact(run_id=run_id)
    asked = len(model.requests)
    compact(run_id=run_id, something_from_a_later_version=True)
    assert len(model.requests) == asked
    assert SummaryNode.objects.count() == 1


@pytest.mark.both_databases
def test_a_dead_workers_compaction_is_taken_over_and_its_late_writes_are_refused(session, script):
    script(model_of("- A summary."))
    add_turns(session, 8)
    run_id = request_manual(session.id)
    with change(session.id) as record:
        old = store.claim_run(record, run_id, lease_owner="dead", lease_seconds=120)
    with change(session.id) as record:
        assert store.claim_run(record, run_id, lease_owner="other", lease_seconds=120) is None
    CompactionRun.objects.filter(id=run_id).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert wake_stale() == 1
    assert compact_session(session.id, run_id=run_id).state == "completed"
    with pytest.raises(Conflict), change(session.id) as record:
        store.fail_run(record, run_id, MnesisError("late"), fence=old or 0)
    assert SummaryNode.objects.count() == 1


def test_a_summary_whose_sources_have_left_the_context_is_refused_whole(session, script):
    script(model_of("- A summary."))
    add_turns(session, 4)
    ids = [item.item_id for item in load_context_items(session.id)][:4]
    with change(session.id) as record:
        message_store.swap_context_items(record, removed_ids=ids, summary_id="sum_first")
    with pytest.raises(Conflict), change(session.id) as record:
        message_store.swap_context_items(record, removed_ids=ids, summary_id="sum_second")
    assert not ContextItem.objects.filter(item_id="sum_second").exists()
    assert ContextItem.objects.filter(session_id=session.id, removed_seq__isnull=False).count() == 4


def test_a_failed_compaction_says_why_and_the_next_one_may_run(session, script):
    def explode(request: Request) -> Script:
        raise RuntimeError("a bug in an adapter")

    script(explode)
    add_turns(session, 8)
    run = compact_now(session.id)
    assert (run.state, run.error_code) == ("failed", "INTERNAL_ERROR")
    script(model_of("- A summary."))
    assert compact_now(session.id).state == "completed"


@pytest.mark.slow
@pytest.mark.both_databases
def test_building_a_context_costs_the_same_number_of_queries_at_any_length(session, script):
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            build_context(session.id)
        return len(captured)

    script(model_of("- A summary."))
    add_turns(session, 8)
    compact_now(session.id)
    few = queries()
    for _ in range(4):
        add_turns(session, 8)
        compact_now(session.id)
    add_turns(session, 40)
    assert queries() == few <= 7


@pytest.mark.both_databases
async def test_eight_at_once_make_each_summary_once(session, script):
    model = script(model_of(Step(text="- A summary.", delay_seconds=0.02)))
    await db(add_turns, session, 12)
    run_id = await db(request_manual, session.id)
    await asyncio.gather(*(work(compact_session, session.id, run_id=run_id) for _ in range(8)))
    assert await db(SummaryNode.objects.count) == 1
    assert len([request for request in model.requests if is_summary_request(request)]) == 1


def test_a_sessions_own_configuration_moves_the_thresholds(alice, script):
    script(model_of("- A summary."))
    session = lifecycle.create_session(owner=alice, config={"context_window": 100_000})
    assert load_meter(session.id).window == 100_000
