"""When a session in host mode takes no messages, though some wait: it rests, may not spend, or has no room."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agents_app.queries import list_inbox
from agents_app.turns import claim as claim_module
from agents_app.turns import lifecycle
from agents_app.turns import runner as runner_module
from agents_app.turns.claim import claim_waiting, deliver
from agents_app.turns.runner import runner
from mnesis_core.config import override
from mnesis_core.errors import AtCapacity
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState
from mnesis_core.turns.inbox import Draft, InboxMessage
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.record.turn_queries import list_turns
from tests.support.people.story import ended, say
from tests.support.record.hosts import OTHERS, Make, _hosts, host, inbox, send, turns_ended

__all__ = ["_hosts", "host"]


async def test_a_process_that_does_not_stay_takes_no_messages(
    host: Make, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("Hello.")
    monkeypatch.setattr(runner_module, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(runner, "takes_messages", False)
    ida = await db(host, "ida")
    await send(ida, "wait for the web")
    await say(ida, "Hello")
    await asyncio.sleep(0.3)
    assert len(await inbox(ida, waiting=True)) == 1


async def test_a_full_process_leaves_the_messages_to_wait(
    host: Make, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("Read at last.")
    config = override(site_config(), {"turn": {"capacity": 1}})
    monkeypatch.setattr(runner_module, "site_config", lambda: config)
    monkeypatch.setattr(runner_module, "SWEEP_SECONDS", 0.05)
    ida = await db(host, "ida")
    with runner.permit():
        await send(ida, "when there is room")
        with pytest.raises(AtCapacity), runner.permit():
            pass
        await asyncio.sleep(0.2)
        assert len(await inbox(ida, waiting=True)) == 1
    [turn] = await turns_ended(ida, 1)
    assert turn.state == TurnState.COMPLETED


async def test_after_an_interrupt_a_session_rests_until_a_person_says_something(host: Make, script: Any) -> None:
    model = script(Step(text="one two", gate=asyncio.Event()), "I go on.")
    ida, bert = await db(host, "ida"), await db(host, "bert")
    started = await lifecycle.start_turn(ida.id, owner_id=ida.owner_id, message="Go")
    await asyncio.wait_for(model.at_gate.wait(), 60)
    await send(ida, "from a peer", sender=bert.id)
    await db(lifecycle.interrupt, ida.id, owner_id=ida.owner_id)
    assert (await ended(started.turn)).state == TurnState.CANCELLED
    await send(ida, "another one of the peer", sender=bert.id)
    assert await db(claim_waiting, ida.id, lease_owner=OTHERS) is None
    await send(ida, "Go on, please.")
    turns = await turns_ended(ida, 2)
    assert [message.turn_id for message in await inbox(ida)] == [turns[1].id] * 3


async def test_a_word_that_comes_while_a_session_looks_is_not_left_out_of_the_turn_that_it_allows(
    host: Make, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = script(Step(text="one two", gate=asyncio.Event()))
    ida, bert = await db(host, "ida"), await db(host, "bert")
    started = await lifecycle.start_turn(ida.id, owner_id=ida.owner_id, message="Go")
    await asyncio.wait_for(model.at_gate.wait(), 60)
    await db(lifecycle.interrupt, ida.id, owner_id=ida.owner_id)
    await ended(started.turn)
    monkeypatch.setattr(runner, "takes_messages", False)
    await send(ida, "from a peer", sender=bert.id)

    def read_and_then_speak(session_id: str, **values: Any) -> list[InboxMessage]:
        read = list_inbox(session_id, **values)
        deliver(ida.id, owner_id=ida.owner_id, draft=Draft(text="Go on, please."))
        return read

    monkeypatch.setattr(claim_module, "list_inbox", read_and_then_speak)
    assert await db(claim_waiting, ida.id, lease_owner=OTHERS) is None


async def test_while_nothing_may_be_spent_messages_wait_and_nothing_runs(host: Make, script: Any) -> None:
    model = script("Read.")
    ida = await db(host, "ida", config={"limits": {"session": {"tokens": 10}}})
    await send(ida, "too dear")
    assert await db(claim_waiting, ida.id, lease_owner=OTHERS) is None
    assert not await db(list_turns, ida.id)
    assert model.requests == []
    await db(lifecycle.update_session, ida.id, owner_id=ida.owner_id, config={})
    runner.check_inbox(ida.id)
    [turn] = await turns_ended(ida, 1)
    assert turn.state == TurnState.COMPLETED


async def test_a_turn_that_used_its_budget_up_is_not_followed_by_another(host: Make, script: Any) -> None:
    script(lambda request: "Said.")
    ida, bert = await db(host, "ida"), await db(host, "bert")
    await db(lifecycle.update_session, ida.id, owner_id=ida.owner_id, config={"limits": {"turn": {"tokens": 10}}})
    await send(ida, "the first", sender=bert.id)
    [turn] = await turns_ended(ida, 1)
    assert (turn.state, turn.error_code) == (TurnState.INCOMPLETE, "BUDGET_EXHAUSTED")
    await send(ida, "the second", sender=bert.id)
    assert await db(claim_waiting, ida.id, lease_owner=OTHERS) is None
    assert [message.text for message in await inbox(ida, waiting=True)] == ["the second"]
