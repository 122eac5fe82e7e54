"""Anthropic's Messages, asked in this process: what streams say, whose session it is, what ends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agents_app.endpoints import anthropic
from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from mnesis_core.errors import ModelStreamBroken
from mnesis_core.llm.interface import ToolCall, Usage
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from sessions_app.record.session_queries import list_sessions
from sessions_app.record.turn_queries import list_turns
from tests.support.people.programs import Program
from tests.support.people.story import history, spoken

pytestmark = pytest.mark.usefixtures("no_connection_left")

PATH = "/v1/messages"


@tool()
def look_here(context: ToolContext) -> str:
    """Look about."""
    return "nothing there"


LOOK = Step(reasoning="Hm.", text="I look.", tool_calls=(ToolCall(id="c1", name="look_here", arguments="{}"),))
THINKING = {"type": "adaptive"}


@pytest.fixture
def program(alice: Any) -> Program:
    return Program(create_key(owner_id=alice.pk), PATH)


@pytest.fixture
def session(alice: Any) -> SessionRecord:
    return lifecycle.create_session(owner=alice, config={"turn": {"tools": ["look_here"]}})


async def events(response: Any) -> AsyncIterator[dict[str, Any]]:
    """What a streamed answer brings."""
    assert response.status_code == 200
    async for piece in response.streaming_content:
        name, data = piece.decode().strip().split("\n", 1)
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        yield event


async def blocks(response: Any) -> list[tuple[str, str]]:
    """The blocks of a streamed answer, each with its type and its text."""
    found: list[tuple[str, str]] = []
    async for event in events(response):
        if event["type"] == "content_block_start":
            found.append((event["content_block"]["type"], ""))
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            kind, text = found[-1]
            found[-1] = (kind, text + str(delta.get("text") or delta.get("thinking") or ""))
    return found


async def test_an_answer_says_how_long_a_cache_keeps_what_it_took(script, session, program):
    steps = (
        Step(tool_calls=(ToolCall(id="c1", name="look_here", arguments="{}"),), usage=kept(written=30, hour=20)),
        Step(text="Done.", usage=kept(written=4, hour=4)),
    )
    script(*steps, *steps, Step(text="Hello.", usage=kept(written=0, hour=0)))
    whole = (await program.ask("Look", session=session.id)).json()["usage"]
    assert whole["cache_creation_input_tokens"] == 34
    assert whole["cache_creation"] == {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 24}
    streamed = [event async for event in events(await program.ask("Look", session=session.id, stream=True))]
    assert streamed[-2]["usage"] == whole
    nothing = (await program.ask("Hi", session=session.id)).json()["usage"]
    assert nothing["cache_creation"] == {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}


def kept(*, written: int, hour: int) -> Usage:
    return Usage(input_tokens=100, output_tokens=5, cache_write_tokens=written, cache_write_1h_tokens=hour)


@pytest.mark.parametrize("thinking", [None, THINKING])
async def test_the_steps_of_a_turn_are_blocks_streamed_or_whole(script, session, program, thinking):
    given = {"thinking": thinking} if thinking else {}
    script(LOOK, Step(reasoning="So.", text=("Nothing ", "there.")))
    streamed = await blocks(await program.ask("Look", session=session.id, stream=True, **given))
    script(LOOK, Step(reasoning="So.", text=("Nothing ", "there.")))
    whole = (await program.ask("Look", session=session.id, **given)).json()["content"]
    assert [(block["type"], block.get("thinking") or block["text"]) for block in whole] == streamed
    if thinking:
        expected = [("thinking", "Hm."), ("text", "I look."), ("thinking", "So."), ("text", "Nothing there.")]
    else:
        expected = [("text", "I look.\n\nNothing there.")]
    assert streamed == expected


async def test_a_stream_that_breaks_ends_with_its_error(script, session, program):
    script(Step(text="Half of it ", error=ModelStreamBroken()))
    told = [event async for event in events(await program.ask("Go", session=session.id, stream=True))]
    assert "".join(event["delta"]["text"] for event in told if "text" in event.get("delta", {})) == "Half of it "
    assert told[-1]["error"]["details"]["error_code"] == "MODEL_STREAM_BROKEN"
    assert told[-1]["request_id"]


async def test_a_repeated_request_says_again_where_the_answer_stopped(script, session, program):
    script(Step(text="Half.", finish_reason="stop_sequence", stop_sequence="E\x00N\ud800D"))
    program.headers = program.headers | {"Idempotency-Key": "once"}
    for _ in range(2):
        answer = (await program.ask("Go", session=session.id, stop_sequences=["END"])).json()
        assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "E\x00N\ufffdD")


@pytest.mark.parametrize("end", [Step(text="All."), Step(text="All.", finish_reason="stop_sequence")])
async def test_where_no_provider_says_which_text_stopped_it_none_is_named(script, session, program, end):
    script(end)
    answer = (await program.ask("Go", session=session.id, stop_sequences=["END"])).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("end_turn", None)


async def test_a_silent_stream_says_that_it_is_there(script, session, program, monkeypatch):
    monkeypatch.setattr(anthropic, "PING_SECONDS", 0.05)
    gate = asyncio.Event()
    script(Step(text="One two three", gate=gate))
    coming = events(await program.ask("Go", session=session.id, stream=True))
    pings = 0
    async for event in coming:
        pings += event["type"] == "ping"
        if pings == 3:  # One belongs to the beginning of every stream.
            gate.set()
    assert pings >= 3
    assert spoken((await history(session))[-1]) == "One two three"


async def test_a_client_that_goes_away_in_a_silence_leaves_nothing_behind(script, session, program):
    gate = asyncio.Event()
    script(Step(text="One two three", gate=gate))
    coming = (await program.ask("Go", session=session.id, stream=True)).streaming_content
    others = asyncio.all_tasks()
    waiting = asyncio.ensure_future(_read_all(coming))
    await asyncio.sleep(0.2)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() - others if not task.done()] == []
    gate.set()
    states: list[str] = []
    while "completed" not in states:
        await asyncio.sleep(0.02)
        states = [turn.state for turn in await db(list_turns, session.id)]
    assert spoken((await history(session))[-1]) == "One two three"


async def _read_all(coming: Any) -> None:
    async for _ in coming:
        pass


async def test_a_user_has_one_session_where_the_site_says_so(script, alice, program, settings):
    settings.USER_IS_SESSION = True
    script(lambda request: f"answer {len(request.payload['messages'])}")
    anna, ben = ({"metadata": {"user_id": name}} for name in ("anna", "ben"))
    first, again = await program.ask("One", **anna), await program.ask("Two", **anna)
    other = await program.ask("Three", **ben)
    ids = [response["X-Mnesis-Session"] for response in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert again.json()["content"][0]["text"] == "answer 3"
    assert len(await db(list_sessions, owner_id=alice.pk)) == 2


async def test_a_request_is_refused_as_a_whole(script, alice, program):
    script("never")
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    for body in ({"messages": []}, {"messages": [{"role": "user", "content": [picture]}]}, {"model": "none"}):
        answer = await program.ask("a", **body)
        assert answer.status_code in (400, 404)
        assert answer.json()["request_id"] == answer["request-id"]
    assert await db(list_sessions, owner_id=alice.pk) == []


@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens"])
async def test_a_body_of_another_shape_is_refused(program: Program, path: str):
    answer = await program.post(path, model=1)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
