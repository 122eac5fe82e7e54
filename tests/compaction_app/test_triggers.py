"""When a compaction is asked for, when not, and that either is said with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.module_loading import import_string

from compaction_app.compact import TASK, compact, compact_now, find_trigger
from compaction_app.context.manifests import load_manifest
from compaction_app.context.state import load_meter
from compaction_app.queries import list_runs
from mnesis_core.context.fitting import Reason
from mnesis_core.errors import MnesisError
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import Script
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.test_compaction import WORDS, add_turns, is_summary_request, model_of
from tests.support.people.story import say

LARGE = WORDS * 90
"""More than a third of what the demo's window has room for."""


def configure(session: SessionRecord, **compaction: Any) -> None:
    with change(session.id) as record:
        # Without passages, which may take the room of the oldest summary.
        config = {"compaction": compaction, "retrieval": {"max_passages": 0}}
        session_store.update_session(record, config=config)


def compactions(session: SessionRecord) -> list[tuple[str, str]]:
    """What the ledger says of compactions: (event, reason or outcome)."""
    return [
        (event.type.removeprefix("compaction."), event.data.get("reason") or event.data.get("outcome") or "")
        for event in load_events(session.id, limit=10_000)
        if event.type.startswith("compaction.")
    ]


async def test_below_the_soft_threshold_nothing_happens_at_all(session, script):
    script(model_of("- A summary."))
    await say(session, "Hello")
    await say(session, "Hello again")
    assert await db(compactions, session) == []
    assert await db(list_runs, session.id) == []
    assert await db(find_trigger, session.id) is None


@pytest.mark.both_databases
def test_below_the_soft_threshold_no_query_asks_for_compactions(session, script):
    script(model_of("- A summary."))
    add_turns(session, 2)
    with CaptureQueriesContext(connection) as below:
        assert find_trigger(session.id) is None
    assert not [query for query in below.captured_queries if "compaction_runs" in query["sql"]]
    add_turns(session, 20)
    with CaptureQueriesContext(connection) as above:
        assert find_trigger(session.id) is not None
    assert len(above.captured_queries) == len(below.captured_queries) + 1


async def test_a_turn_that_ends_above_the_soft_threshold_says_what_it_asked_for_or_why_not(session, script):
    script(model_of("- A summary."))
    await db(add_turns, session, 20)
    await say(session, "And now?")
    assert await db(compactions, session) == [("requested", ""), ("triggered", "")]
    await say(session, "Again?")
    assert (await db(compactions, session))[2:] == [("skipped", "already_requested")]
    [run] = await db(list_runs, session.id)
    await db(compact, run_id=run.id)
    assert (await db(compactions, session))[3:] == [("started", ""), ("completed", "target_met")]
    await say(session, "And once more?")
    assert len(await db(compactions, session)) == 5


async def test_automatic_compaction_may_be_off(session, script):
    model = script(model_of("- A summary.", "Still here."))
    await db(configure, session, auto=False)
    await db(add_turns, session, 60)
    turn = await say(session, "And now?")
    assert turn.state == TurnState.COMPLETED
    assert not any(map(is_summary_request, model.requests))
    assert await db(compactions, session) == [("skipped", "auto_off")]
    run = await db(compact_now, session.id)
    assert (run.state, run.outcome, run.trigger) == ("completed", "target_met", "manual")


async def test_a_first_turn_too_large_for_its_window_is_summarised_when_the_next_begins(session, script):
    model = script(model_of("- A summary.", "Long indeed."))
    await say(session, LARGE * 4)
    assert ("skipped", "nothing_to_summarise") in await db(compactions, session)
    await say(session, "And now?")
    assert any(map(is_summary_request, model.requests))
    meter = await db(load_meter, session.id)
    assert meter.used_tokens < meter.soft_tokens


async def test_what_may_not_be_summarised_is_not_tried_again_and_again(session, script):
    model = script(model_of("- A summary.", "Long indeed."))
    await db(configure, session, protect_fraction=0.9)
    for _ in range(3):
        await say(session, LARGE)
    skipped = [reason for event, reason in await db(compactions, session) if event == "skipped"]
    assert skipped == ["nothing_to_summarise", "too_soon"]
    assert len(await db(list_runs, session.id)) == 1
    assert len([request for request in model.requests if is_summary_request(request)]) == 1


def test_a_second_request_on_the_same_context_ends_at_once_and_asks_nobody(session, script):
    model = script(model_of("- A summary."))
    add_turns(session, 20)
    first = compact_now(session.id)
    asked = len(model.requests)
    second = compact_now(session.id)
    assert (first.outcome, second.state, second.outcome) == ("target_met", "completed", "target_met")
    assert (second.summary_ids, second.pruned_parts, len(model.requests)) == ([], 0, asked)


def test_a_context_of_the_last_two_turns_alone_has_nothing_to_summarise(session, script):
    model = script(model_of("- A summary."))
    configure(session, protect_fraction=0.9)
    add_turns(session, 2, text=LARGE)
    trigger = find_trigger(session.id)
    assert trigger is not None
    assert (trigger.compact, trigger.reason) == (False, Reason.NOTHING_TO_SUMMARISE)
    run = compact_now(session.id)
    assert (run.state, run.outcome, model.requests) == ("completed", "nothing_to_summarise", [])


def test_rounds_are_bounded_and_what_is_left_is_asked_for(session, script):
    script(model_of("- A summary."))
    configure(session, max_compaction_rounds=2, leaf_chunk_tokens=600)
    add_turns(session, 30)
    outcomes = [compact_now(session.id).outcome]
    while len(list_runs(session.id)) > len(outcomes):
        outcomes.append(compact_now(session.id).outcome)
    assert outcomes == [*["rounds_exhausted"] * (len(outcomes) - 1), "target_met"]
    assert len(outcomes) > 2
    assert {len(run.summary_ids) for run in list_runs(session.id)[1:]} == {2}
    assert {run.trigger for run in list_runs(session.id)} == {"manual"}


@pytest.mark.slow
async def test_a_call_goes_on_compacting_until_it_fits(session, script):
    script(model_of("- A summary.", "Here it is."))
    await db(configure, session, max_compaction_rounds=1, leaf_chunk_tokens=600)
    await db(add_turns, session, 60)
    assert (await say(session, "Where are the ledgers?")).state == TurnState.COMPLETED
    runs = await db(list_runs, session.id)
    assert len([run for run in runs if run.outcome == "rounds_exhausted"]) > 5
    [call] = await db(lambda: [call for call in list_calls(session.id) if call.purpose == "turn"])
    assert not [row for row in await db(load_manifest, call) if row["kind"] == "gap"]


def test_a_failure_is_not_repeated_on_the_same_context(session, script):
    def explode(request: Request) -> Script:
        raise RuntimeError("a bug in an adapter")

    script(explode)
    add_turns(session, 60)
    failed = compact_now(session.id)
    assert (failed.state, failed.outcome) == ("failed", None)
    trigger = find_trigger(session.id)
    assert trigger is not None
    assert trigger.reason is Reason.UNCHANGED
    add_turns(session, 1)
    again = find_trigger(session.id)
    assert again is not None
    assert again.reason is Reason.HARD


def test_the_ledger_tells_why_each_run_was_asked_for_and_how_it_ended(session, script):
    script(model_of("- A summary."))
    add_turns(session, 20)
    compact_now(session.id)
    assert compactions(session) == [
        ("requested", ""),
        ("triggered", ""),
        ("started", ""),
        ("completed", "target_met"),
    ]
    with pytest.raises(MnesisError):
        compact_now("sess_nobody")


async def test_what_is_left_below_the_high_mark_waits_for_the_next_turn(session, script):
    script(model_of("- A summary."))
    await db(configure, session, max_compaction_rounds=1, leaf_chunk_tokens=1_500)
    await db(add_turns, session, 17)
    await say(session, "And now?")
    [run] = await db(list_runs, session.id)
    await db(compact, run_id=run.id)
    [run] = await db(list_runs, session.id)
    meter = await db(load_meter, session.id)
    assert (run.outcome, len(run.summary_ids)) == ("rounds_exhausted", 1)
    assert run.tokens_after < meter.soft_tokens


def test_a_compaction_queued_before_an_upgrade_is_found_after_it() -> None:
    assert TASK == "compaction_app.tasks.compact"
    assert import_string(TASK) is compact
    assert import_string("compaction_app.compact.compact") is compact, "rows of the queue may have this name, too"
