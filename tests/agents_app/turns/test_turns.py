"""One turn: what is durable when, who sees it, and who may not come in between."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace

import pytest

from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from mnesis_core.errors import ModelRefusedRequest, SessionArchived, SessionBusy, SessionNotRunning
from mnesis_core.llm.interface import Source, ToolCall, Usage
from mnesis_core.messages import ReasoningPart, TextPart
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.live import follow
from sessions_app.record.context_queries import load_events
from sessions_app.record.message_queries import journal_texts, load_message_rows
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.record.turn_queries import list_calls, load_turn
from tests.support.people.story import begin, ended, frames_until, history, say, spoken

pytestmark = pytest.mark.both_databases


async def test_an_answer_is_recorded_with_its_numbers_and_their_source(session, script):
    usage = Usage(input_tokens=11, output_tokens=7, source=Source.PROVIDER)
    script(Step(reasoning="hm", text="Hello Alice.", usage=usage, usage_said='{"prompt_tokens": 11, "of_thought": 3}'))
    turn = await say(session, "Hello")
    assert turn.state == TurnState.COMPLETED
    assert (turn.usage.tokens_input, turn.usage.tokens_output, turn.usage.usage_source) == (11, 7, "provider")
    user, answer = await history(session)
    assert spoken(user) == "Hello"
    assert [stored.part for stored in answer.parts] == [ReasoningPart(text="hm"), TextPart(text="Hello Alice.")]
    row = (await db(load_message_rows, session.id, [answer.id]))[answer.id]
    assert (row.finish_reason, row.outcome, row.usage_source, row.tokens_output) == ("stop", "complete", "provider", 7)
    [call] = await db(list_calls, session.id)
    assert (call.state, call.message_id, call.usage.tokens_input) == ("completed", answer.id, 11)
    assert call.usage_said == '{"prompt_tokens": 11, "of_thought": 3}'
    assert len(call.digest) == 64
    assert call.manifest


async def test_the_first_text_reasoning_or_tool_call_of_a_call_is_timed(session, script):
    script(
        Step(text=("one ", "two ", "three"), delay_seconds=0.05),
        Step(reasoning="hm", text=("one ", "two"), delay_seconds=0.05),
        Step(tool_calls=(ToolCall(id="c1", name="no_such_tool", arguments="{}"),), delay_seconds=0.05),
        Step(),
        Step(error=ModelRefusedRequest()),
    )
    for message in ("Text", "Reasoning", "Call", "Refused"):
        await say(session, message)
    text, reasoning, called, nothing, refused = reversed(await db(list_calls, session.id))
    took = (text.ended_at - text.created_at).total_seconds() * 1000
    assert 50 <= text.first_token_ms <= took - 100 + 5
    assert reasoning.first_token_ms < 50 <= called.first_token_ms
    assert (nothing.first_token_ms, refused.first_token_ms) == (None, None)


async def test_the_first_token_of_an_interrupted_answer_is_kept(session, script):
    gate = asyncio.Event()
    model = script(Step(text=("one ", "two"), gate=gate, gate_after=1))
    turn = await begin(session, "Hello", until=model)
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    assert (await ended(turn)).state == TurnState.CANCELLED
    [call] = await db(list_calls, session.id)
    assert call.first_token_ms is not None


async def test_message_and_stub_are_durable_before_the_model_streams(session, script):
    gate = asyncio.Event()
    model = script(Step(text=("one ", "two"), gate=gate, gate_after=0))
    turn = await begin(session, "Hello", until=model)
    user, stub = await history(session)
    assert (spoken(user), stub.role, stub.parts) == ("Hello", "assistant", ())
    assert [call.state for call in await db(list_calls, session.id)] == ["running"]
    gate.set()
    assert (await ended(turn)).state == TurnState.COMPLETED


async def test_whoever_follows_gets_the_first_word_before_the_pause_between_two_looks(session, script, monkeypatch):
    config = site_config()
    slow = replace(config, stream=replace(config.stream, coalesce_seconds=1_000.0))
    monkeypatch.setattr("sessions_app.live.site_config", lambda: slow)
    script(Step(text=("one ", "two"), gate=asyncio.Event(), gate_after=1))
    async with asyncio.timeout(60), aclosing(follow(session.id)) as frames:
        assert [(await anext(frames))["type"] for _ in range(2)][-1] == "caught_up"
        await begin(session, "Hello")
        async for frame in frames:
            if frame["type"] == "delta":
                break
    assert frame["text"] == "one "


async def test_every_follower_gets_the_same_text_whenever_it_comes(session, script):
    gate = asyncio.Event()
    model = script(Step(text=("one ", "two ", "three"), gate=gate, gate_after=2))
    early = asyncio.create_task(frames_until(session, "turn.completed"))
    await begin(session, "Count", until=model)
    late = asyncio.create_task(frames_until(session, "turn.completed"))
    await asyncio.sleep(0.2)
    gate.set()
    for frames in await asyncio.gather(early, late):
        seqs = [frame["seq"] for frame in frames if "data" in frame]
        assert seqs == list(range(1, len(seqs) + 1))
        deltas = [frame for frame in frames if frame["type"] == "delta"]
        assert "".join(frame["text"] for frame in deltas) == "one two three"
        offsets = [frame["offset"] for frame in deltas]
        assert offsets == [sum(len(frame["text"]) for frame in deltas[:index]) for index in range(len(deltas))]
    # Two pieces in one, or only the first where nobody has looked since the second.
    assert next(frame["text"] for frame in late.result() if frame["type"] == "delta") in ("one ", "one two ")


async def test_a_follower_resumes_by_seq_without_loss_or_repetition(session, script):
    script("first", "second")
    await say(session, "one")
    seen = await frames_until(session, "turn.completed")
    await say(session, "two")
    more = await frames_until(session, "turn.completed", after=seen[-1]["seq"])
    events = await db(load_events, session.id)
    both = [frame["seq"] for frame in [*seen, *more] if "data" in frame]
    assert both == [event.seq for event in events]


async def test_another_process_reads_the_text_so_far_from_the_journal(session, script, settings):
    gate = asyncio.Event()
    words = tuple(f"word{index} " * 40 for index in range(20))
    model = script(Step(text=words, gate=gate, gate_after=20))
    turn = await begin(session, "Go", until=model)
    [text] = await db(journal_texts, session.id)
    whole = "".join(words)
    assert whole.startswith(text.text)
    assert len(text.text) > len(whole) - 2 * site_config().stream.journal_bytes
    gate.set()
    await ended(turn)
    assert await db(journal_texts, session.id) == []
    assert spoken((await history(session))[1]) == whole


async def test_what_a_model_said_before_a_silence_is_in_the_journal_without_another_word(session, script):
    gate = asyncio.Event()
    model = script(Step(text=("Give me ", "a moment."), gate=gate, gate_after=2))
    turn = await begin(session, "Go", until=model)
    async with asyncio.timeout(20):
        while [text.text for text in await db(journal_texts, session.id)] != ["Give me a moment."]:  # noqa: ASYNC110 - the journal has no event
            await asyncio.sleep(0.02)
    gate.set()
    await ended(turn)
    assert await db(journal_texts, session.id) == []


async def test_a_second_turn_while_one_runs_is_busy_and_leaves_no_trace(session, script):
    gate = asyncio.Event()
    model = script(Step(text="slow", gate=gate, gate_after=0))
    turn = await begin(session, "first", until=model)
    with pytest.raises(SessionBusy) as busy:
        await begin(session, "second")
    assert busy.value.details["turn_id"] == turn.id
    gate.set()
    await ended(turn)
    assert [spoken(message) for message in await history(session)] == ["first", "slow"]


async def test_of_many_turns_started_at_once_one_wins(session, script):
    gate = asyncio.Event()
    script(Step(text="only", gate=gate))
    results = await asyncio.gather(
        *(lifecycle.start_turn(session.id, owner_id=session.owner_id, message=f"try {index}") for index in range(8)),
        return_exceptions=True,
    )
    won = [result for result in results if not isinstance(result, BaseException)]
    assert len(won) == 1
    assert all(isinstance(result, SessionBusy) for result in results if isinstance(result, BaseException))
    gate.set()
    await ended(won[0].turn)


async def test_an_interrupt_keeps_what_was_said_and_frees_the_session(session, script):
    gate = asyncio.Event()
    model = script(Step(text=("kept ", "lost"), gate=gate, gate_after=1), "next")
    turn = await begin(session, "Go", until=model)
    # As another process does it: only the database knows.
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    with suppress(SessionNotRunning):  # It may have ended by now.
        await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    events = [event for event in await db(load_events, session.id) if event.type == "turn.interrupt_requested"]
    assert [event.data["turn_id"] for event in events] == [turn.id]
    turn = await ended(turn)
    assert turn.state == TurnState.CANCELLED
    answer = (await history(session))[1]
    assert spoken(answer) == "kept "
    row = (await db(load_message_rows, session.id, [answer.id]))[answer.id]
    assert row.outcome == "cancelled"
    assert [call.state for call in await db(list_calls, session.id)] == ["completed"]
    assert (await say(session, "again")).state == TurnState.COMPLETED


async def test_interrupting_an_idle_session_is_refused(session, script):
    with pytest.raises(SessionNotRunning):
        await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)


async def test_a_shutdown_ends_turns_as_interrupted_with_their_text(session, script):
    model = script(Step(text=("kept ", "lost"), gate=asyncio.Event(), gate_after=1))
    turn = await begin(session, "Go", until=model)
    await runner.shutdown()
    turn = await db(load_turn, turn.id, session_id=session.id)
    assert (turn.state, turn.error_code) == (TurnState.INTERRUPTED, "TURN_INTERRUPTED")
    assert spoken((await history(session))[1]) == "kept "


async def test_a_turn_that_runs_keeps_nobody_from_reading_or_archiving(session, script):
    gate = asyncio.Event()
    model = script(Step(text="slow", gate=gate, gate_after=0))
    turn = await begin(session, "Go", until=model)
    async with asyncio.timeout(30):
        assert (await db(load_session, session.id, owner_id=session.owner_id)).state == "running"
        assert [found.id for found in await db(list_sessions, owner_id=session.owner_id)] == [session.id]
        archived = await db(lifecycle.archive_session, session.id, owner_id=session.owner_id)
    assert (archived.state, archived.archived_at is not None) == ("running", True)
    gate.set()
    assert (await ended(turn)).state == TurnState.COMPLETED
    assert (await db(load_session, session.id)).state == "archived"
    with pytest.raises(SessionArchived):
        await say(session, "again")
