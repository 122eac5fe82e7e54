"""Compactions of named turns: exactly what they cover leaves the context, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.test import Client

from agents_app.turns import lifecycle
from compaction_app import store
from compaction_app.compact import compact_before_call, compact_now, compact_session, find_trigger, request_manual
from compaction_app.context.state import load_meter, load_state, size_of
from compaction_app.models import CompactionRun
from compaction_app.queries import last_refill, list_summaries, newest_compacted_by_hand
from mnesis_core import errors
from mnesis_core.context.additions import Refill
from mnesis_core.context.entries import MessageEntry
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_turns
from tests.compaction_app.test_compaction import add_turns, model_of
from tests.support.people.story import begin
from tests.support.processes.attempts import SUMMARY, Killed, die, first_time, is_whole, lose_lease, said
from tests.support.record.trees import leave

pytestmark = pytest.mark.both_databases


@pytest.fixture
def told(session: SessionRecord, script: Any) -> SessionRecord:
    script(model_of(SUMMARY))
    add_turns(session, 8)
    return session


def turn_ids(session: SessionRecord) -> list[str]:
    return [turn.id for turn in reversed(list_turns(session.id))]


def standing(session: SessionRecord) -> list[int]:
    return [entry.message.seq for entry in load_state(session.id).entries if isinstance(entry, MessageEntry)]


def set_window(session: SessionRecord, tokens: int) -> None:
    with change(session.id) as record:
        session_store.update_session(record, config={"context_window": tokens})


def refused(session: SessionRecord, *ids: str) -> str:
    with pytest.raises(errors.MnesisError) as refusal:
        request_manual(session.id, turn_ids=ids)
    assert not CompactionRun.objects.filter(session_id=session.id, ended_at=None).exists()
    return refusal.value.code


def test_exactly_the_named_turns_are_summarised_whatever_else_could_be(told):
    ids = turn_ids(told)
    run = compact_now(told.id, turn_ids=[ids[3], ids[2], ids[3]])
    assert (run.state, run.trigger, run.turn_ids) == ("completed", "manual", [ids[2], ids[3]])
    [summary] = list_summaries(told.id)
    assert (summary.first_seq, summary.last_seq, summary.message_count) == (5, 8, 4)
    assert standing(told) == [1, 2, 3, 4, *range(9, 17)]
    assert [message.seq for message in load_messages(told.id)] == list(range(1, 17))
    [asked] = [event for event in load_events(told.id) if event.type == "compaction.requested"]
    assert asked.data["turn_ids"] == [ids[2], ids[3]]
    assert is_whole(told)


def test_many_named_turns_become_several_summaries_and_nothing_of_them_is_left(session, script):
    script(model_of(SUMMARY))
    add_turns(session, 14)
    with change(session.id) as record:
        session_store.update_session(
            record, config={"compaction": {"leaf_chunk_tokens": 500, "max_compaction_rounds": 2}}
        )
    ids = turn_ids(session)
    run = compact_now(session.id, turn_ids=ids[1:10])
    while (following := CompactionRun.objects.filter(session_id=session.id, ended_at=None).first()) is not None:
        assert following.turn_ids == ids[1:10], "what goes on is restricted in the same way"
        compact_session(session.id, run_id=following.id)
    assert run.outcome == "rounds_exhausted"
    assert len(list_summaries(session.id)) > 2
    assert standing(session) == [1, 2, *range(21, 29)]
    assert {summary.kind for summary in list_summaries(session.id)} == {"leaf"}
    assert is_whole(session)


def test_outputs_outside_the_named_turns_are_not_pruned(session, script):
    script(model_of(SUMMARY))
    add_turns(session, 6, text="Read it.", output="row of the ledger " * 400)
    run = compact_now(session.id, turn_ids=turn_ids(session)[:1])
    assert (run.pruned_parts, run.source_count) == (0, 2)
    assert "prune.completed" not in said(session)


def test_the_next_process_after_a_killed_one_keeps_to_the_named_turns(told, script):
    script(first_time(die))
    ids = turn_ids(told)
    run_id = request_manual(told.id, turn_ids=ids[:2])
    with pytest.raises(Killed):
        compact_session(told.id, run_id=run_id)
    lose_lease(run_id)
    run = compact_session(told.id, run_id=run_id)
    assert (run.state, run.attempts, run.turn_ids) == ("completed", 2, ids[:2])
    assert standing(told) == list(range(5, 17))
    assert is_whole(told)


def test_turns_that_may_not_be_compacted_are_refused_with_their_reason(told, alice, bob):
    ids = turn_ids(told)
    others = lifecycle.create_session(owner=bob)
    add_turns(others, 1)
    assert refused(told, "turn_nobody") == refused(told, turn_ids(others)[0]) == "TURN_NOT_FOUND"
    assert refused(told, "\0\ud800") == "TURN_NOT_FOUND"
    assert refused(told, ids[0], ids[2]) == "TURNS_NOT_ADJACENT"
    assert refused(told, ids[-1]) == refused(told, ids[0], *ids[1:]) == "TURN_PROTECTED"
    compact_now(told.id, turn_ids=ids[2:4])
    assert refused(told, ids[2]) == refused(told, *ids[1:3]) == "TURN_SUMMARISED"
    assert refused(told, ids[1], ids[4]) == "TURNS_NOT_ADJACENT"
    small = lifecycle.create_session(owner=alice)
    add_turns(small, 1, text="Hello.")
    add_turns(small, 8)
    assert refused(small, turn_ids(small)[0]) == "TURNS_TOO_SMALL"


async def test_a_running_turn_is_refused(told, script):
    model = script(Step(text="Soon. Now.", gate=asyncio.Event()))
    turn = await begin(told, "And now?", until=model)
    assert await db(refused, told, turn.id) == "TURN_NOT_ENDED"


def test_turns_of_another_branch_are_refused(told):
    ids = turn_ids(told)
    leave(told.id, parent=0, after_seq=2)
    add_turns(told, 8)
    assert refused(told, ids[3]) == refused(told, ids[0], ids[1]) == "TURN_NOT_ON_BRANCH"
    assert compact_now(told.id, turn_ids=[ids[0], turn_ids(told)[8]]).source_count == 4, "neighbours on this branch"


def test_a_live_compaction_of_other_turns_is_not_joined(told):
    ids = turn_ids(told)
    run_id = request_manual(told.id, turn_ids=ids[:2])
    assert request_manual(told.id, turn_ids=ids[1::-1]) == run_id, "the same request again"
    with pytest.raises(errors.CompactionBusy) as refusal:
        request_manual(told.id, turn_ids=ids[:3])
    assert refusal.value.details == {"run_id": run_id}
    assert request_manual(told.id) == run_id


def test_the_database_refuses_to_change_which_turns_were_named(told):
    run_id = request_manual(told.id, turn_ids=turn_ids(told)[:2])
    with pytest.raises(DatabaseError), connection.cursor() as cursor:
        cursor.execute("UPDATE compaction_runs SET turn_ids = '[]' WHERE id = %s", [run_id])


def test_what_was_shown_again_before_stays_and_automatic_compaction_is_due_as_before(session, script):
    script(model_of(SUMMARY))
    add_turns(session, 14)
    set_window(session, 4_000)
    due = find_trigger(session.id)
    assert due is not None
    assert due.compact
    ids = turn_ids(session)
    compact_now(session.id, turn_ids=ids[:2])
    still = find_trigger(session.id)
    assert still is not None
    assert still.compact, "the rest is as large as it was"
    assert newest_compacted_by_hand(session.id) == 4


def test_what_an_automatic_compaction_shows_again_is_decided_by_that_one_alone(told):
    refill = Refill(first_seq=1, last_seq=2, tokens=100, room=300, step=50)
    with change(told.id) as record:
        run_id = store.request_run(record, trigger="soft")
        fence = store.claim_run(record, run_id, lease_owner="worker", lease_seconds=60)
        store.finish_run(record, run_id, outcome="target_met", tokens_after=100, fence=fence, refill=refill)
    assert compact_now(told.id, turn_ids=turn_ids(told)[:2]).state == "completed"
    assert last_refill(told.id, branch=0, at=10**6)[0] == refill


async def test_a_call_that_finds_too_little_done_by_a_compaction_of_named_turns_asks_for_more(session, script):
    script(model_of(SUMMARY))
    await db(add_turns, session, 24)
    await db(set_window, session, 4_000)
    before = await db(load_meter, session.id)
    assert before.used_tokens >= before.hard_tokens
    ids = await db(turn_ids, session)
    await db(lambda: request_manual(session.id, turn_ids=ids[:1]))
    await compact_before_call(session.id, size=await db(lambda: size_of(load_state(session.id))))
    meter = await db(load_meter, session.id)
    assert meter.used_tokens < meter.hard_tokens


def test_rest_the_command_and_the_client_name_turns(told, alice, client: Client, capsys):
    ids = turn_ids(told)
    client.force_login(alice)
    address = f"/api/sessions/{told.id}/compact"
    answer = client.post(address, {"wait": True, "turn_ids": ids[:1]}, content_type="application/json")
    assert (answer.status_code, answer.json()["turn_ids"]) == (200, ids[:1])
    again = client.post(address, {"turn_ids": ids[:1]}, content_type="application/json")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "TURN_SUMMARISED")
    for wrong in ([], [5], "turn", ["x" * 41], ids[:1] * 1001):
        assert client.post(address, {"turn_ids": wrong}, content_type="application/json").status_code in (400, 422)
    call_command("sessions", "compact", told.id, "--user", "alice", "--turn", ids[1], "--turn", ids[2], "--json")
    assert ids[2] in capsys.readouterr().out
    with pytest.raises(CommandError) as refusal:
        call_command("sessions", "compact", told.id, "--user", "alice", "--turn", ids[1])
    assert refusal.value.returncode == 5


def test_its_divider_and_the_timeline_say_which_turns(told, alice, client: Client):
    ids = turn_ids(told)
    run = compact_now(told.id, turn_ids=ids[:2])
    client.force_login(alice)
    page = client.get(f"/sessions/{told.id}/compactions/").content.decode()
    assert "on request, of 2 named turns" in page
    assert f"/turns/{ids[0]}/" in page
    shown = client.get(f"/sessions/{told.id}/inspect/compactions/{run.id}/", follow=True).content.decode()
    assert "manual compaction of 2 named turns" in shown
