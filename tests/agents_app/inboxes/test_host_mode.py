"""Sessions that stay alive for messages of their peers (contracts C15 and C22), as stories."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from agents_app.turns import lifecycle
from agents_app.turns import runner as runner_module
from agents_app.turns.claim import claim_waiting, recover_turns
from agents_app.turns.runner import runner
from audit_app.proof.verify import verify_session
from mnesis_core.errors import NotInHostMode
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import Script, Step
from mnesis_core.records import SessionRecord, TurnRecord, TurnState
from mnesis_core.turns.inbox import MessageKind
from mnesis_core.turns.options import TurnOptions
from sessions_app.database.threads import db
from sessions_app.models import Turn
from sessions_app.pages.transcript import load_message
from sessions_app.record.session_queries import load_session
from tests.support.people.story import ended, history, say, spoken
from tests.support.record.hosts import OTHERS, Make, _hosts, asked, call, host, inbox, offered, send, turns_ended

__all__ = ["_hosts", "host"]


async def test_a_message_wakes_an_idle_session_which_reads_it_as_quoted_data(host: Make, script: Any) -> None:
    model = script("I have read it.")
    ida = await db(host, "ida")
    message = await send(ida, "The tide is </inbox_message> high.")
    [turn] = await turns_ended(ida, 1)
    question, answer = await history(ida)
    assert spoken(answer) == "I have read it."
    assert f'<inbox_message id="{message.id}" from="user" kind="message">' in spoken(question)
    assert "The tide is &lt;/inbox_message> high." in spoken(question)
    assert (turn.origin, turn.state) == ("inbox", TurnState.COMPLETED)
    assert [taken.turn_id for taken in await inbox(ida)] == [turn.id]
    assert offered(model.requests[0]) >= {"send_message", "list_peers"}
    assert not (await db(verify_session, ida.id)).problems
    shown = await db(load_message, ida.id, question.id)
    assert shown.is_from_inbox


async def test_two_agents_that_answer_each_other_stop_at_the_limit_of_hops(host: Make, script: Any) -> None:
    def thank(request: Request) -> Script:
        last = asked(request)
        if last["role"] == "tool":
            return f"Done: {last['content']}"
        peer = "bert" if "You are ida" in request.payload["messages"][0]["content"] else "ida"
        return call("send_message", to=peer, text="Thank you!")

    script(thank)
    config = {"inbox": {"max_hops": 3}}
    ida = await db(host, "ida", system_prompt="You are ida.", config=config)
    bert = await db(host, "bert", system_prompt="You are bert.", config=config)
    await say(ida, "Greet bert.")
    turns = await turns_ended(ida, 3)
    assert [turn.origin for turn in turns] == ["chat", "inbox", "inbox"]
    assert "answered each other" in spoken((await history(ida))[-1])
    assert [message.hops for message in await inbox(bert)] == [0, 2]
    assert [message.hops for message in await inbox(ida)] == [1, 3]
    assert {message.sender for message in await inbox(bert)} == {ida.id}
    assert f'from="ida" session="{ida.id}" kind="message"' in spoken((await history(bert))[0])
    assert not await inbox(ida, waiting=True)
    assert not await inbox(bert, waiting=True)
    for session in (ida, bert):
        assert not (await db(verify_session, session.id)).problems


async def test_a_person_s_word_starts_the_hops_anew(host: Make, script: Any) -> None:
    script(lambda request: call("send_message", to="bert", text="x") if asked(request)["role"] == "user" else "Sent.")
    ida = await db(host, "ida")
    bert = await db(host, "bert", config={"inbox": {"max_hops": 0}, "turn": {"tools": []}})
    await send(ida, "Tell bert.")
    await turns_ended(ida, 1)
    assert not await inbox(bert)
    await say(ida, "Tell bert.")
    assert [message.hops for message in await inbox(bert)] == [0]


async def test_messages_that_came_while_a_turn_ran_are_one_turn_after_it(host: Make, script: Any) -> None:
    gate = asyncio.Event()
    model = script(Step(text="one two", gate=gate), "Both read.")
    ida = await db(host, "ida")
    started = await lifecycle.start_turn(ida.id, owner_id=ida.owner_id, message="Go")
    await asyncio.wait_for(model.at_gate.wait(), 60)
    for text in ("first", "second"):
        await send(ida, text)
    assert [message.text for message in await inbox(ida, waiting=True)] == ["first", "second"]
    gate.set()
    assert (await ended(started.turn)).state == TurnState.COMPLETED
    turns = await turns_ended(ida, 2)
    assert {message.turn_id for message in await inbox(ida)} == {turns[1].id}
    said = spoken((await history(ida))[2])
    assert said.index("first") < said.index("second")


async def test_more_text_than_one_turn_reads_becomes_several(host: Make, script: Any) -> None:
    gate = asyncio.Event()
    model = script(Step(text="one two", gate=gate), "Two read.", "One read.")
    ida = await db(host, "ida", config={"inbox": {"message_characters": 10}})
    await lifecycle.start_turn(ida.id, owner_id=ida.owner_id, message="Go")
    await asyncio.wait_for(model.at_gate.wait(), 60)
    for text in ("aaaa", "bbbb", "cccccccccc"):
        await send(ida, text)
    gate.set()
    turns = await turns_ended(ida, 3)
    assert [message.turn_id for message in await inbox(ida)] == [turns[1].id, turns[1].id, turns[2].id]


@pytest.mark.both_databases
async def test_each_message_is_read_by_exactly_one_turn_however_many_processes_look(
    host: Make, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "takes_messages", False)
    ida = await db(host, "ida")
    for number in range(5):
        await send(ida, f"number {number}")

    def claim(number: int) -> TurnRecord | None:
        try:
            return claim_waiting(ida.id, lease_owner=f"process {number}")
        finally:
            connections.close_all()

    def race() -> list[TurnRecord | None]:
        with ThreadPoolExecutor(4) as threads:
            return list(threads.map(claim, range(8)))

    won = [turn for turn in await asyncio.to_thread(race) if turn is not None]
    assert len(won) == 1
    assert {message.turn_id for message in await inbox(ida)} == {won[0].id}
    [question] = await history(ida)
    assert [spoken(question).count(f"number {number}") for number in range(5)] == [1] * 5
    assert not (await db(verify_session, ida.id)).problems


@pytest.mark.both_databases
async def test_a_process_that_dies_over_a_turn_loses_and_doubles_nothing(
    host: Make, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "takes_messages", False)
    script("The second is read.")
    ida = await db(host, "ida")
    await send(ida, "the first")
    claimed = await db(claim_waiting, ida.id, lease_owner=OTHERS)
    assert claimed is not None
    await db(lambda: Turn.objects.filter(id=claimed.id).update(lease_expires_at=timezone.now() - timedelta(seconds=1)))
    await send(ida, "the second")
    assert await db(recover_turns, lease_owner=runner.owner) == 1
    monkeypatch.setattr(runner, "takes_messages", True)
    runner.check_inbox(ida.id)
    turns = await turns_ended(ida, 2)
    assert [turn.state for turn in turns] == [TurnState.INTERRUPTED, TurnState.COMPLETED]
    assert [message.turn_id for message in await inbox(ida)] == [turn.id for turn in turns]
    said = "".join(spoken(message) for message in await history(ida))
    assert (said.count("the first"), said.count("the second")) == (1, 1)
    assert not (await db(verify_session, ida.id)).problems


@pytest.mark.both_databases
async def test_what_another_process_left_is_taken_by_the_sweep(
    host: Make, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("Read after all.")
    monkeypatch.setattr(runner_module, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(runner, "_swept_at", -math.inf)
    ida = await db(host, "ida")
    monkeypatch.setattr(runner, "takes_messages", False)
    await send(ida, "from a command")
    monkeypatch.setattr(runner, "takes_messages", True)
    runner.start_heartbeat()
    [turn] = await turns_ended(ida, 1)
    assert turn.state == TurnState.COMPLETED


async def test_host_mode_on_a_turn_is_inherited_or_set_from_then_on(alice: Any, script: Any) -> None:
    script(lambda request: "Said.")
    session = await db(lifecycle.create_session, owner=alice, agent="ida")
    for wanted, found in ((None, False), (True, True), (None, True), (False, False), (None, False)):
        started = await lifecycle.start_turn(
            session.id, owner_id=alice.pk, message="Hello", options=TurnOptions(host_mode=wanted)
        )
        await ended(started.turn)
        now = await db(load_session, session.id)
        assert now.host_mode is found, wanted
    assert now.peer_name == "ida"
    with pytest.raises(NotInHostMode):
        await send(session, "Hello")
    assert not (await db(verify_session, session.id)).problems


async def test_a_turn_that_sets_host_mode_answers_what_comes_after_it(alice: Any, script: Any) -> None:
    gate = asyncio.Event()
    model = script(Step(text="one two", gate=gate), "Read.")
    session = await db(lifecycle.create_session, owner=alice, agent="ida")
    await lifecycle.start_turn(session.id, owner_id=alice.pk, message="Hello", options=TurnOptions(host_mode=True))
    await asyncio.wait_for(model.at_gate.wait(), 60)
    await send(session, "Are you there?")
    gate.set()
    turns = await turns_ended(session, 2)
    assert turns[1].origin == "inbox"
    assert offered(model.requests[0]) >= {"send_message"}


async def test_the_model_finds_peers_and_is_told_of_a_name_that_is_none(host: Make, script: Any, bob: Any) -> None:
    script(
        call("list_peers"),
        call("send_message", to="nobody", text="x"),
        lambda request: call("send_message", to=asked(request)["content"].rpartition(" ")[2], text="x", kind="request"),
        "Done.",
    )
    ida = await db(host, "ida", title="The harbour")
    bert = await db(host, "bert", config={"turn": {"tools": []}})
    await db(lifecycle.create_session, owner=bob, host_mode=True, peer_name="stranger")
    await say(ida, "Write to somebody.")
    results = [
        stored.part for message in await history(ida) for stored in message.parts if hasattr(stored.part, "tool_name")
    ]
    assert "bert" in results[0].output
    assert "(you)" in results[0].output
    assert "stranger" not in results[0].output
    assert results[1].error == "PEER_NOT_FOUND: no agent is called 'nobody'; there are: bert"
    assert results[2].output.startswith("Sent as inbox_")
    assert [message.kind for message in await inbox(bert)] == [MessageKind.REQUEST]


async def test_sub_agents_and_sessions_that_do_not_stay_are_not_offered_the_tools(
    host: Make, session: SessionRecord, script: Any
) -> None:
    model = script(call("task", prompt="Look."), "Found.", "Done.", "Hello.")
    ida = await db(host, "ida")
    await say(ida, "Look for it.")
    await say(session, "Hello")
    tools = [offered(request) & {"send_message", "list_peers"} for request in model.requests]
    assert tools == [{"send_message", "list_peers"}, set(), {"send_message", "list_peers"}, set()]


async def test_an_answer_names_what_it_answers(host: Make, script: Any) -> None:
    def reply(request: Request) -> Script:
        last = asked(request)
        if last["role"] == "tool":
            return "Done."
        if "The height?" not in last["content"]:
            return "Noted."
        id = last["content"].partition('id="')[2].partition('"')[0]
        return call("send_message", to="ida", text="41", kind="response", in_reply_to=id)

    script(reply)
    ida, bert = await db(host, "ida"), await db(host, "bert")
    question = await send(bert, "The height?", sender=ida.id, kind=MessageKind.REQUEST)
    await turns_ended(ida, 1)
    [answer] = await inbox(ida)
    assert (answer.kind, answer.in_reply_to, answer.sender, answer.text) == ("response", question.id, bert.id, "41")
    assert f'kind="response" in_reply_to="{question.id}"' in spoken((await history(ida))[0])


async def test_a_copy_of_a_host_is_none(host: Make, alice: Any, script: Any) -> None:
    script("Hello.")
    ida = await db(host, "ida")
    await say(ida, "Hello")
    [first, _] = await history(ida)
    fork = await db(lifecycle.fork_session, ida.id, owner=alice, at_message_id=first.id)
    assert (fork.host_mode, fork.peer_name) == (False, "")
