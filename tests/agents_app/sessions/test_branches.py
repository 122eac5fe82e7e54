"""A session's messages are a tree: what is said after an earlier message, which branch goes on, and what models see of it."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.db import connection

from agents_app.turns import branches, lifecycle
from audit_app.proof.verify import verify_session
from compaction_app.context.state import load_state, rebuild_payload
from mnesis_core.errors import (
    BranchNotFoundError,
    IdempotencyMismatch,
    InvalidRequest,
    MessageNotFoundError,
    SessionArchived,
    SessionBusy,
    SessionNotFoundError,
)
from mnesis_core.providers.scripted import Step
from sessions_app.database.threads import db
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import begin, ended, history, say, spoken
from tests.support.proof.second_opinion import assert_agreed

pytestmark = pytest.mark.both_databases


async def ask(session, message, parent_id=None, **more):
    started = await lifecycle.start_turn(
        session.id, owner_id=session.owner_id, message=message, parent_id=parent_id, **more
    )
    return await ended(started.turn)


async def branches_of(session):
    return await db(branches.list_branches, session.id, owner_id=session.owner_id)


async def verified(session):
    report = await db(verify_session, session.id)
    assert report.problems == []
    await db(assert_agreed, session.id, report)
    for call in await db(list_calls, session.id):
        rebuilt = await db(rebuild_payload, call)
        assert (rebuilt.problems, rebuilt.digest_matches) == ((), True)


def seen_by(call_payload):
    return [message["content"] for message in call_payload["messages"] if message["role"] in ("user", "assistant")]


async def prompts(session):
    payloads = [(await db(rebuild_payload, call)).payload for call in await db(list_calls, session.id)]
    return [seen_by(payload) for payload in reversed(payloads)]


async def test_an_edited_question_has_its_own_answer_and_the_first_one_stays(session, script):
    script("I am well.", "It is blue.", "It is green.")
    await say(session, "How are you?")
    await say(session, "What colour is the sky?")
    _, answer, *_ = await history(session)
    await ask(session, "What colour is the sea?", answer.id)
    assert [spoken(message) for message in await history(session)] == [
        *("How are you?", "I am well.", "What colour is the sky?", "It is blue."),
        *("What colour is the sea?", "It is green."),
    ]
    assert (await prompts(session))[-1] == ["How are you?", "I am well.", "What colour is the sea?"]
    first, second = await branches_of(session)
    assert (first.number, first.is_chosen, first.parent, first.messages) == (0, False, None, 4)
    assert (second.number, second.is_chosen, second.parent, second.messages) == (1, True, 0, 2)
    assert second.after_message_id == answer.id
    await verified(session)


async def test_the_chosen_branch_goes_on_and_the_other_waits(session, script):
    script("1", "2", "3", "4", "5")
    await say(session, "a")
    _, answer = await history(session)
    await say(session, "b")
    await ask(session, "c", answer.id)
    await db(branches.choose_branch, session.id, 0, owner_id=session.owner_id)
    await say(session, "d")
    await db(branches.choose_branch, session.id, 1, owner_id=session.owner_id)
    await say(session, "e")
    assert (await prompts(session))[-2:] == [["a", "1", "b", "2", "d"], ["a", "1", "c", "3", "e"]]
    assert (await db(load_session, session.id)).branch == 1
    events = [(event.type, event.data.get("branch")) for event in await db(load_events, session.id)]
    assert [pair for pair in events if pair[0].startswith("branch.")] == [
        *(("branch.created", 1), ("branch.chosen", 1), ("branch.chosen", 0), ("branch.chosen", 1)),
    ]
    await verified(session)


async def test_what_a_user_said_is_answered_again(session, script):
    script("Once.", "Twice.")
    await say(session, "Say it.")
    question, _ = await history(session)
    turn = await ask(session, None, question.id)
    assert (await prompts(session))[-1] == ["Say it."]
    assert [(message.role, spoken(message)) for message in await history(session)][-1] == ("assistant", "Twice.")
    assert len(turn.message_ids) == 1
    await verified(session)


async def test_the_beginning_itself_can_be_said_differently(session, script):
    script("1", "2")
    await say(session, "a")
    await ask(session, "b", "root")
    assert (await prompts(session))[-1] == ["b"]
    assert (await branches_of(session))[1].after_message_id is None
    await verified(session)


async def test_the_last_message_of_a_branch_continues_it(session, script):
    script("1", "2", "3", "4")
    await say(session, "a")
    _, first = await history(session)
    await ask(session, "b", first.id)  # the end of branch 0: no other branch begins
    await ask(session, "c", first.id)
    *_, end, _, _ = await history(session)
    await ask(session, "d", end.id)
    assert (await prompts(session))[-1] == ["a", "1", "b", "2", "d"]
    assert [branch.messages for branch in await branches_of(session)] == [6, 2]
    assert (await db(load_session, session.id)).branch == 0
    await verified(session)


async def test_a_root_in_an_empty_session_begins_no_branch(session, script):
    script("1")
    await ask(session, "a", "root")
    assert len(await branches_of(session)) == 1


async def test_a_request_that_is_sent_twice_begins_one_branch(session, script):
    script("1", "2")
    await say(session, "a")
    question, _ = await history(session)
    for _ in range(2):
        await ask(session, "b", question.id, idempotency_key="k")
    assert len(await branches_of(session)) == 2
    with pytest.raises(IdempotencyMismatch):
        await ask(session, "b", "root", idempotency_key="k")


async def test_no_branch_is_chosen_or_begun_while_a_turn_runs(session, script):
    gate = asyncio.Event()
    script("1")
    await say(session, "a")
    question, _ = await history(session)
    model = script(Step(text=("2", "3"), gate=gate, gate_after=1))
    turn = await begin(session, "b", until=model)
    with pytest.raises(SessionBusy):
        await ask(session, "c", question.id)
    gate.set()
    await ended(turn)
    assert len(await branches_of(session)) == 1
    script("4", Step(text=("5", "6"), gate=asyncio.Event(), gate_after=1))
    await ask(session, "c", question.id)
    model = script(Step(text=("5", "6"), gate=asyncio.Event(), gate_after=1))
    await begin(session, "d", until=model)
    with pytest.raises(SessionBusy):
        await db(branches.choose_branch, session.id, 0, owner_id=session.owner_id)
    await db(branches.choose_branch, session.id, 1, owner_id=session.owner_id)  # the chosen one is no change


def test_a_branch_that_is_chosen_while_a_turn_is_being_claimed_is_refused(session):
    with change(session.id) as record:
        session_store.begin_branch(record, parent=0, after_seq=0)

    def choose():
        with pytest.raises(SessionBusy):
            branches.choose_branch(session.id, 1, owner_id=session.owner_id)

    meanwhile(session, lambda record: turn_store.start_turn(record, model="demo"), choose)
    assert load_session(session.id).branch == 0


def test_branches_that_are_begun_at_the_same_time_are_two(session):
    def begin_branch(record):
        session_store.choose_branch(record, session_store.begin_branch(record, parent=0, after_seq=0))

    def begin_another():
        with change(session.id) as record:
            begin_branch(record)

    meanwhile(session, begin_branch, begin_another)
    assert (load_session(session.id).branch_seq, load_session(session.id).branch) == (2, 2)
    assert verify_session(session.id).problems == []


def meanwhile(session, act, other):
    """Change a session, and do something else on another connection before the change is committed."""
    is_changing = threading.Event()

    def wait_and_act():
        is_changing.wait(60)
        try:
            other()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(wait_and_act)
        with change(session.id) as record:
            act(record)
            record.flush()
            is_changing.set()
            with suppress(TimeoutError):
                done.result(0.3)  # it waits for the session, and would be done if it did not
        done.result(60)


async def test_a_parent_that_is_not_there_or_elsewhere_is_refused_and_nothing_begins(session, script, alice, bob):
    script("1", "2", "3")
    await say(session, "a")
    for owner in (alice, bob):
        other = await db(lifecycle.create_session, owner=owner)
        await say(other, "x")
        theirs = (await history(other))[0].id
        with pytest.raises(MessageNotFoundError):
            await ask(session, "b", theirs)
    for unknown in ("msg_nosuch", "", "a\x00b", "\ud800", "x" * 100_000):
        with pytest.raises(MessageNotFoundError):
            await ask(session, "b", unknown)
    with pytest.raises(InvalidRequest):
        await ask(session, None, (await history(session))[1].id)
    with pytest.raises(InvalidRequest):
        await ask(session, None, "root")
    assert len(await branches_of(session)) == 1


async def test_a_branch_that_is_not_there_or_anothers_session_is_not_found(session, script, bob):
    for number in (1, -1, 2**63):
        with pytest.raises(BranchNotFoundError):
            await db(branches.choose_branch, session.id, number, owner_id=session.owner_id)
    with pytest.raises(SessionNotFoundError):
        await db(branches.list_branches, session.id, owner_id=bob.pk)
    with pytest.raises(SessionNotFoundError):
        await db(branches.choose_branch, session.id, 0, owner_id=bob.pk)


async def test_an_archived_session_keeps_its_choice(session, script):
    script("1", "2")
    await say(session, "a")
    await ask(session, "b", "root")
    await db(lifecycle.archive_session, session.id, owner_id=session.owner_id)
    with pytest.raises(SessionArchived):
        await db(branches.choose_branch, session.id, 0, owner_id=session.owner_id)


async def test_the_context_as_of_an_event_is_that_of_the_branch_of_then(session, script):
    script("1", "2", "3")
    await say(session, "a")
    await say(session, "b")
    before = (await db(load_session, session.id)).event_seq
    await ask(session, "c", (await history(session))[1].id)
    state = await db(load_state, session.id, at=before)
    assert [spoken(entry.message) for entry in state.entries] == ["a", "1", "b", "2"]
    state = await db(load_state, session.id, branch=0)
    assert [spoken(entry.message) for entry in state.entries] == ["a", "1", "b", "2"]
    await db(branches.choose_branch, session.id, 0, owner_id=session.owner_id)
    chosen = await db(load_state, session.id, at=before + 99)
    assert [spoken(entry.message) for entry in chosen.entries] == ["a", "1", "b", "2"]


async def test_the_api_names_parents_and_follows_a_branch(session, script, alice, async_client):
    script("1", "2", "3")
    await async_client.aforce_login(alice)
    await say(session, "a")
    first, answer = await history(session)
    url = f"/api/sessions/{session.id}"
    sent = {"message": "b", "parent_id": answer.id}
    response = await async_client.post(f"{url}/turns", sent, content_type="application/json")
    assert response.status_code == 202
    await ended_turn(session, response.json()["id"])
    response = await async_client.post(f"{url}/turns", sent | {"message": "c"}, content_type="application/json")
    await ended_turn(session, response.json()["id"])
    items = (await async_client.get(f"{url}/messages")).json()["items"]
    assert [(item["branch"], item["parent_id"]) for item in items] == [
        *((0, None), (0, first.id), (0, answer.id), (0, items[2]["id"])),
        *((1, answer.id), (1, items[4]["id"])),
    ]
    pages = [(await async_client.get(f"{url}/messages?after={seq}")).json()["items"][0] for seq in range(6)]
    assert [item["parent_id"] for item in pages] == [item["parent_id"] for item in items]
    on_branch = (await async_client.get(f"{url}/messages?branch=1")).json()["items"]
    assert [item["seq"] for item in on_branch] == [1, 2, 5, 6]
    assert (await async_client.get(f"{url}/messages?branch=7")).json()["error"]["code"] == "BRANCH_NOT_FOUND"
    listed = (await async_client.get(f"{url}/branches")).json()["items"]
    assert [(branch["number"], branch["is_chosen"]) for branch in listed] == [(0, False), (1, True)]
    choose = f"{url}/branches/choose"
    chosen = await async_client.post(choose, json.dumps({"branch": 0}), content_type="application/json")
    assert [branch["is_chosen"] for branch in chosen.json()["items"]] == [True, False]
    for wrong in ({"branch": 9}, {"branch": -1}, {"branch": "1"}, {}, {"branch": 2**70}):
        answer = await async_client.post(choose, json.dumps(wrong), content_type="application/json")
        assert answer.status_code in (404, 422)


async def ended_turn(session, turn_id):
    return await lifecycle.wait_turn(session.id, turn_id, owner_id=session.owner_id)
