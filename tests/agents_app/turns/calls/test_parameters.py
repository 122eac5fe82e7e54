"""What the calls of a turn are asked with: sent, recorded, rebuilt byte for byte, and checked where no provider does."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from agents_app.turns import lifecycle
from agents_app.turns.parameters import with_words
from audit_app.proof.verify import verify_session
from compaction_app.context.state import load_frame, rebuild_payload
from compaction_app.inspector.calls import open_call
from compaction_app.templatetags.compaction import call_facts
from mnesis_core.context.replay import BlockKind, blocks_beside
from mnesis_core.errors import InvalidRequest, InvalidSchema, ParameterNotSupported
from mnesis_core.llm.interface import Source, ToolSpec, Usage
from mnesis_core.llm.parameters import read_parameters
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.maps.prompts import CURRENT
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnRecord, TurnState
from mnesis_core.turns.options import TurnOptions
from sessions_app.conf import get_spec
from sessions_app.database.threads import db
from sessions_app.llm import model_store
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import begin, ended, history, say, spoken, tool_call

SCHEMA = {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "string"}}, "required": ["z"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
WEATHER = ToolSpec(name="weather", description="", parameters={"type": "object", "properties": {}})


async def ask(session: Any, message: str = "Hello", **values: Any) -> TurnRecord:
    tools = values.pop("tools", ())
    return await ended(await begin(session, message, parameters=read_parameters(values), tools=tools))


async def calls_of(session: Any) -> list[Any]:
    """The calls of a session, the first one first; each has to be rebuilt as it was sent."""
    calls = sorted(await db(list_calls, session.id), key=lambda call: call.id)
    for call in calls:
        rebuilt = await db(rebuild_payload, call)
        assert (rebuilt.problems, rebuilt.digest_matches) == ((), True)
    return calls


async def test_a_turns_parameters_are_sent_recorded_and_rebuilt(session, script):
    model = script("Hi.")
    assert (await ask(session, temperature=1, seed=7, stop=["END"], max_output_tokens=99)).state == TurnState.COMPLETED
    sent = {"temperature": 1.0, "seed": 7, "stop": ["END"], "max_tokens": 99}
    [request] = model.requests
    assert {name: request.payload[name] for name in sent} == sent
    assert request.max_output_tokens == 99
    [call] = await calls_of(session)
    assert (call.parameters["sent"], call.parameters["max_output_tokens"]) == (sent, 99)
    assert (await db(rebuild_payload, call)).payload == request.payload
    assert ("Temperature", "1.0") in call_facts(call)
    assert (await db(verify_session, session.id)).problems == []


async def test_a_digest_tells_two_temperatures_apart(alice, script):
    script("Hi.", "Hi.", "Hi.")
    digests = []
    for heat in (0.0, 0.5, 0.5):
        session = await db(lifecycle.create_session, owner=alice)
        await ask(session, temperature=heat)
        [call] = await calls_of(session)
        digests.append(call.digest)
    assert digests[0] != digests[1] == digests[2]


async def test_a_turn_goes_over_its_session_and_this_over_the_models_entry(alice, script):
    values = {"temperature": 0.1, "top_p": 0.2, "seed": 3}
    entry = await db(
        model_store.settle_model,
        alias="demo",
        litellm_model="openai/of-our-own",
        api_base="http://127.0.0.1:9/v1",
        context_window=8_000,
        max_output_tokens=1_000,
        prices=model_store.EnteredPrices(),
        timeout_seconds=1,
        total_timeout_seconds=1,
        takes_pictures=None,
        fallbacks=(),
        parameters=values,
    )
    await db(model_store.put_model, entry)
    assert (await db(get_spec, "demo", user_id=None)).parameters == read_parameters(values)
    model = script("Hi.")
    model.spec = entry
    config = {"parameters": {"temperature": 0.4, "top_p": 0.5}}
    session = await db(lifecycle.create_session, owner=alice, config=config)
    await ask(session, temperature=0.7)
    assert [model.requests[0].payload[name] for name in ("temperature", "top_p", "seed")] == [0.7, 0.5, 3]
    await calls_of(session)


async def test_a_sessions_parameters_are_checked_and_may_be_changed(session, script):
    model = script("Hi.", "Hi.")
    for bad in ({"temperature": 3}, {"heat": 1}, {"max_output_tokens": 5}, []):
        with pytest.raises(InvalidRequest) as refused:
            await db(lifecycle.update_session, session.id, owner_id=session.owner_id, config={"parameters": bad})
        assert str(refused.value.details["field"]).startswith("parameters")
    config = {"parameters": {"temperature": 0.5}}
    await db(lifecycle.update_session, session.id, owner_id=session.owner_id, config=config)
    await say(session, "Hello")
    await ask(session, temperature=None)
    assert [request.payload["temperature"] for request in model.requests] == [0.5, 0.5]
    assert (await db(load_session, session.id)).config == config


async def test_what_a_model_does_not_take_is_left_out_and_said_or_refused(alice):
    session = await db(lifecycle.create_session, owner=alice)
    await ask(session, temperature=0.5, seed=1)  # of the shipped demo model
    [call] = await calls_of(session)
    assert (call.parameters["sent"], list(call.parameters["not_taken"])) == ({"seed": 1}, ["temperature"])
    assert any(name == "Not sent: temperature" for name, _ in call_facts(call))
    config = {"turn": {"unsupported_parameters": "refuse"}}
    await db(lifecycle.update_session, session.id, owner_id=session.owner_id, config=config)
    with pytest.raises(ParameterNotSupported) as refused:
        await begin(session, "Hello", parameters=read_parameters({"temperature": 0.5}))
    assert refused.value.details["field"] == "parameters.temperature"
    assert len(await history(session)) == 2
    assert (await ask(session, seed=1)).state == TurnState.COMPLETED


async def test_a_tool_has_to_be_called_once_and_then_not_any_more(session, script):
    model = script(tool_call("calculator", expression="1+1"), "It is 2.")
    named = {"type": "function", "function": {"name": "calculator"}}
    assert (await ask(session, tool_choice=named, parallel_tool_calls=False)).state == TurnState.COMPLETED
    first, second = (request.payload for request in model.requests)
    assert (first["tool_choice"], first["parallel_tool_calls"]) == (named, False)
    assert "tool_choice" not in second
    assert second["parallel_tool_calls"] is False
    assert [call.parameters["sent"].get("tool_choice") for call in await calls_of(session)] == [named, None]


async def test_no_tools_are_offered_where_none_may_be_called(session, script):
    model = script("Hi.")
    await ask(session, tool_choice="none", tools=(WEATHER,))
    assert model.requests[0].payload.keys() == {"messages"}
    await calls_of(session)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "nobody"}}])
async def test_a_tool_that_is_not_offered_cannot_have_to_be_called(alice, script, choice):
    model = script()
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": []}})
    turn = await ask(session, tool_choice=choice)
    assert (turn.state, turn.error_code, model.requests) == (TurnState.FAILED, "INVALID_REQUEST", [])


async def test_an_answer_in_a_format_is_asked_for_in_words_and_checked(session, script):
    model = script('```json\n{"z": 1, "a": "b"}\n```')
    assert (await ask(session, response_format=FORMAT)).state == TurnState.COMPLETED
    [request] = model.requests
    system = request.payload["messages"][0]["content"]
    assert system.endswith(
        f'{CURRENT.with_schema}\n{{"type": "object", "properties": {{"z": {{"type": "integer"}}, "a": {{"type": "string"}}}}, "required": ["z"]}}'
    )
    assert "response_format" not in request.payload
    await calls_of(session)


async def test_a_schema_that_the_provider_holds_the_model_to_takes_its_room_and_is_a_block(session, script):
    frame = await db(load_frame, session.id)
    frame = replace(frame, spec=replace(frame.spec, litellm_model="openai/gpt-4.1"))
    options = TurnOptions(parameters=read_parameters({"response_format": FORMAT}))
    taken = frame.budget.usable - with_words(frame, options).budget.usable
    text = json.dumps(options.parameters.response_format, ensure_ascii=False)
    assert taken == ceil(estimate_text(text) * frame.calibration.ratio) > 20
    [block] = blocks_beside({"response_format": text})
    assert (block.kind, block.texts) == (BlockKind.FORMAT, (("text", text),))


async def test_a_wrong_answer_is_corrected_once(session, script):
    usage = Usage(input_tokens=900, output_tokens=7, source=Source.PROVIDER)
    model = script(Step(text='{"z": "one"}', usage=usage), '{"z": 1}', "And now plain text.")
    assert (await ask(session, response_format=FORMAT)).state == TurnState.COMPLETED
    said = model.requests[1].payload["messages"][-2:]
    assert [message["role"] for message in said] == ["assistant", "user"]
    assert said[0]["content"] == '{"z": "one"}'
    assert "'one' is not of type 'integer'" in said[1]["content"]
    assert (await say(session, "Go on")).state == TurnState.COMPLETED
    asked_again = await db(open_call, (await calls_of(session))[1])
    assert [block.texts for block in asked_again.blocks if block.kind is BlockKind.CORRECTION] == [
        (("text", said[1]["content"]),)
    ]
    # What was wrong is no part of the conversation, and the next turn has no format.
    assert [spoken(message) for message in await history(session)][1:3] == ['{"z": "one"}', '{"z": 1}']
    assert not any("is not of type" in str(message) for message in model.requests[2].payload["messages"])
    assert len(await calls_of(session)) == 3
    assert (await db(verify_session, session.id)).problems == []


async def test_an_answer_that_stays_wrong_fails_the_turn_and_is_kept(session, script):
    model = script("no", "no again")
    turn = await ask(session, response_format={"type": "json_object"})
    assert (turn.state, turn.error_code, len(model.requests)) == (TurnState.FAILED, "RESPONSE_FORMAT_NOT_MET", 2)
    assert [spoken(message) for message in await history(session)][1:] == ["no", "no again"]
    await calls_of(session)


async def test_an_answer_that_was_cut_is_not_called_wrong(session, script):
    model = script(Step(text='{"z": ', finish_reason="length"))
    assert (await ask(session, response_format=FORMAT)).state == TurnState.COMPLETED
    assert len(model.requests) == 1


async def test_a_schema_that_cannot_be_checked_here_is_refused_before_the_turn(session, script):
    script()
    for schema in ({"$ref": "https://example.com/other"}, {"type": 7}, {"pattern": "(?=a)"}):
        wanted = {"type": "json_schema", "json_schema": {"name": "r", "schema": schema}}
        with pytest.raises(InvalidSchema):
            await begin(session, "Hello", parameters=read_parameters({"response_format": wanted}))
    assert await history(session) == []
