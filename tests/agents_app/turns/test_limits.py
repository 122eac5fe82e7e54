"""A turn at its limits: it ends in order, with what it has, and says which limit it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from agents_app.turns.overview import SessionRead
from mnesis_core.llm.interface import ToolCall, Usage
from mnesis_core.messages import TextPart, ToolPart
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import SessionRecord, TurnRecord, UsageRecord
from mnesis_core.spending import TurnLimits
from mnesis_core.turns.options import RecordedTurn
from sessions_app.database.threads import db
from sessions_app.record.context_queries import load_events
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import begin, ended, history, say, spoken, tool_call

Script = Callable[..., ScriptedModel]


def limited(owner: User, **limits: Any) -> SessionRecord:
    return lifecycle.create_session(owner=owner, config={"limits": limits})


def calculate(number: int) -> ToolCall:
    return tool_call("calculator", f"c{number}", expression=f"{number} + 1")


async def events(session: SessionRecord, prefix: str = "budget.") -> list[tuple[str, dict[str, Any]]]:
    told = await db(load_events, session.id)
    return [(event.type, event.data) for event in told if event.type.startswith(prefix)]


async def start(session: SessionRecord, message: str = "Hello", **options: Any) -> TurnRecord:
    return await ended(await begin(session, message, **options))


async def test_a_call_that_could_pass_a_limit_is_not_made(alice: User, script: Script) -> None:
    model = script("never said")
    session = await db(limited, alice, turn={"tokens": 500})
    turn = await say(session, "Hello")
    assert (turn.state, turn.error_code) == ("incomplete", "BUDGET_EXHAUSTED")
    assert turn.error_message is not None
    assert turn.error_message.startswith("A limit leaves too little for the next call, which may take ")
    assert turn.error_message.endswith(": 0 of 500 tokens in a turn are used. What was said is kept.")
    assert model.requests == []
    [(type, data)] = await events(session)
    assert (type, data["scope"], data["measure"], data["limit"]) == ("budget.exhausted", "turn", "tokens", 500)
    assert data["turn_id"] == turn.id


async def test_a_turn_ends_between_two_calls_with_what_it_has(alice: User, script: Script) -> None:
    first = Step(text="Let me see.", tool_calls=(calculate(1),), usage=Usage(input_tokens=1_000, output_tokens=1_000))
    script(first, "never said")
    session = await db(limited, alice, session={"tokens": 3_000})
    turn = await say(session, "Hello")
    assert (turn.state, turn.error_code) == ("incomplete", "BUDGET_EXHAUSTED")
    messages = await history(session)
    assert [spoken(message) for message in messages] == ["Hello", "Let me see."]
    assert [stored.part.output for stored in messages[1].parts if isinstance(stored.part, ToolPart)] == ["2"]
    assert (turn.usage.tokens_input, turn.usage.tokens_output) == (1_000, 1_000)


@pytest.mark.slow
async def test_time_cuts_an_answer_off_and_keeps_what_was_said(alice: User, script: Script) -> None:
    model = script(Step(text="one two three " * 100, delay_seconds=0.1))
    session = await db(limited, alice, turn={"seconds": 1.5})
    began = time.monotonic()
    turn = await say(session, "Hello")
    assert time.monotonic() - began < 25
    assert (turn.state, turn.error_code) == ("incomplete", "BUDGET_EXHAUSTED")
    assert turn.error_message == "A limit is used up: 1.5 of 1.5 seconds in a turn. What was said is kept."
    said = spoken((await history(session))[1])
    assert said.startswith("one two three")
    assert model.abandoned == 1
    [call] = await db(list_calls, session.id)
    assert (call.error_code, call.usage.usage_source) == ("BUDGET_EXHAUSTED", "estimated")
    assert call.usage.tokens_output
    assert turn.usage.tokens_output == call.usage.tokens_output
    assert [(type, data["measure"]) for type, data in await events(session)][-1] == ("budget.exhausted", "milliseconds")


@tool(read_only=True)
async def linger(context: ToolContext) -> str:
    """Take a long time."""
    await asyncio.sleep(30)
    return "never said"


async def test_time_cuts_a_tool_off_too(alice: User, script: Script) -> None:
    script(tool_call("linger"), "never said")
    config = {"limits": {"session": {"seconds": 0.5}}, "turn": {"tools": ["linger"]}}
    session = await db(lifecycle.create_session, owner=alice, config=config)
    turn = await say(session, "Hello")
    assert (turn.state, turn.error_code) == ("incomplete", "BUDGET_EXHAUSTED")
    [part] = [stored.part for stored in (await history(session))[1].parts if isinstance(stored.part, ToolPart)]
    assert part.error is not None


async def test_of_parallel_tool_calls_only_those_that_may_are_run(alice: User, script: Script) -> None:
    script(Step(tool_calls=tuple(calculate(number) for number in range(3))), "never said")
    session = await db(limited, alice, turn={"tool_calls": 2})
    turn = await say(session, "Hello")
    assert (turn.state, turn.error_code) == ("incomplete", "BUDGET_EXHAUSTED")
    parts = [stored.part for stored in (await history(session))[1].parts if isinstance(stored.part, ToolPart)]
    assert sorted(part.output is not None for part in parts) == [False, True, True]
    [refused] = [part.error for part in parts if part.error]
    assert refused.startswith("BUDGET_EXHAUSTED: A limit is used up: 2 of 2 tool calls in a turn.")


async def test_the_callers_limits_of_one_turn_hold_for_that_turn(alice: User, script: Script) -> None:
    script("first", "second")
    session = await db(limited, alice)
    assert (await start(session, limits=TurnLimits(tokens=10))).error_code == "BUDGET_EXHAUSTED"
    assert (await start(session)).state == "completed"


async def test_what_a_caller_ran_elsewhere_is_on_the_bill_and_draws_on_no_limit(alice: User, script: Script) -> None:
    script("first")
    session = await db(limited, alice, session={"tokens": 100_000}, day={"tokens": 100_000})
    usage = UsageRecord(tokens_input=10**6, tokens_output=5, usage_source="caller", cost_micros=7)
    elsewhere = RecordedTurn(user=(TextPart(text="Q"),), assistant=(TextPart(text="A"),), usage=usage)
    await db(lifecycle.record_turn, session.id, owner_id=alice.pk, turn=elsewhere)
    assert (await start(session)).state == "completed"
    shown = (await db(SessionRead.model_validate, session)).dict()
    assert all(line["spent"] < 100_000 for line in shown["budget"])
    assert shown["billing"]["input_tokens"] > 10**6


async def test_limits_are_warned_of_once_at_four_fifths(alice: User, script: Script) -> None:
    script(*(Step(text="x", usage=Usage(input_tokens=4_000, output_tokens=100)) for _ in range(3)))
    session = await db(limited, alice, session={"tokens": 9_100})
    for _ in range(3):
        await say(session, "Hello")
    told = await events(session)
    assert [(type, data["spent"]) for type, data in told] == [("budget.warning", 8_200), ("budget.exhausted", 8_200)]


async def test_a_cancelled_answer_is_counted_by_our_own_estimate(alice: User, script: Script) -> None:
    model = script(Step(text="one two three", gate=asyncio.Event()))
    session = await db(limited, alice)
    turn = await begin(session, "Hello", until=model)
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    turn = await ended(turn)
    assert turn.state == "cancelled"
    assert turn.usage.usage_source == "estimated"
    assert turn.usage.tokens_input
    assert turn.usage.tokens_output


async def test_a_compaction_at_the_limit_asks_no_model_and_says_so(alice: User, script: Script) -> None:
    script(*(["A story. " * 300] * 30))
    session = await db(limited, alice, session={"tokens": 10**6})
    for _ in range(6):
        assert (await say(session, "Tell me. " * 100)).state == "completed"
    await db(lifecycle.update_session, session.id, owner_id=alice.pk, config={"limits": {"session": {"tokens": 1}}})
    await say(session, "More. " * 4_000)
    reasons = {data.get("reason") for type, data in await events(session) if type == "budget.exhausted"}
    assert reasons >= {"budget_session"}
