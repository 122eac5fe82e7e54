"""A model that declines to answer, and an answer that fills the window: what the record, the page and each endpoint say."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest

from agents_app.turns import lifecycle
from mnesis_core.messages import RefusalPart
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db
from sessions_app.live import follow
from sessions_app.llm.model_store import create_key
from sessions_app.pages.transcript import load_chunk
from sessions_app.record.message_queries import load_message_rows
from tests.support.people.programs import Program
from tests.support.people.story import history, say

pytestmark = pytest.mark.usefixtures("no_connection_left")
WORDS = Step(refusal="I will not.")
FILTERED = Step(text="Half", finish_reason="content_filter")
SILENT = Step(finish_reason="refusal")
FULL = Step(text="Half", finish_reason="model_context_window_exceeded")


@pytest.mark.parametrize(
    ("step", "code", "ending"),
    [
        pytest.param(WORDS, "ANSWER_REFUSED", "refused", id="in words"),
        pytest.param(FILTERED, "ANSWER_REFUSED", "refused", id="by a filter"),
        pytest.param(FULL, "CONTEXT_WINDOW_EXCEEDED", "incomplete", id="the window is full"),
    ],
)
async def test_the_turn_says_how_it_ended(session: SessionRecord, script: Any, step: Step, code: str, ending: str):
    script(step, "Here I am.")
    turn = await say(session, "How?")
    assert (turn.state, turn.error_code) == (TurnState.INCOMPLETE, code)
    message = (await history(session))[-1]
    row = (await db(load_message_rows, session.id, [message.id]))[message.id]
    assert (row.outcome, row.error_code) == ("incomplete", code)
    if step.refusal:
        assert [stored.part for stored in message.parts] == [RefusalPart(text="I will not.")]
    [*_, shown] = await db(load_chunk, session.id)
    assert (shown.ending, shown.error_code) == (ending, code)
    assert (await say(session, "And now?")).state == TurnState.COMPLETED


async def test_the_words_of_a_refusal_come_as_they_are_said(session: SessionRecord, script: Any) -> None:
    script(WORDS)
    # Followed before it starts: a short turn may end before a later follower sees a word of it.
    async with aclosing(follow(session.id)) as following:  # type: ignore[type-var]
        while (await anext(following))["type"] != "caught_up":
            pass
        await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="How?")
        frames = [await anext(following)]
        while frames[-1]["type"] != "turn.incomplete":
            frames.append(await anext(following))
    told = [frame for frame in frames if frame["type"] == "delta" and frame["part_type"] == "refusal"]
    assert "".join(frame["text"] for frame in told) == "I will not."
    assert frames[-1]["data"]["error_code"] == "ANSWER_REFUSED"


async def answers(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.content
    return json.loads(response.content)


async def test_chat_completions_say_it_as_openai_does(alice: Any, script: Any) -> None:
    program = Program(await db(create_key, owner_id=alice.pk), "/v1/chat/completions")
    script(WORDS, FILTERED, SILENT, FULL)
    for content, refusal, finish, code in (
        (None, "I will not.", "stop", "ANSWER_REFUSED"),
        ("Half", None, "content_filter", "ANSWER_REFUSED"),
        ("", None, "content_filter", "ANSWER_REFUSED"),
        ("Half", None, "length", "CONTEXT_WINDOW_EXCEEDED"),
    ):
        said = await answers(await program.ask("How?"))
        [choice] = said["choices"]
        message = choice["message"]
        assert (message["content"], message["refusal"], choice["finish_reason"]) == (content, refusal, finish)
        assert said["mnesis"]["code"] == code


async def test_messages_say_it_as_anthropic_does(alice: Any, script: Any) -> None:
    program = Program(await db(create_key, owner_id=alice.pk), "/v1/messages")
    script(WORDS, FILTERED, FULL)
    for text, stop in (
        ("I will not.", "refusal"),
        ("Half", "refusal"),
        ("Half", "model_context_window_exceeded"),
    ):
        said = await answers(await program.ask("How?", max_tokens=50))
        assert ([block["text"] for block in said["content"]], said["stop_reason"]) == ([text], stop)


async def test_responses_say_it_as_openai_does(alice: Any, script: Any) -> None:
    program = Program(await db(create_key, owner_id=alice.pk), "/v1/responses")
    script(WORDS, FILTERED, FULL)
    for kind, status, reason in (
        ("refusal", "completed", None),
        ("output_text", "incomplete", {"reason": "content_filter"}),
        ("output_text", "incomplete", {"reason": "max_output_tokens"}),
    ):
        said = await answers(await program.post(model="demo", input="How?"))
        [item] = said["output"]
        assert (item["content"][0]["type"], said["status"], said["incomplete_details"]) == (kind, status, reason)
