"""Below the soft threshold a turn costs nothing for compaction; above it the request commits with the turn's end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from django_q.models import OrmQ

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle, transactions
from agents_app.turns.transactions import TurnEnd
from compaction_app.context.state import load_frame, load_meter
from compaction_app.queries import list_runs
from mnesis_core.context.fitting import Size
from mnesis_core.errors import Conflict
from mnesis_core.llm.interface import Source, Usage
from mnesis_core.llm.tokens import CountSource
from mnesis_core.messages import Message, TextPart
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState, UsageRecord
from sessions_app.database.threads import db
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.turn_queries import load_turn
from tests.support.people.story import say, tool_call

OF_COMPACTION = ("compaction_runs", "summary_nodes", "summary_edges", "django_q")
BY_THE_CLOCK = (
    "stream_journal",
    "lease_owner",
    "lease_expires_at",
    "operator_runs",
    "language_models",
    "pg_notify",
    '"interrupt_requested_at" IS NOT NULL',
    '"kept_at" IS NULL',
)
"""Sent as time passes (by heartbeats, the poll for interrupts and the sweep), and as a model's counts are learnt."""
READ_OR_WRITE = ("SELECT", "INSERT", "UPDATE", "DELETE")

Statements = Callable[[], list[str]]


@tool()
def wordy(context: ToolContext) -> str:
    """Say more than the window takes."""
    return "The tide gauge at Portwell reads forty one. " * 1_000


@pytest.fixture
def statements(settings, caplog) -> Statements:
    """What any thread has sent to the database since it was last asked."""
    settings.DEBUG = True  # else nobody writes them down
    caplog.set_level(logging.DEBUG, "django.db.backends")

    def sent() -> list[str]:
        found = [record.sql.lstrip("( \n") for record in caplog.records if hasattr(record, "sql")]
        caplog.clear()
        return [sql for sql in found if sql.startswith(READ_OR_WRITE) and not any(map(sql.__contains__, BY_THE_CLOCK))]

    return sent


def add_turns(session_id: str, count: int, *, words: int = 1) -> None:
    """Finished turns without calls, as an import writes them."""
    for _ in range(count):
        with change(session_id) as record:
            turn_id = turn_store.start_turn(record, model="demo")
            message = Message(role="user", parts=(TextPart(text="tide " * words),))
            message_store.append_message(record, turn_id=turn_id, message=message)
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)


async def test_below_the_soft_threshold_a_turn_sends_nothing_for_compaction(session, script, statements):
    usage = Usage(input_tokens=200, output_tokens=5, source=Source.PROVIDER)
    call = tool_call("calculator", expression="2+2")
    script(*[step for _ in range(3) for step in (Step(tool_calls=(call,), usage=usage), Step(text="4.", usage=usage))])
    costs = []
    for history in (0, 10, 100):
        await db(add_turns, session.id, history)
        statements()
        assert (await say(session, "2+2?")).state == TurnState.COMPLETED
        sent = statements()
        assert not [sql for sql in sent if any(map(sql.__contains__, OF_COMPACTION))]
        costs.append(len(sent))
    assert await db(list_runs, session.id) == []
    assert costs[1] == costs[2]


async def test_the_provider_s_count_decides(session, script):
    soft = (await db(load_meter, session.id)).soft_tokens
    await db(add_turns, session.id, 4, words=soft // 5)
    assert soft / 2 < (await db(load_meter, session.id)).used_tokens < soft - 200
    script(Step(text="Yes.", usage=Usage(input_tokens=soft + 100, output_tokens=5, source=Source.PROVIDER)))
    await say(session, "Is it full?")
    [run] = await db(list_runs, session.id)
    assert run.trigger == "soft"
    events = await db(load_events, session.id, limit=1_000)
    [data] = [event.data for event in events if event.type == "compaction.triggered"]
    assert data["source"] == "provider"
    assert soft + 100 < data["tokens"] < soft + 200


async def test_results_of_tools_after_the_last_count_are_measured_too(alice, script):
    config = {"turn": {"max_steps": 1, "tools": ["wordy"]}}
    session = await db(lifecycle.create_session, owner=alice, config=config)
    await db(add_turns, session.id, 8, words=100)
    call = tool_call("wordy")
    script(Step(tool_calls=(call,), usage=Usage(input_tokens=100, output_tokens=5, source=Source.PROVIDER)))
    turn = await say(session, "Say all of it.")
    assert turn.error_code == "STEP_LIMIT_REACHED"
    assert [run.trigger for run in await db(list_runs, session.id)] == ["hard"]


def test_the_request_commits_with_the_turn_s_end_or_not_at_all(session):
    add_turns(session.id, 8, words=100)
    with change(session.id) as record:
        turn_id = turn_store.start_turn(record, model="demo", lease_owner="here", lease_seconds=60)
    turn = load_turn(turn_id, session_id=session.id)
    full = (load_frame(session.id), Size(tokens=10**6, source=CountSource.ESTIMATED))
    end = TurnEnd(state=TurnState.COMPLETED)
    with pytest.raises(Conflict):
        transactions.finish_turn(replace(turn, fence=2), end, step=None, usage=UsageRecord(), context=full)
    assert (list_runs(session.id), OrmQ.objects.count()) == ([], 0)
    transactions.finish_turn(turn, end, step=None, usage=UsageRecord(), context=full)
    assert ([run.trigger for run in list_runs(session.id)], OrmQ.objects.count()) == (["hard"], 1)
