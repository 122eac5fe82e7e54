"""The OpenAI-compatible endpoint, asked in this process: what streams say, whose session it is, what ends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_app.endpoints.answers import ask, follow_thinking
from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from mnesis_core.errors import ModelStreamBroken
from mnesis_core.llm.interface import ToolCall
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord
from mnesis_core.turns.requests import CompletionRequest, RequestMessage
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.live import Viewer
from sessions_app.llm.model_store import create_key, revoke_key
from sessions_app.models import ApiKey
from sessions_app.record.branch_queries import load_path
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.record.turn_queries import list_turns
from tests.support.people.programs import Program
from tests.support.people.story import history, spoken

pytestmark = pytest.mark.usefixtures("no_connection_left")

PATH = "/v1/chat/completions"


@tool(needs_approval=True)
def open_lock(context: ToolContext) -> str:
    """Open the lock."""
    return "the lock is open"


@tool()
def look_about(context: ToolContext) -> str:
    """Look about."""
    return "nothing there"


OPEN = Step(text="I open it. ", tool_calls=(ToolCall(id="c1", name="open_lock", arguments="{}"),))
LOOK = Step(text="I look.", tool_calls=(ToolCall(id="c1", name="look_about", arguments="{}"),))


@pytest.fixture
def program(alice: Any) -> Program:
    return Program(create_key(owner_id=alice.pk), PATH)


@pytest.fixture
def session(alice: Any) -> SessionRecord:
    return lifecycle.create_session(owner=alice, config={"turn": {"tools": ["open_lock", "look_about"]}})


@pytest.fixture
def users_are_sessions(settings: Any) -> None:
    settings.USER_IS_SESSION = True


@pytest.fixture
def often(settings: Any, tmp_path: Path) -> Iterator[None]:
    """Rights are looked at many times a second."""
    file = tmp_path / "config.toml"
    file.write_text("[stream]\nrecheck_seconds = 0.1\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
    site_config.cache_clear()
    yield
    site_config.cache_clear()


async def events(response: Any) -> AsyncIterator[dict[str, Any]]:
    """What a streamed answer brings, its end mark left out."""
    assert response.status_code == 200
    async for piece in response.streaming_content:
        text = piece.decode().strip().removeprefix("data: ")
        if text != "[DONE]":
            yield json.loads(text)


async def said(response: Any) -> tuple[str, list[dict[str, Any]]]:
    """The text of a streamed answer, and its chunks."""
    chunks = [chunk async for chunk in events(response)]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas), chunks


@pytest.mark.parametrize("text", ["", "I look.", ("I ", "look.", "\n")])
async def test_the_steps_of_a_turn_are_one_text_streamed_or_whole(script, session, program, text):
    for stream in (True, False):
        script(Step(text=text, tool_calls=LOOK.tool_calls), LOOK, Step(text=("Nothing ", "there.")))
        response = await program.ask("Look", session=session.id, stream=stream)
        if stream:
            streamed, _ = await said(response)
        else:
            assert response.json()["choices"][0]["message"]["content"] == streamed
    answers = [spoken(message) for message in await history(session) if message.role == "assistant"]
    assert streamed == "\n\n".join(answer for answer in answers[:3] if answer)


@pytest.mark.parametrize("stream", [True, False])
async def test_visible_thinking_is_the_reasoning_content_of_an_answer_and_may_come_back(
    script, session, program, stream
):
    script(
        Step(reasoning="Which one?", text="I look.", tool_calls=LOOK.tool_calls),
        Step(reasoning="Not \ud800 much.", text="Nothing there."),
        "As I said.",
    )
    response = await program.ask("Look", session=session.id, stream=stream)
    if stream:
        text, chunks = await said(response)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        thought = "".join(delta.get("reasoning_content", "") for delta in deltas)
        assert deltas[0]["role"] == "assistant"
        assert sum("role" in delta for delta in deltas) == 1
        assert "reasoning_content" in deltas[0]
    else:
        message = response.json()["choices"][0]["message"]
        text, thought = message["content"], message["reasoning_content"]
    assert text == "I look.\n\nNothing there."
    assert thought.replace("\n", "") == "Which one?Not \ufffd much."
    answer = {"role": "assistant", "content": text, "reasoning_content": thought, "reasoning": thought}
    messages = [{"role": "user", "content": "Look"}, answer, {"role": "user", "content": "Sure?"}]
    again = await program.post(model="demo", messages=messages, session=session.id)
    message = again.json()["choices"][0]["message"]
    assert message["content"] == "As I said."
    assert "reasoning_content" not in message


async def test_who_follows_late_misses_no_word(script, alice, session):
    gate = asyncio.Event()
    model = script(LOOK, Step(text=("Nothing ", "there."), gate=gate))
    request = CompletionRequest(model="demo", messages=(RequestMessage(role="user", text="Look"),), session=session.id)
    asked = await ask(request, owner=alice, viewer=Viewer(owner_id=alice.pk))
    await asyncio.wait_for(model.at_gate.wait(), 60)
    pieces = follow_thinking(asked)
    first = [await asyncio.wait_for(anext(pieces), 60) for _ in range(2)]
    gate.set()
    *rest, answered = [piece async for piece in pieces]
    assert "".join([*first, *rest]) == answered.text == "I look.\n\nNothing there."
    assert len(rest) <= 1


async def test_a_turn_that_waits_for_a_person_keeps_the_request_open(script, session, program):
    script(OPEN, "It is open.")
    asking = asyncio.ensure_future(program.ask("Open", session=session.id))
    waits: Any = ()
    while not waits:
        await asyncio.sleep(0.02)
        turns = await db(list_turns, session.id)
        waits = turns[0].waits_for if turns else ()
    assert not asking.done()
    await lifecycle.decide_approval(session.id, waits[0].part_id, owner_id=session.owner_id, approved=True)
    answer = (await asyncio.wait_for(asking, 60)).json()
    assert answer["choices"][0]["message"]["content"] == "I open it. \n\nIt is open."
    assert answer["mnesis"]["state"] == "completed"


async def test_a_stream_that_breaks_ends_with_its_error(script, session, program):
    script(Step(text="Half of it ", error=ModelStreamBroken()))
    text, chunks = await said(await program.ask("Go", session=session.id, stream=True))
    assert text == "Half of it "
    assert chunks[-1]["error"]["code"] == "MODEL_STREAM_BROKEN"


async def test_an_interrupted_turn_answers_with_what_it_has(script, session, program):
    model = script(Step(text="One two three", gate=asyncio.Event()))
    asking = asyncio.ensure_future(program.ask("Go", session=session.id))
    await asyncio.wait_for(model.at_gate.wait(), 60)
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    answer = (await asyncio.wait_for(asking, 60)).json()
    assert answer["mnesis"]["state"] == "cancelled"
    assert answer["choices"][0]["message"]["content"] == "One"
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_a_key_that_ends_gets_nothing_more(script, session, program, often):
    gate = asyncio.Event()
    script(Step(text="One two three", gate=gate))
    pieces = events(await program.ask("Go", session=session.id, stream=True))
    assert (await anext(pieces))["choices"][0]["delta"]["content"] == "One"
    await db(lambda: revoke_key(ApiKey.objects.get().prefix))
    last = await asyncio.wait_for(anext(pieces), 60)
    assert last["error"]["code"] == "SESSION_NOT_FOUND"
    gate.set()
    assert [piece async for piece in pieces] == []


async def test_a_user_has_one_session_where_the_site_says_so(script, alice, program, users_are_sessions):
    script(lambda request: f"answer {len(request.payload['messages'])}")
    first = await program.ask("One", user="anna")
    again, other = await program.ask("Two", user="anna"), await program.ask("Three", user="ben")
    ids = [response["X-Mnesis-Session"] for response in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert again.json()["choices"][0]["message"]["content"] == "answer 3"
    both = await asyncio.gather(program.ask("Four", user="carl"), program.ask("Five", user="carl"))
    # The other one either waited its turn in the same session or was told that it is busy.
    assert {response["X-Mnesis-Session"] for response in both if response.status_code == 200} != set()
    assert {response.status_code for response in both} <= {200, 409}
    assert len(await db(list_sessions, owner_id=alice.pk)) == 3
    header = await program.ask("Six", user="anna", session="new")
    assert header["X-Mnesis-Session"] not in ids


async def test_a_user_whose_session_was_deleted_begins_a_new_one(script, alice, program, users_are_sessions):
    model = script("one", "two", "three")
    gone = (await program.ask("One", user="anna"))["X-Mnesis-Session"]
    await db(lifecycle.delete_session, gone, owner_id=alice.pk)
    responses = [await program.ask(text, user="anna") for text in ("Two", "Three")]
    assert [response.status_code for response in responses] == [200, 200]
    assert {response["X-Mnesis-Session"] for response in responses}.isdisjoint({gone})
    assert len({response["X-Mnesis-Session"] for response in responses}) == 1
    assert "One" not in str(model.requests[-1].payload["messages"])


async def test_a_user_means_nothing_where_the_site_does_not_say_so(script, program):
    script("one", "two")
    responses = [await program.ask("Hello", user="anna") for _ in range(2)]
    assert len({response["X-Mnesis-Session"] for response in responses}) == 2


async def test_the_session_may_be_named_in_the_metadata(script, program):
    script("one", "two")
    first = await program.ask("Hello", metadata={"mnesis_session": "new"})
    second = await program.ask("Hello", metadata={"mnesis_session": first["X-Mnesis-Session"]})
    assert second["X-Mnesis-Session"] == first["X-Mnesis-Session"]
    assert (await program.ask("Hello", metadata={"mnesis_session": 7})).status_code == 422


async def test_somebody_elses_session_and_calls_are_not_found(script, bob, session, program):
    script(Step(tool_calls=(ToolCall(id="c1", name="mine", arguments="{}"),)), "no")
    tools = [{"type": "function", "function": {"name": "mine"}}]
    waiting = await program.ask("Go", session=session.id, tools=tools)
    [call] = waiting.json()["choices"][0]["message"]["tool_calls"]
    stranger = Program(await db(create_key, owner_id=bob.pk), PATH)
    result = [{"role": "tool", "tool_call_id": call["id"], "content": "stolen"}]
    assert (await stranger.ask("Hello", session=session.id)).status_code == 404
    assert (await stranger.ask("", session=session.id, messages=result)).status_code == 404
    assert (await stranger.ask("", messages=result)).status_code == 404
    assert (await db(load_session, session.id)).state == "suspended"


async def test_the_prompt_of_a_request_is_that_of_its_turn(script, session, program):
    model = script("one", "two")
    system = {"role": "system", "content": "Speak like a sailor."}
    await program.ask("", session=session.id, messages=[system, {"role": "user", "content": "Hello"}])
    await program.ask("Again", session=session.id)
    assert model.requests[0].payload["messages"][0] == system
    assert model.requests[1].payload["messages"][0]["content"] == "Hello"


async def test_results_without_a_question_are_answered_where_they_came_from_elsewhere(script, program):
    model = script("It rains.")
    call = {"id": "x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "The weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": "rain"},
    ]
    answer = await program.ask("", messages=messages)
    assert answer.json()["choices"][0]["message"]["content"] == "It rains."
    assert [message["role"] for message in model.requests[0].payload["messages"]] == ["user", "assistant", "tool"]


async def test_what_cannot_begin_leaves_no_session_behind(alice, program):
    tools = [{"type": "function", "function": {"name": "not a name"}}]
    assert (await program.ask("Hello", tools=tools)).status_code == 422
    assert (await program.ask("Hello", session="new", tools=tools)).status_code == 422
    assert (await program.ask(" ", session="new")).status_code == 422
    result = [{"role": "tool", "tool_call_id": "part_none", "content": "x"}]
    assert (await program.ask("", messages=result)).json()["error"]["code"] == "TOOL_CALL_NOT_FOUND"
    assert await db(list_sessions, owner_id=alice.pk) == []


async def test_hostile_bodies_are_refused_in_openais_shape(program):
    deep = "[" * 400 + "]" * 400
    bodies = [
        '{"model": "demo", "messages": [{"role": "user", "content": "' + "x" * 27_000_000 + '"}]}',
        '{"model": "demo", "messages": ' + deep + "}",
        '{"model": "demo", "messages": [{"role": "user", "content": "a"}], "stop": ' + deep + "}",
        '{"model": "de\\u0000mo\\ud800", "messages": [{"role": "user", "content": "a"}]}',
        '{"model": "demo", "messages": [{"role": "tool", "tool_call_id": "\\u0000\\ud800", "content": "a"}]}',
    ]
    for body in bodies:
        answer = await program.http.post(PATH, data=body, content_type="application/json", headers=program.headers)
        assert 400 <= answer.status_code < 500, answer.content
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_another_model_than_the_sessions_is_refused(script, session, program):
    response = await program.ask("Hello", session=session.id, model="other")
    assert (response.status_code, response.json()["error"]["param"]) == (422, "model")


async def test_a_request_is_compared_with_the_chosen_branch_and_continues_it(script, session, program):
    script("1", "2", "3", "4")
    await program.ask("a", session=session.id)
    await program.ask("b", session=session.id)
    first = (await history(session))[1]
    started = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="c", parent_id=first.id)
    await lifecycle.wait_turn(session.id, started.turn.id, owner_id=session.owner_id)
    said = [("user", "a"), ("assistant", "1"), ("user", "b"), ("assistant", "2"), ("user", "d")]
    messages = [{"role": role, "content": content} for role, content in said]
    response = await program.ask("", session=session.id, messages=messages)
    assert response.status_code == 200
    # That branch has not heard of the exchange with b.
    path = await db(load_path, session.id)
    found = await db(load_messages, session.id, path=path)
    assert [spoken(message) for message in found] == ["a", "1", "c", "3", "b", "2", "d", "4"]
