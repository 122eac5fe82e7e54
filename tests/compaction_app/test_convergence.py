"""The story of a compaction over the real stores: whatever the history and the model, it ends and loses nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from django.contrib.auth.models import User
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from compaction_app.compact import compact_now, compact_session, find_trigger, request_if_due
from compaction_app.context.state import load_meter, load_state
from compaction_app.queries import list_runs, list_summaries, live_run
from mnesis_core.compaction.selection import Outcome
from mnesis_core.context.entries import MessageEntry, SummaryEntry
from mnesis_core.messages import Message, Part, TextPart
from mnesis_core.records import RunRecord, SessionRecord, TurnState
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from tests.support.material.histories import Exchange, exchanges
from tests.support.providers.hostile_models import MODELS, hang

pytestmark = pytest.mark.both_databases

KINDS = {**MODELS, "hanging": hang}

ENOUGH_RUNS = 60
TIMEOUT_SECONDS = 0.5
"""Long enough for every model but the one that hangs."""


def part_of(answer: Part | str) -> Part:
    return TextPart(text=answer) if isinstance(answer, str) else answer


def tell(session: SessionRecord, talk: Sequence[Exchange]) -> None:
    """Write a history as finished turns."""
    for exchange in talk:
        with change(session.id) as record:
            turn_id = turn_store.start_turn(record, model="demo")
            if exchange.question is not None:
                question = Message(role="user", parts=(TextPart(text=exchange.question),))
                message_store.append_message(record, turn_id=turn_id, message=question)
            answer = Message(role="assistant", parts=tuple(map(part_of, exchange.answers)))
            message_store.append_message(record, turn_id=turn_id, message=answer)
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)


def ask_for_what_is_due(session: SessionRecord) -> str | None:
    """What the end of a turn does."""
    trigger = find_trigger(session.id)
    with change(session.id) as record:
        return request_if_due(record, trigger)


def work_off(session: SessionRecord) -> list[RunRecord]:
    """What workers do until nothing is queued."""
    done: list[RunRecord] = []
    while (run_id := live_run(session.id)) is not None:
        done.append(compact_session(session.id, run_id=run_id))
        assert done[-1].state == "completed"
        assert done[-1].outcome in set(Outcome)
        assert len(done) < ENOUGH_RUNS
    return done


def expanded(session: SessionRecord) -> list[str]:
    """The messages that the context stands for, in order."""
    sources = {summary.id: [id for _, id in summary.source_ids] for summary in list_summaries(session.id)}

    def down(name: str) -> list[str]:
        return [found for id in sources[name] for found in down(id)] if name in sources else [name]

    entries = load_state(session.id).entries
    return [
        found for entry in entries for found in down(entry.id if isinstance(entry, SummaryEntry) else entry.message.id)
    ]


@pytest.mark.slow
@settings(
    max_examples=12,
    deadline=None,
    # Shrinking asks the database again and again; the pure layer finds the smallest history faster.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(exchanges, min_size=3, max_size=12),
    st.sampled_from(sorted(KINDS)),
    st.sampled_from([4_000, 8_000, 16_000]),
    st.integers(1, 10),
)
def test_compaction_converges_over_the_real_stores(
    alice: User, script, talk: list[Exchange], kind: str, window: int, rounds: int
) -> None:
    model = script(KINDS[kind], window=window)
    compaction = {"max_compaction_rounds": rounds, "model": "demo", "model_timeout_seconds": TIMEOUT_SECONDS}
    config = {"context_window": window, "compaction": compaction}
    session = lifecycle.create_session(owner=alice, config=config)
    tell(session, talk)
    before = load_messages(session.id, limit=1_000)

    is_due = ask_for_what_is_due(session) is not None
    runs = work_off(session)
    assert bool(runs) is is_due
    if not is_due:
        compact_now(session.id)
        runs = work_off(session) or list_runs(session.id)[:1]

    last, meter = runs[-1].outcome, load_meter(session.id)
    assert last != Outcome.ROUNDS_EXHAUSTED or meter.used_tokens < meter.soft_tokens
    assert meter.used_tokens < meter.hard_tokens or last in (Outcome.STILL_TOO_LARGE, Outcome.NOTHING_TO_SUMMARISE)
    assert expanded(session) == [message.id for message in before]
    assert [message.id for message in load_messages(session.id, limit=1_000)] == [message.id for message in before]
    newest = [entry.message.id for entry in load_state(session.id).entries if isinstance(entry, MessageEntry)]
    assert before[-1].id == newest[-1]

    asked, summaries = len(model.requests), len(list_summaries(session.id))
    assert ask_for_what_is_due(session) is None, "no second compaction of the same context is queued"
    assert asked == len(model.requests)
    assert verify_session(session.id).problems == []
    assert len(list_summaries(session.id)) == summaries


@pytest.mark.slow
@settings(
    max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.lists(exchanges, min_size=5, max_size=12), st.sampled_from(sorted(MODELS)))
def test_asked_for_twice_it_works_once(alice: User, script, talk: list[Exchange], kind: str) -> None:
    model = script(MODELS[kind])
    session = lifecycle.create_session(owner=alice)
    tell(session, talk)
    compact_now(session.id)
    work_off(session)
    asked, context = len(model.requests), load_state(session.id).entries
    again = compact_now(session.id)
    assert (again.state, again.summary_ids, again.pruned_parts) == ("completed", [], 0)
    assert again.outcome in (Outcome.TARGET_MET, Outcome.NOTHING_TO_SUMMARISE)
    assert live_run(session.id) is None
    assert len(model.requests) == asked
    assert load_state(session.id).entries == context


def test_a_model_that_hangs_costs_one_timeout_and_level_3_ends_it(alice: User, script) -> None:
    model = script(hang)
    session = lifecycle.create_session(owner=alice, config={"compaction": {"model_timeout_seconds": 0.05}})
    tell(session, [Exchange(question="Where are the ledgers? " * 40, answers=("Here. ",), has_turn=True)] * 8)
    run = compact_now(session.id)
    assert (run.state, run.outcome, run.level) == ("completed", "target_met", 3)
    assert len(model.requests) == len(run.summary_ids) == model.abandoned
    assert [(attempt.level, attempt.reason) for attempt in run.tries] == [(1, "timeout"), (3, "")]
