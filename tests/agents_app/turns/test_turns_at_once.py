"""One person has so many turns running in a process and no more; others have theirs."""

from __future__ import annotations

import asyncio

import pytest

from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from mnesis_core.config import override
from mnesis_core.errors import TooManyTurns
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from tests.support.people.story import begin, ended, tool_call

MOST = 3


@pytest.fixture(autouse=True)
def few(monkeypatch):
    config = override(site_config(), {"turn": {"most_at_once": MOST}})
    monkeypatch.setattr("agents_app.turns.runner.site_config", lambda: config)


@pytest.fixture
def gate(script):
    """A model that answers nobody before the gate is open."""
    gate = asyncio.Event()
    script(lambda _: Step(text="x", gate=gate, gate_after=0))
    return gate


async def sessions_of(person, count=MOST + 1):
    return [await db(lifecycle.create_session, owner=person) for _ in range(count)]


async def test_a_person_has_no_more_turns_at_once_than_one_may(alice, bob, gate):
    *sessions, last = await sessions_of(alice)
    turns = [await begin(session, "Go") for session in sessions]
    with pytest.raises(TooManyTurns) as refused:
        await begin(last, "Go")
    assert refused.value.details == {"limit": MOST, "retry_after": 5}
    with pytest.raises(TooManyTurns):
        await lifecycle.begin_session(owner=alice, message="Go")
    [other] = await sessions_of(bob, 1)
    turns.append(await begin(other, "Go"))
    gate.set()
    assert {(await ended(turn)).state for turn in turns} == {TurnState.COMPLETED}
    assert (await ended(await begin(last, "Go"))).state == TurnState.COMPLETED
    assert runner._owners == {}


async def test_requests_that_come_together_count_each_other(alice, gate):
    sessions = await sessions_of(alice, 3 * MOST)
    came = await asyncio.gather(*(begin(session, "Go") for session in sessions), return_exceptions=True)
    assert sum(isinstance(one, TooManyTurns) for one in came) == 2 * MOST
    gate.set()
    assert [(await ended(turn)).state for turn in came if not isinstance(turn, TooManyTurns)] == ["completed"] * MOST


async def test_sub_agents_do_not_count(alice, script):
    tasks = [{"description": "read it", "prompt": "Say ok."} for _ in range(2 * MOST)]
    call = tool_call("tasks", tasks=tasks)
    script(lambda request: Step(tool_calls=(call,)) if "Hand it out" in str(request.payload["messages"][-1]) else "ok")
    [session] = await sessions_of(alice, 1)
    assert (await ended(await begin(session, "Hand it out"))).state == TurnState.COMPLETED


async def test_what_a_session_says_of_it_changes_nothing(alice, gate):
    configured = [
        await db(lifecycle.create_session, owner=alice, config={"turn": {"most_at_once": 1_000}})
        for _ in range(MOST + 1)
    ]
    for session in configured[:MOST]:
        await begin(session, "Go")
    with pytest.raises(TooManyTurns):
        await begin(configured[MOST], "Go")
    gate.set()
