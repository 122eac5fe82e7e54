"""OpenAI's Responses API, asked in this process: where a request belongs, what Codex sends, and what bad bodies get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from agents_app.turns import lifecycle
from mnesis_core.errors import ModelStreamBroken
from mnesis_core.llm.interface import ModelSpec, ToolCall
from mnesis_core.providers.scripted import Step
from mnesis_core.text import text_digest
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key, put_model
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.record.turn_queries import list_turns
from tests.support.material.drawings import drawing, image_part
from tests.support.people.programs import Program
from tests.support.people.story import spoken
from tests.support.providers.caching_provider import CachingProvider
from tests.support.providers.event_provider import EventProvider, responses
from tests.support.providers.thinking_provider import Block, ThinkingProvider

pytestmark = pytest.mark.usefixtures("no_connection_left")

CODEX: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data/codex_request.json").read_text())
PATH = "/v1/responses"


class ResponsesProgram(Program):
    """A program that asks for responses."""

    async def respond(self, input: Any, **body: Any) -> dict[str, Any]:
        response = await self.post(**{"model": "demo", "input": input, **body})
        assert response.status_code == 200, response.content
        return dict(response.json())

    async def events(self, **body: Any) -> list[dict[str, Any]]:
        response = await self.post(**{"model": "demo", "stream": True, **body})
        assert response.status_code == 200
        text = "".join([piece.decode() async for piece in response.streaming_content])
        return [json.loads(event.partition("data: ")[2]) for event in text.strip().split("\n\n")]


@pytest.fixture
def program(alice: Any) -> ResponsesProgram:
    return ResponsesProgram(create_key(owner_id=alice.pk), PATH)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="c1", name=name, arguments=json.dumps(arguments))


async def test_what_codex_sends_is_a_turn_of_one_session(script, alice, program):
    run = call("exec_command", cmd="echo hi > made.txt")
    close = call("multi_agent_v1__close_agent", target="a")
    script(Step(text="I make it. ", tool_calls=(run,)), Step(tool_calls=(close,)), Step(text="Done."))
    history = list(CODEX["input"])
    ended = []
    for _ in range(3):
        ended.append((await program.events(**{**CODEX, "input": history}))[-1]["response"])
        for item in ended[-1]["output"]:
            history.append(item)
            if item["type"] == "function_call":
                history.append({"type": "function_call_output", "call_id": item["call_id"], "output": "Exit code 0"})
    assert [one["status"] for one in ended] == ["completed"] * 3
    assert [(item["type"], item.get("name"), item.get("namespace")) for one in ended for item in one["output"]] == [
        *(("message", None, None), ("function_call", "exec_command", None)),
        *(("function_call", "close_agent", "multi_agent_v1"), ("message", None, None)),
    ]
    [session] = await db(list_sessions, owner_id=alice.pk)
    assert session.labels == {"door": "responses", "one_turn": "yes"}
    assert not session.title.startswith("<")
    [turn] = await db(list_turns, session.id)
    assert (turn.state, session.system_prompt.startswith("You are a coding agent")) == ("completed", True)


async def test_a_stream_that_breaks_ends_with_a_failed_response(script, program):
    script(Step(text=("I ", "look"), error=ModelStreamBroken("gone")))
    *_, last = await program.events(input="Look", metadata={})
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["mnesis"]["code"] == "MODEL_STREAM_BROKEN"
    read = (await program.get(f"{PATH}/{last['response']['id']}")).json()
    assert (read["status"], read["error"]["code"]) == ("failed", "server_error")


async def test_a_response_that_has_ended_is_not_streamed_again(script, program):
    script(Step(text="One"))
    one = await program.respond("Hello")
    refused = await program.get(f"{PATH}/{one['id']}?stream=true")
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "stream")
    assert (await program.get(f"{PATH}/{one['id']}?stream=false")).json()["id"] == one["id"]


async def test_a_turn_may_have_another_model(script, program, alice):
    script(Step(text="One"))
    one = await program.respond("Hello")
    session = await db(load_session, one["mnesis"]["session_id"])
    missing = await program.post(model="none", input="And?", previous_response_id=one["id"])
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "MODEL_NOT_FOUND")
    assert (await db(load_session, session.id)).turn_seq == 1


async def test_a_key_makes_a_request_safe_to_repeat(script, program):
    script(Step(text="One"), Step(text="Two"))
    program.headers["Idempotency-Key"] = "once"
    one = await program.respond("Hello")
    assert (await program.respond("Hello"))["id"] == one["id"]
    assert (await program.post(model="demo", input="Bye")).json()["error"]["code"] == "IDEMPOTENCY_MISMATCH"


async def test_a_response_reads_as_it_was_given(script, program):
    script(Step(text="One"), Step(text="Two"))
    one = await program.respond("Hello", metadata={"topic": "tides \u00e9\u202e", "\ud83d": ""})
    two = await program.respond("And?", previous_response_id=one["id"], metadata={"topic": "ebb"})
    assert (two["previous_response_id"], two["metadata"], two["store"]) == (one["id"], {"topic": "ebb"}, True)
    for given in (one, two):
        read = (await program.get(f"{PATH}/{given['id']}")).json()
        assert {name: read[name] for name in given if name != "output"} == {
            name: value for name, value in given.items() if name != "output"
        }
    refused = await program.post(model="demo", input="Hi", metadata={str(number): "" for number in range(17)})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "metadata")


async def test_a_reference_to_an_item_continues_its_session(script, program):
    script(Step(text="One"), Step(text="Two"))
    one = await program.respond("Hello")
    reference = {"type": "item_reference", "id": one["output"][0]["id"]}
    two = await program.respond([{"role": "user", "content": "Hello"}, reference, {"role": "user", "content": "And?"}])
    assert two["mnesis"]["session_id"] == one["mnesis"]["session_id"]
    messages = await db(load_messages, one["mnesis"]["session_id"])
    assert [*map(spoken, messages)] == ["Hello", "One", "And?", "Two"]


async def test_sessions_of_others_are_not_found(script, program, bob):
    script(Step(text="One"))
    one = await program.respond("Hello")
    other = ResponsesProgram(await db(create_key, owner_id=bob.pk), PATH)
    number = one["mnesis"]["session_id"].removeprefix("sess_")
    reference = {"type": "item_reference", "id": one["output"][0]["id"]}
    for body in (
        {"conversation": f"conv_{number}"},
        {"previous_response_id": one["id"]},
        {"input": [reference, {"role": "user", "content": "And?"}]},
    ):
        response = await other.post(**{"model": "demo", "input": "And?", **body})
        assert (response.status_code, response.json()["error"]["type"]) == (404, "invalid_request_error")
    for method, path in (("get", ""), ("delete", ""), ("get", "/input_items"), ("post", "/cancel")):
        response = await getattr(other.http, method)(f"{PATH}/{one['id']}{path}", headers=other.headers)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "TURN_NOT_FOUND")
    conversation = f"/v1/conversations/conv_{number}"
    for asking in (
        other.get(conversation),
        other.get(f"{conversation}/items"),
        other.post(conversation, metadata={"mine": "yes"}),
        other.http.delete(conversation, headers=other.headers),
    ):
        response = await asking
        assert (response.status_code, response.json()["error"]["code"]) == (404, "SESSION_NOT_FOUND")
    assert (await program.get(conversation)).json()["metadata"].get("mine") is None


async def test_a_key_that_may_only_read_reads(script, program, alice):
    script(Step(text="One"))
    one = await program.respond("Hello")
    reader = ResponsesProgram(await db(create_key, owner_id=alice.pk, scope="read"), PATH)
    assert (await reader.get(f"{PATH}/{one['id']}")).json()["output"] == one["output"]
    for response in (
        await reader.post(model="demo", input="Hello"),
        await reader.post(f"{PATH}/{one['id']}/cancel"),
        await reader.http.delete(f"{PATH}/{one['id']}", headers=reader.headers),
    ):
        assert (response.status_code, response.json()["error"]["code"]) == (403, "PERMISSION_DENIED")


async def test_a_refused_request_leaves_no_session(program, alice):
    response = await program.post(model="demo", input="")
    assert (response.status_code, response.json()["error"]["code"]) == (422, "INVALID_REQUEST")
    assert await db(list_sessions, owner_id=alice.pk) == []


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        "null",
        '{"model": 1}',
        '{"model": "demo"}',
        '{"model": "demo", "input": 1}',
        '{"model": "demo", "input": []}',
        '{"model": "demo", "input": [1]}',
        '{"model": "demo", "input": [{}]}',
        '{"model": "demo", "input": [{"type": {}}]}',
        '{"model": "demo", "input": [{"role": "assistant", "content": "Hi"}]}',
        '{"model": "demo", "input": "Hi", "tools": ' + "[" * 3_000 + "]" * 3_000 + "}",
        '{"model": "demo", "input": "Hi", "text": {"format": {"type": "json_schema"}}}',
        '{"model": "demo", "input": "Hi", "tools": [{"type": "function", "name": "\\ud800"}]}',
        '{"model": "demo", "input": "Hi", "metadata": {"\\ud800": 1}}',
        '{"model": "demo", "input": "Hi", "temperature": NaN}',
        '{"model": "demo", "input": "Hi", "previous_response_id": "resp_\\u0000"}',
        '{"model": "demo", "input": "Hi", "conversation": "conv_\\u0000"}',
        '{"model": "demo", "input": [{"type": "function_call_output", "call_id": "\\u0000", "output": ""}]}',
    ],
)
async def test_no_body_is_a_server_error(program, body):
    response = await program.http.post(PATH, data=body, content_type="application/json", headers=program.headers)
    assert response.status_code in (404, 422)
    assert response.json()["error"]["type"] == "invalid_request_error"
    response.content.decode()


async def test_nasty_text_is_kept_and_answered(script, program):
    script(Step(text="nul \x00 lone \ud800"))
    one = await program.respond(
        "nul \x00 lone \ud800", tools=[{"type": "custom", "name": "note", "description": "\ud800"}]
    )
    assert one["output"][0]["content"][0]["text"] == "nul \x00 lone \ufffd"
    [item] = (await program.get(f"{PATH}/{one['id']}/input_items")).json()["data"]
    assert item["content"][0]["text"] == "nul \x00 lone \ufffd"


async def test_a_result_may_be_a_picture(script, program):
    script(Step(tool_calls=(call("look"),)), Step(text="A chart."))
    tools = [{"type": "function", "name": "look"}]
    one = await program.respond("Look", tools=tools)
    image = {"type": "input_image", "image_url": image_part(drawing())["image_url"]["url"]}
    result = {"type": "function_call_output", "call_id": one["output"][0]["call_id"], "output": [image]}
    two = await program.respond([result], previous_response_id=one["id"], tools=tools)
    assert two["output"][0]["content"][0]["text"] == "A chart."
    messages = await db(load_messages, one["mnesis"]["session_id"])
    [of_tool, picture] = [stored.part for stored in messages[1].parts]
    assert (picture.media_type, picture.tool_call_id) == ("image/png", of_tool.tool_call_id)


async def test_a_waiting_turn_is_cancelled_at_once(script, program):
    script(Step(tool_calls=(call("look"),)))
    one = await program.respond("Look", tools=[{"type": "function", "name": "look"}])
    cancelled = (await program.post(f"{PATH}/{one['id']}/cancel")).json()
    session = await db(lifecycle.load_session, one["mnesis"]["session_id"])
    assert (cancelled["status"], session.running_turn_id) == ("completed", None)  # the response itself was whole


NO_ITEMS = ("", "[]", "{}", '{"items": null}', '{"items": []}', '{"items": [1]}', '{"items": [{}]}')
BAD_ITEMS = (
    {"role": "user", "content": ""},
    {"role": "robot", "content": "Hi"},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
    {"type": "item_reference", "id": f"msg_{'0' * 26}_M1"},
    {"type": "function_call_output", "call_id": "c1", "output": "a result without its call"},
    {"type": "function_call", "call_id": "c1", "name": None, "arguments": "{}"},
    {"type": "reasoning", "summary": []},
    {"type": "mcp_list_tools"},
)


@pytest.mark.slow
async def test_items_are_added_without_asking_a_model(script, program, alice):
    script(Step(text="They turn at six."))
    made = (await program.post("/v1/conversations", items=[{"role": "user", "content": "nul \x00 lone \ud800"}])).json()
    image = {"type": "input_image", "image_url": image_part(drawing())["image_url"]["url"]}
    items = [
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "tides", "arguments": '{"place": "Kiel"}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "At six"}, image]},
        {"role": "developer", "content": "Be brief."},
    ]
    path = f"/v1/conversations/{made['id']}/items"
    program.headers["Idempotency-Key"] = "once"
    added = (await program.post(path, items=items)).json()
    assert (await program.post(path, items=items)).json() == added
    assert (await program.post(path, items=items[:1])).json()["error"]["code"] == "IDEMPOTENCY_MISMATCH"
    kinds = ["message", "function_call", "function_call_output", "message"]
    assert [item["type"] for item in added["data"]] == kinds
    listed = (await program.get(f"{path}?order=asc")).json()["data"]
    assert listed[1:] == added["data"]
    assert listed[0]["content"][0]["text"] == "nul \x00 lone \ufffd"
    for item in listed:
        assert (await program.get(f"{path}/{item['id']}")).json() == item
    del program.headers["Idempotency-Key"]
    answered = await program.respond("When?", conversation=made["id"])
    assert answered["output"][0]["content"][0]["text"] == "They turn at six."
    assert (await program.get(f"{path}/{answered['output'][0]['id']}")).json() == answered["output"][0]
    session = await db(load_session, answered["mnesis"]["session_id"])
    turns = await db(list_turns, session.id)
    assert sorted((turn.origin, turn.state) for turn in turns) == [
        *(("chat", "completed"), ("record", "completed"), ("record", "completed")),
    ]


async def test_an_item_is_not_deleted(script, program):
    script(Step(text="One"))
    one = await program.respond("Hello")
    path = f"/v1/conversations/{one['conversation']['id']}/items"
    [item, _] = (await program.get(path)).json()["data"]
    refused = await program.http.delete(f"{path}/{item['id']}", headers=program.headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "IMMUTABLE_FIELD")
    assert (await program.get(f"{path}/{item['id']}")).json() == item


async def test_only_items_of_the_conversation_are_found(script, program):
    script(Step(text="One"), Step(text="Two"))
    one, two = await program.respond("Hello"), await program.respond("Hello")
    path, other = (f"/v1/conversations/{made['conversation']['id']}/items" for made in (one, two))
    [item, _] = (await program.get(path)).json()["data"]
    number = one["id"].removeprefix("resp_")
    for wrong in (
        *(f"{other}/{item['id']}", f"{other}/{one['output'][0]['id']}", f"{path}/{item['id']}0"),
        *(f"{path}/{kind}_{number}_{place}" for kind in ("msg", "fc") for place in (9, "M9", "0" * 26, "\x00")),
        f"{path}/msg_{'0' * 26}_0",
    ):
        for asking in (program.get(wrong), program.http.delete(wrong, headers=program.headers)):
            response = await asking
            assert response.status_code == 404, wrong
            assert response.json()["error"]["type"] == "invalid_request_error"


async def test_bad_items_are_refused_and_leave_nothing(program, alice, subtests):
    made = (await program.post("/v1/conversations")).json()
    path = f"/v1/conversations/{made['id']}/items"
    bodies = [*NO_ITEMS, *(json.dumps({"items": [item]}) for item in BAD_ITEMS)]
    for body in bodies:
        with subtests.test(body):
            response = await program.http.post(
                path, data=body, content_type="application/json", headers=program.headers
            )
            assert (response.status_code, response.json()["error"]["type"]) == (422, "invalid_request_error")
    for item in BAD_ITEMS:
        assert (await program.post("/v1/conversations", items=[item])).status_code == 422
    [session] = await db(list_sessions, owner_id=alice.pk)
    assert session.turn_seq == 0


async def test_no_items_are_added_while_a_turn_waits(script, program, bob):
    script(Step(tool_calls=(call("look"),)))
    one = await program.respond("Look", tools=[{"type": "function", "name": "look"}])
    path, items = f"/v1/conversations/{one['conversation']['id']}/items", [{"role": "user", "content": "Hi"}]
    refused = await program.post(path, items=items)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "SESSION_BUSY")
    other = ResponsesProgram(await db(create_key, owner_id=bob.pk), PATH)
    for asking in (other.post(path, items=items), other.get(f"{path}/{one['output'][0]['id']}")):
        assert (await asking).json()["error"]["code"] == "SESSION_NOT_FOUND"


WEATHER = {"type": "function", "name": "weather"}
INCLUDED = {"include": ["reasoning.encrypted_content"], "tools": [WEATHER], "store": False}


def reasoner(provider: CachingProvider, name: str = "openai/responses/gpt-5") -> None:
    put_model(
        ModelSpec(
            alias="reasoner",
            litellm_model=name,
            api_base=provider.url,
            context_window=50_000,
            max_output_tokens=9_000,
            entered_on_host=True,
        )
    )


def blocks(number: int) -> list[Block]:
    return [("text", "High.")] if number % 2 else [("think", "Which town?"), ("call", ("weather", {"town": "Kiel"}))]


def result_of(output: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "Rain"}


async def asked_anew(program: ResponsesProgram, output: list[dict[str, Any]], **body: Any) -> dict[str, Any]:
    """Ask as a client without a session does, which sends all that it has."""
    history = [{"role": "user", "content": "Rain?"}, *output, result_of(output)]
    history += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And the tide?"}]
    return await program.respond(history, **{"model": "reasoner", **INCLUDED, **body})


@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["whole", "streamed"])
async def test_encrypted_reasoning_goes_to_a_client_without_a_session_and_back_as_it_came(program, monkeypatch, stream):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with ThinkingProvider(blocks) as provider:
        await db(reasoner, provider)
        asking = {"model": "reasoner", "input": [{"role": "user", "content": "Rain?"}], **INCLUDED}
        if stream:
            *told, last = await program.events(**asking)
            one = last["response"]
            assert [event["item"] for event in told if event["type"] == "response.output_item.done"] == one["output"]
        else:
            one = (await program.post(**asking)).json()
        Response.model_validate(one)
        thought, sealed, called = one["output"]
        assert (thought["summary"][0]["text"], thought.get("encrypted_content")) == ("Which town?", None)
        assert (sealed["type"], sealed["summary"], called["type"]) == ("reasoning", [], "function_call")
        await asked_anew(program, one["output"])
        [back] = [item for item in provider.requests[1]["input"] if item.get("type") == "reasoning"]
        assert (back["encrypted_content"], back["summary"]) == (sealed["encrypted_content"], thought["summary"])
    read = f"{PATH}/{one['id']}"
    assert (await program.get(f"{read}?include[]=reasoning.encrypted_content")).json()["output"] == one["output"]
    assert (await program.get(read)).json()["output"] == [thought, called]


@pytest.mark.slow
async def test_encrypted_reasoning_is_shown_on_request_only_and_never_invented(program, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "key")
    for model, asked in (("openai/responses/gpt-5", {"include": []}), ("anthropic/claude-sonnet-4-5", {})):
        with ThinkingProvider(blocks) as provider:
            await db(reasoner, provider, model)
            given = {"model": "reasoner", "reasoning": {"effort": "high"}, **INCLUDED, **asked}
            answered = await program.respond("Rain?", **given)
        assert [item["type"] for item in answered["output"]] == ["reasoning", "function_call"]
        assert "encrypted_content" not in json.dumps(answered)


@pytest.mark.slow
async def test_encrypted_reasoning_without_an_id_goes_back_as_the_client_has_it(program, monkeypatch, bob):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    other = ResponsesProgram(await db(create_key, owner_id=bob.pk), PATH)
    with ThinkingProvider(blocks) as provider:
        await db(reasoner, provider)
        theirs = await other.respond("Rain?", model="reasoner", **INCLUDED)
    text = {"type": "output_text", "text": "High.", "annotations": []}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "content_index": 0, "delta": "High."}
    said = list(responses(about | {"content": [text]}, between={0: [delta]}))
    call_item = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    sealed = {
        "type": "reasoning",
        "encrypted_content": "gAAA",
        "summary": [{"type": "summary_text", "text": "Hm"}, 1],
    }
    hostile = [
        sealed | {"summary": 3, "id": 5},
        *({"type": "reasoning", "encrypted_content": bad} for bad in (["a"], "\ud800")),
    ]
    with EventProvider(lambda _: said) as provider:
        await db(reasoner, provider)
        await asked_anew(program, [sealed, call_item])
        await asked_anew(program, [*hostile, call_item])
        await asked_anew(program, [theirs["output"][1], call_item])
        await asked_anew(
            program, [sealed, {"role": "assistant", "content": "Hm."}, {"role": "user", "content": "?"}, call_item]
        )
    backs = [[item for item in body["input"] if item.get("type") == "reasoning"] for body in provider.requests]
    named = {"id": f"rs_{text_digest('gAAA')[:32]}"}
    assert backs[0] == [sealed | named | {"summary": sealed["summary"][:1]}]
    assert backs[1] == [named | {"type": "reasoning", "encrypted_content": "gAAA", "summary": []}]
    assert backs[2] == [{name: theirs["output"][1][name] for name in ("id", "type", "summary", "encrypted_content")}]
    assert backs[3] == []
