"""Starting a turn: keys that make a retry safe, what is refused, and whose session it is."""

from __future__ import annotations

import asyncio

import pytest

from agents_app.turns import claim, lifecycle
from agents_app.turns.overview import SessionRead
from agents_app.turns.runner import runner
from compaction_app.context.state import load_meter
from mnesis_core.config import override
from mnesis_core.errors import (
    AtCapacity,
    IdempotencyMismatch,
    InvalidRequest,
    MnesisError,
    ModelNotFoundError,
    RequestTooLarge,
    SessionArchived,
    SessionNotFoundError,
)
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState
from mnesis_core.turns.options import TurnOptions
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.llm.model_store import put_model
from sessions_app.models import LanguageModel
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.record.turn_queries import list_turns
from tests.support.failures.gone_clients import Paused
from tests.support.people.story import ended, history, say, spoken
from tests.support.record.talks import new_session
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.both_databases


async def test_a_turn_whose_client_went_away_while_it_was_claimed_runs_all_the_same(session, script, monkeypatch):
    script("one")
    asked = {"owner_id": session.owner_id, "message": "Go", "idempotency_key": "k1"}
    paused = Paused(claim.claim_turn)
    monkeypatch.setattr(claim, "claim_turn", paused)
    await paused.leave(lifecycle.start_turn(session.id, **asked))
    again = await lifecycle.start_turn(session.id, **asked)
    assert again.is_new is False
    assert (await ended(again.turn)).state == TurnState.COMPLETED
    assert [spoken(message) for message in await history(session)] == ["Go", "one"]


async def test_a_session_whose_client_went_away_while_it_began_has_its_turn(alice, script, monkeypatch):
    script("one")
    paused = Paused(lifecycle.create_session)
    monkeypatch.setattr(lifecycle, "create_session", paused)
    await paused.leave(lifecycle.begin_session(owner=alice, message="Go"))
    [session] = await db(list_sessions, owner_id=alice.pk)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (turns := await db(list_turns, session.id)):  # noqa: ASYNC110 - nothing of ours tells of it
            await asyncio.sleep(0.01)
    assert (await ended(turns[0])).state == TurnState.COMPLETED


async def test_a_retry_with_the_same_key_never_doubles_the_message(session, script):
    script("one")
    first = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key="k1")
    await ended(first.turn)
    again = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key="k1")
    assert (again.turn.id, again.is_new) == (first.turn.id, False)
    assert len(await history(session)) == 2
    with pytest.raises(IdempotencyMismatch):
        await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Other", idempotency_key="k1")


@pytest.mark.parametrize("key", ["nul \x00", "lone \ud800", "␛"])
async def test_any_key_names_its_turn(session, script, key):
    script("one")
    first = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key=key)
    await ended(first.turn)
    again = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key=key)
    assert again.turn.id == first.turn.id


@pytest.mark.parametrize("key", ["k" * 201, "\x00" * 41])
async def test_a_key_that_is_too_long_is_refused(session, script, key):
    with pytest.raises(InvalidRequest):
        await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key=key)
    assert await history(session) == []


async def test_a_retry_while_the_turn_runs_finds_it(session, script):
    gate = asyncio.Event()
    model = script(Step(text="slow", gate=gate, gate_after=0))
    first = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key="k1")
    await model.at_gate.wait()
    again = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go", idempotency_key="k1")
    assert (again.turn.id, again.is_new) == (first.turn.id, False)
    gate.set()
    await ended(first.turn)


@pytest.mark.parametrize(
    ("message", "error"), [("", InvalidRequest), (" \n", InvalidRequest), ("x" * 5_000_001, RequestTooLarge)]
)
async def test_a_message_that_is_empty_or_too_long_is_refused(session, script, message, error):
    with pytest.raises(error):
        await lifecycle.start_turn(session.id, owner_id=session.owner_id, message=message)
    assert await history(session) == []


@pytest.mark.parametrize("text", ["NUL \x00 here", "lone \ud800 surrogate", "‮ bidi ‬", "␛ escape", "x" * 1_000_000])
async def test_any_text_comes_back_as_it_was(session, script, text):
    script(Step(text=(text,)))
    assert (await say(session, text)).state == TurnState.COMPLETED
    assert [spoken(message) for message in await history(session)] == [text, text]


async def test_an_archived_session_takes_no_turn(session, script):
    await db(lifecycle.archive_session, session.id, owner_id=session.owner_id)
    with pytest.raises(SessionArchived):
        await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go")


async def test_another_persons_session_is_not_found(session, bob, script):
    for attempt in (
        lambda: lifecycle.start_turn(session.id, owner_id=bob.pk, message="Go"),
        lambda: db(lifecycle.interrupt, session.id, owner_id=bob.pk),
        lambda: db(lifecycle.archive_session, session.id, owner_id=bob.pk),
        lambda: db(lifecycle.update_session, session.id, owner_id=bob.pk, title="mine"),
    ):
        with pytest.raises(SessionNotFoundError):
            await attempt()


async def test_a_process_takes_no_more_turns_than_it_may(session, script):
    script(Step(text="x", gate=asyncio.Event(), gate_after=0))
    runner._tasks |= {
        f"turn_{index}": asyncio.create_task(asyncio.sleep(60)) for index in range(site_config().turn.capacity)
    }
    with pytest.raises(AtCapacity):
        await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Go")
    for task in runner._tasks.values():
        task.cancel()
    runner._tasks.clear()


async def test_a_session_that_could_not_begin_is_not_made(alice, script, monkeypatch):
    config = override(site_config(), {"turn": {"capacity": 1}})
    monkeypatch.setattr("agents_app.turns.runner.site_config", lambda: config)
    script(Step(text=("x ", "y"), gate=asyncio.Event()), "z")
    first, _ = await lifecycle.begin_session(owner=alice, message="Go")
    with pytest.raises(AtCapacity):
        await lifecycle.begin_session(owner=alice, message="Go")
    assert [found.id for found in await db(list_sessions, owner_id=alice.pk)] == [first.id]


async def test_a_configuration_of_another_version_keeps_nobody_from_talking(alice, script):
    stored = {"gone": {"a": 1}, "turn": {"max_steps": 0}, "limits": {"session": {"words": 3, "tokens": 10**6}}}
    session_id = await db(new_session, alice, config=stored)
    script("one")
    assert (await say(await db(load_session, session_id), "Go")).state == TurnState.COMPLETED
    shown = (await db(SessionRead.model_validate, await db(load_session, session_id))).dict()
    assert [(limit["scope"], limit["measure"]) for limit in shown["budget"]] == [("session", "tokens")]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"model": "nosuch"}, ModelNotFoundError),
        ({"model": "nul \x00 and \ud800"}, ModelNotFoundError),
        ({"title": "x" * 201}, InvalidRequest),
        ({"title": "\x00" * 200}, InvalidRequest),
        ({"agent": "\ud800" * 100}, InvalidRequest),
        ({"config": {"nosuch": 1}}, InvalidRequest),
        ({"config": {"turn": {"max_steps": "many"}}}, InvalidRequest),
        ({"config": {"budget": {"soft_threshold_fraction": 7}}}, InvalidRequest),
        ({"parent_id": "sess_nosuch"}, SessionNotFoundError),
    ],
)
def test_a_session_with_wrong_values_is_refused_in_words(alice, values, error):
    with pytest.raises(error) as refused:
        lifecycle.create_session(owner=alice, **values)
    assert isinstance(refused.value, MnesisError)
    assert refused.value.message


async def test_a_session_whose_model_was_removed_says_so_and_stays_readable(alice):
    spec = ModelSpec(alias="gone", litellm_model="demo/chat", context_window=8_000, max_output_tokens=1_000)
    await db(put_model, spec)
    session = await db(lifecycle.create_session, owner=alice, model="gone")
    await db(LanguageModel.objects.all().delete)
    turn = await say(session, "Are you there?")
    assert (turn.state, turn.error_code) == (TurnState.FAILED, "MODEL_NOT_FOUND")
    assert (await db(load_meter, session.id)).used_tokens > 0
    assert [spoken(message) for message in await history(session)] == ["Are you there?"]


async def test_the_first_message_names_a_session_without_a_title(session, script):
    script("a", "b")
    await say(session, "Plan the  move\nto the new office")
    await say(session, "Something else")
    assert (await db(load_session, session.id)).title == "Plan the move to the new office"
    assert [turn.seq for turn in await db(list_turns, session.id)] == [2, 1]


@pytest.mark.slow
async def test_a_turn_may_ask_another_model_and_the_next_one_asks_the_session_s_again(session, script):
    await db(
        LanguageModel.objects.create,
        alias="other",
        litellm_model="scripted/other",
        context_window=8_000,
        max_output_tokens=500,
    )
    own, other = script("From home.", "From home again."), script("From the other.", alias="other")
    for message, model in (("One", ""), ("Two", "other"), ("Three", "")):
        started = await lifecycle.start_turn(
            session.id, owner_id=session.owner_id, message=message, options=TurnOptions(model=model)
        )
        await ended(started.turn)
    assert [spoken(message) for message in await history(session)][1::2] == [
        "From home.",
        "From the other.",
        "From home again.",
    ]
    assert (len(own.requests), len(other.requests)) == (2, 1)
    assert other.requests[0].max_output_tokens == 500
    assert [turn.model for turn in await db(list_turns, session.id)] == ["demo", "other", "demo"]
    assert (await db(load_session, session.id)).model == "demo"


async def test_a_model_that_is_not_there_begins_no_turn(session, script):
    with pytest.raises(ModelNotFoundError):
        await lifecycle.start_turn(
            session.id, owner_id=session.owner_id, message="Go", options=TurnOptions(model="nowhere")
        )
    assert await history(session) == []
