"""JSON-RPC 2.0: the protocol, and that its methods are the domain's."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from agents_app.endpoints import jsonrpc
from agents_app.turns.runner import runner
from files_app.intake import keep_file
from mnesis_core.llm.interface import ToolCall
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord
from sessions_app.callers import Caller
from sessions_app.database.threads import db
from tests.support.people.cast import caller_of


@pytest.fixture
def caller(alice: User) -> Caller:
    return caller_of(alice)


async def exchange(caller: Caller, text: str | bytes) -> Any:
    answer = await jsonrpc.respond(text, caller)
    return None if answer is None else json.loads(answer)


async def call(caller: Caller, method: str, **params: Any) -> Any:
    """The result of a method, or its error."""
    answer = await exchange(caller, json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}))
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == 7
    return answer.get("result", answer.get("error"))


@pytest.mark.parametrize(
    ("text", "number", "code"),
    [
        ("", -32700, "INVALID_REQUEST"),
        ('{"jsonrpc": "2.0", "method": "session/list", "params": "bar", "baz]', -32700, "INVALID_REQUEST"),
        (b'{"\xff"}', -32700, "INVALID_REQUEST"),
        ('{"jsonrpc": "2.0", "id": NaN, "method": "initialize"}', -32700, "INVALID_REQUEST"),
        ("[" * 3_000 + "]" * 3_000, -32700, "INVALID_REQUEST"),
        ("[]", -32600, "INVALID_REQUEST"),
        ("1", -32600, "INVALID_REQUEST"),
        ("null", -32600, "INVALID_REQUEST"),
        ('{"jsonrpc": "2.0", "method": 1, "params": "bar"}', -32600, "INVALID_REQUEST"),
        ('{"jsonrpc": "1.0", "method": "initialize", "id": 1}', -32600, "INVALID_REQUEST"),
        ('{"jsonrpc": "2.0", "method": "initialize", "id": {"a": 1}}', -32600, "INVALID_REQUEST"),
        ('{"jsonrpc": "2.0", "method": "initialize", "id": true}', -32600, "INVALID_REQUEST"),
    ],
)
async def test_what_is_no_request_is_answered_with_the_number_of_the_specification(
    caller: Caller, text: str | bytes, number: int, code: str
) -> None:
    answer = await exchange(caller, text)
    assert answer["id"] is None
    assert (answer["error"]["code"], answer["error"]["data"]["code"]) == (number, code)
    assert answer["error"]["message"]


async def test_an_id_may_be_any_number(caller: Caller) -> None:
    number = int("9" * 400)
    answer = await exchange(caller, f'{{"jsonrpc": "2.0", "method": "none", "id": {number}}}')
    assert answer["id"] == number


async def test_an_unknown_method_is_not_found(caller: Caller) -> None:
    for name in ("session/destroy", "rpc.x", "", "__class__", "\0", "\ud800"):
        error = await call(caller, name)
        assert (error["code"], error["data"]["code"]) == (-32601, "NOT_FOUND")


@pytest.mark.parametrize("params", ["[1, 2]", "null", '"x"', "5", "{}", '{"session_id": 5}'])
async def test_parameters_that_do_not_fit_are_invalid(caller: Caller, params: str) -> None:
    text = f'{{"jsonrpc": "2.0", "id": 1, "method": "session/read", "params": {params}}}'
    error = (await exchange(caller, text))["error"]
    assert (error["code"], error["data"]["code"]) == (-32602, "INVALID_REQUEST")


async def test_parameters_may_be_left_out(caller: Caller) -> None:
    answer = await exchange(caller, '{"jsonrpc": "2.0", "id": "a", "method": "session/list"}')
    assert answer == {"jsonrpc": "2.0", "id": "a", "result": {"items": [], "next_cursor": None}}


async def test_a_notification_is_done_and_not_answered(caller: Caller) -> None:
    assert await exchange(caller, '{"jsonrpc": "2.0", "method": "session/create", "params": {"title": "T"}}') is None
    assert await exchange(caller, '{"jsonrpc": "2.0", "method": "session/read"}') is None
    assert [item["title"] for item in (await call(caller, "session/list"))["items"]] == ["T"]


async def test_a_batch_is_answered_in_order_with_each_its_own_end(caller: Caller) -> None:
    batch = """[
        {"jsonrpc": "2.0", "method": "session/create", "params": {"title": "one"}, "id": "same"},
        {"jsonrpc": "2.0", "method": "session/create", "params": {"title": "two"}},
        {"foo": "boo"},
        {"jsonrpc": "2.0", "method": "no/such", "id": 1.5},
        {"jsonrpc": "2.0", "method": "session/list", "id": "same"},
        {"jsonrpc": "2.0", "method": "session/list", "id": null}
    ]"""
    answers = await exchange(caller, batch)
    assert [answer["id"] for answer in answers] == ["same", None, 1.5, "same", None]
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32600, -32601, None, None]
    assert [item["title"] for item in answers[3]["result"]["items"]] == ["two", "one"]


async def test_a_batch_of_notifications_is_not_answered(caller: Caller) -> None:
    assert await exchange(caller, '[{"jsonrpc": "2.0", "method": "session/list"}]') is None


async def test_a_batch_has_a_limit(caller: Caller) -> None:
    many = json.dumps([{"jsonrpc": "2.0", "method": "initialize", "id": 1}] * 101)
    assert (await exchange(caller, many))["error"]["code"] == -32600


async def test_it_says_which_methods_there_are(caller: Caller) -> None:
    described = (await call(caller, "initialize"))["methods"]
    listed = "create list read archive trash restore delete interrupt fork record compact history"
    assert {f"session/{name}" for name in listed.split()} <= set(described)
    assert {"turn/start", "turn/read", "context/get", "search", "events/list", "events/subscribe"} <= set(described)
    assert described["session/read"]["required"] == ["session_id"]


@pytest.mark.parametrize("text", ["\0", "\ud800", "x" * 3_000, "␛"])
async def test_hostile_text_is_no_mistake_of_ours(caller: Caller, text: str) -> None:
    for name, method in jsonrpc.METHODS.items():
        fields = method.params.model_json_schema().get("properties", {})
        answer = await call(caller, name, **dict.fromkeys(fields, text), **{text: text})
        assert answer.get("code") != -32603, (name, answer)


async def test_deep_values_are_no_mistake_of_ours(caller: Caller) -> None:
    for depth in (500, 900, 990):
        deep = '{"a":' * depth + "1" + "}" * depth
        text = f'{{"jsonrpc": "2.0", "id": 1, "method": "session/create", "params": {{"config": {deep}}}}}'
        error = (await exchange(caller, text))["error"]
        assert error["data"]["code"] == "INVALID_REQUEST"


async def test_a_message_of_20_megabytes_is_too_large(caller: Caller, session: SessionRecord) -> None:
    error = await call(caller, "turn/start", session_id=session.id, message="x" * 20_000_000)
    assert (error["code"], error["data"]["code"]) == (-32013, "REQUEST_TOO_LARGE")


async def test_a_conversation(caller: Caller, script: Any) -> None:
    script("Paris.", "Two million.")
    made = await call(caller, "session/create", message="What is the capital of France?")
    turn = await call(caller, "turn/read", session_id=made["id"], turn_id=made["turn_id"])
    await runner.wait(turn["id"])
    turn = await call(caller, "turn/start", session_id=made["id"], message="How many live there?")
    await runner.wait(turn["id"])
    page = await call(caller, "session/history", session_id=made["id"])
    assert [message["parts"][0]["text"] for message in page["items"]][1::2] == ["Paris.", "Two million."]
    context = await call(caller, "context/get", session_id=made["id"], format="openai_chat")
    assert context["payload"]["messages"][-1]["content"] == "Two million."
    found = await call(caller, "search", q="million")
    assert found["items"][0]["session_id"] == made["id"]
    events = await call(caller, "events/list", session_id=made["id"])
    assert [event["seq"] for event in events["items"]] == list(range(1, len(events["items"]) + 1))


async def test_record_fork_compact_and_archive(caller: Caller, session: SessionRecord) -> None:
    turn = await call(caller, "session/record", session_id=session.id, user="hi", assistant="hello")
    assert turn["state"] == "completed"
    fork = await call(caller, "session/fork", session_id=session.id, at_message_id=turn["message_ids"][-1])
    assert fork["parent_id"] == session.id
    assert (await call(caller, "session/compact", session_id=session.id, wait=True))["state"] == "completed"
    assert (await call(caller, "session/archive", session_id=session.id))["archived"] is True
    error = await call(caller, "turn/start", session_id=session.id, message="more")
    assert (error["code"], error["data"]["code"]) == (-32012, "SESSION_ARCHIVED")
    assert (await call(caller, "session/reopen", session_id=session.id))["archived"] is False
    assert (await call(caller, "session/record", session_id=session.id, user="hi", assistant="again"))["seq"] == 2
    rating = await call(caller, "ratings/set", session_id=session.id, message_id=turn["message_ids"][-1], thumb="down")
    assert (await call(caller, "ratings/list", session_id=session.id))["items"] == [rating]
    share = await call(caller, "shares/create", session_id=session.id, audience="site")
    assert [one["id"] for one in (await call(caller, "shares/list", session_id=session.id))["items"]] == [share["id"]]
    revoked = await call(caller, "shares/revoke", session_id=session.id, share_id=share["id"])
    assert (share["state"], revoked["state"]) == ("open", "revoked")
    assert (await call(caller, "session/trash", session_id=session.id))["state"] == "trashed"
    error = await call(caller, "session/read", session_id=session.id)
    assert (error["code"], error["data"]["code"]) == (-32004, "SESSION_IN_TRASH")
    assert [one["id"] for one in (await call(caller, "session/list", trashed=True))["items"]] == [session.id]
    assert (await call(caller, "session/restore", session_id=session.id))["trashed"] is False
    assert (await call(caller, "session/delete", session_id=session.id)) == {"id": session.id, "deleted": True}


async def test_busy_and_interrupt(caller: Caller, session: SessionRecord, script: Any) -> None:
    assert (await call(caller, "session/interrupt", session_id=session.id))["data"]["code"] == "SESSION_NOT_RUNNING"
    model = script(Step(text="It is a long story", gate=asyncio.Event()))
    turn = await call(caller, "turn/start", session_id=session.id, message="Tell me")
    await model.at_gate.wait()
    error = await call(caller, "turn/start", session_id=session.id, message="Me too")
    assert (error["code"], error["data"]["code"]) == (-32010, "SESSION_BUSY")
    assert error["data"]["details"]["turn_id"] == turn["id"]
    assert (await call(caller, "session/interrupt", session_id=session.id))["id"] == turn["id"]
    await runner.wait(turn["id"])
    ended = await call(caller, "turn/read", session_id=session.id, turn_id=turn["id"])
    assert ended["state"] == "cancelled"


async def test_a_turn_waits_for_tools_of_its_caller(caller: Caller, session: SessionRecord, script: Any) -> None:
    script(ToolCall(id="call_1", name="weather", arguments='{"city": "Oslo"}'), "It rains.")
    tools = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    asked = {"session_id": session.id, "message": "Weather in Oslo?", "tools": tools, "wait": True}
    turn = await call(caller, "turn/start", **asked)
    assert turn["state"] == "suspended"
    assert [waiting["tool_call_id"] for waiting in turn["waits_for"]] == ["call_1"]
    results = [{"tool_call_id": "call_1", "output": "rain"}]
    await call(caller, "turn/answer", session_id=session.id, turn_id=turn["id"], results=results)
    assert (await call(caller, "turn/wait", session_id=session.id, turn_id=turn["id"]))["state"] == "completed"


async def test_files_are_listed_described_read_and_searched(caller: Caller, session: SessionRecord) -> None:
    file = await db(keep_file, session.id, owner_id=caller.owner_id, path="a.log", chunks=[b"low\nhigh\n"])
    listed = await call(caller, "files/list", session_id=session.id)
    assert [item["id"] for item in listed["items"]] == [file.id]
    assert await call(caller, "files/read", file_id=file.id) == listed["items"][0]
    lines = await call(caller, "files/lines", file_id=file.id, first=2)
    assert ([line["text"] for line in lines["items"]], lines["total"]) == (["high"], 2)
    found = await call(caller, "files/search", file_id=file.id, q="HIGH")
    assert [hit["number"] for hit in found["items"]] == [2]
    assert (await call(caller, "files/read", file_id="file_none"))["data"]["code"] == "FILE_NOT_FOUND"
    assert (await call(caller, "files/list", session_id="sess_none"))["data"]["code"] == "SESSION_NOT_FOUND"


async def test_a_reading_key_may_not_write(alice: User, session: SessionRecord) -> None:
    reader = caller_of(alice, may_write=False)
    assert (await call(reader, "session/read", session_id=session.id))["id"] == session.id
    for name, method in jsonrpc.METHODS.items():
        if method.writes:
            assert (await call(reader, name))["data"]["code"] == "PERMISSION_DENIED", name


async def test_somebody_elses_session_is_not_found(bob: User, session: SessionRecord) -> None:
    stranger = caller_of(bob)
    results = [{"tool_call_id": "x", "output": "x"}]
    # What is no text, and what a method needs of fields that it does not require.
    filled: dict[str, Any] = {
        "approved": True,
        "results": results,
        "at_message_id": "x",
        "message": "x",
        "branch": 0,
        "thumb": "up",
    }
    for name, method in jsonrpc.METHODS.items():
        fields = method.params.model_fields
        if "session_id" not in fields or name == "events/subscribe":
            continue
        given = {field: filled.get(field, "x") for field in fields if fields[field].is_required() or field in filled}
        given |= {"facts/add": {"kind": "entity"}, "facts/hold": {"held_for": "person"}}.get(name, {})
        error = await call(stranger, name, **given | {"session_id": session.id})
        assert (error["code"], error["data"]["code"]) == (-32004, "SESSION_NOT_FOUND"), name


async def test_maps_are_begun_read_and_stopped(caller: Caller, session: SessionRecord) -> None:
    asked = {"template": "{{ item }}", "items": [1, 2], "session_id": session.id}
    run = await call(caller, "maps/llm", **asked)
    assert (run["state"], run["session_id"]) == ("pending", session.id)
    assert (await call(caller, "maps/wait", run_id=run["id"], seconds=0))["state"] == "pending"
    assert (await call(caller, "maps/pause", run_id=run["id"]))["state"] == "paused"
    assert (await call(caller, "maps/wait", run_id=run["id"]))["state"] == "paused"
    assert (await call(caller, "maps/cancel", run_id=run["id"]))["state"] == "cancelled"
    assert [known["id"] for known in (await call(caller, "maps/list", session_id=session.id))["items"]] == [run["id"]]
    assert (await call(caller, "maps/items", run_id=run["id"]))["items"] == []
    assert (await call(caller, "maps/item", run_id=run["id"], item=1))["data"]["code"] == "OPERATOR_ITEM_NOT_FOUND"
    assert (await call(caller, "maps/retry", run_id=run["id"]))["data"]["code"] == "OPERATOR_RUN_NOT_IN_STATE"
    assert (await call(caller, "maps/agentic", **asked, tools=["none"]))["data"]["code"] == "INVALID_REQUEST"
    reader = caller_of(caller.user, may_write=False)
    assert (await call(reader, "maps/llm", **asked))["data"]["code"] == "PERMISSION_DENIED"
    assert (await call(reader, "maps/read", run_id=run["id"]))["state"] == "cancelled"


async def test_anothers_maps_are_not_there(caller: Caller, session: SessionRecord, bob: User) -> None:
    asked = {"template": "{{ item }}", "items": [1], "session_id": session.id}
    run = await call(caller, "maps/llm", **asked)
    stranger = caller_of(bob)
    for verb in ("read", "wait", "items", "pause", "resume", "cancel", "retry"):
        assert (await call(stranger, f"maps/{verb}", run_id=run["id"]))["data"]["code"] == "OPERATOR_RUN_NOT_FOUND"
    assert (await call(stranger, "maps/llm", **asked))["data"]["code"] == "SESSION_NOT_FOUND"


async def test_branches_are_begun_listed_chosen_and_read(caller: Caller, script: Any, session: SessionRecord) -> None:
    script("1", "2", "3")
    await call(caller, "turn/start", session_id=session.id, message="a", wait=True)
    question, _ = (await call(caller, "session/history", session_id=session.id))["items"]
    turn = await call(caller, "turn/start", session_id=session.id, message="b", parent_id="root", wait=True)
    assert turn["state"] == "completed"
    await call(caller, "turn/start", session_id=session.id, parent_id=question["id"], wait=True)
    listed = (await call(caller, "branches/list", session_id=session.id))["items"]
    assert [(one["number"], one["after_message_id"], one["messages"]) for one in listed] == [
        *((0, None, 2), (1, None, 2), (2, question["id"], 1)),
    ]
    chosen = (await call(caller, "branches/choose", session_id=session.id, branch=1))["items"]
    assert [one["is_chosen"] for one in chosen] == [False, True, False]
    page = await call(caller, "session/history", session_id=session.id, branch=2)
    assert [message["seq"] for message in page["items"]] == [1, 5]
    error = await call(caller, "branches/choose", session_id=session.id, branch=7)
    assert error["data"]["code"] == "BRANCH_NOT_FOUND"
    error = await call(caller, "turn/start", session_id=session.id, message="c", parent_id="msg_none")
    assert error["data"]["code"] == "MESSAGE_NOT_FOUND"
