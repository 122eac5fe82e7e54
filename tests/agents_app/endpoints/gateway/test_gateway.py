"""The gateway: what goes on to the provider and back, byte for byte, and what the record has of it."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError
from django.db.backends.utils import CursorWrapper

from agents_app.turns import gateway, lifecycle
from agents_app.turns.claim import write_ended_turn
from agents_app.turns.gateway import bodies, memory
from compaction_app.context.state import rebuild_payload
from mnesis_core.messages import Message as MessageValue
from mnesis_core.messages import TextPart, ToolPart
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from sessions_app.models import LanguageModel
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_calls
from tests.agents_app.endpoints.gateway.client import (
    PATHS,
    Client,
    content_of,
    path_of,
    said,
    sessions_of,
    settled,
    text,
    user,
)
from tests.support.failures.gone_clients import Paused
from tests.support.people.programs import Program
from tests.support.providers.raw_provider import Saying
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("no_connection_left")

BODY = """{ "model" : "raw-1","max_tokens":64, "stream": STREAM,
 "messages": [{"role":"user", "content":"Gr\\u00fc\\u00dfe  ☕"}], "unknown_field": [1.0, 2e3],
 "system": [{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}]}"""
COUNTED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
MOST_STATEMENTS = 18
"""Key, owner, model, session, what was said there later, and the change: what a known conversation takes."""
CLAUDE = {"metadata": {"user_id": "user_0a_account_0b_session_6a1fe2c8-31f4-4b2e-9c11-000000000001"}}


@pytest.mark.parametrize("stream", [True, False])
async def test_bytes_pass_unchanged_both_ways_and_are_in_the_record(client, provider, stream):
    body = BODY.replace("STREAM", json.dumps(stream)).encode()
    alias = body.replace(b'"raw-1"', b'"raw"')
    response = await client.raw(
        alias, "/v1/messages?beta=true", **{"anthropic-beta": "x-1", "User-Agent": "claude-cli/9"}
    )
    assert response.status_code == 200
    got = await content_of(response)
    assert provider.last.got == body
    assert got == provider.last.sent
    assert provider.last.path == "/v1/messages?beta=true"
    assert provider.last.headers["x-api-key"] == "sk-raw"
    assert provider.last.headers["anthropic-beta"] == "x-1"
    assert "authorization" not in provider.last.headers
    assert "x-mnesis-mode" not in provider.last.headers
    assert response.headers["request-id"] == "req_raw"
    session_id = response.headers["X-Mnesis-Session"]
    [turn] = await settled(session_id)
    assert (turn.state, turn.usage.tokens_input, turn.usage.tokens_output) == ("completed", 110, 21 if stream else 20)
    assert await path_of(session_id) == [("user", "Grüße  ☕"), ("assistant", "Answer 1.")]
    session = await db(load_session, session_id)
    assert (session.origin, session.labels["program"], session.system_prompt) == ("gateway", "claude-cli", "S")
    [call] = await db(list_calls, session_id)
    rebuilt = await db(rebuild_payload, call)
    assert (rebuilt.digest_matches, rebuilt.body) == (True, body.decode())


@pytest.mark.parametrize("named", [True, False], ids=["named", "by its beginning"])
@pytest.mark.parametrize("remembers", [True, False], ids=["remembered", "read"])
async def test_a_loop_of_tools_is_one_turn_of_one_session_without_a_message_twice(
    client, provider, alice, named, remembers
):
    more = CLAUDE if named else {}
    calls = (("toolu_1", "bash", {"command": "ls"}), ("toolu_2", "read", {"path": "a"}))
    provider.say = lambda body: (
        Saying(text="I look.", calls=calls)
        if len(body["messages"]) == 1
        else Saying(text=f"Seen {len(body['messages'])}.")
    )
    asked = [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in calls]
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": [text("gone")], "is_error": True},
    ]
    history = [user("Look")]
    steps = [
        [],
        [said([text("I look."), *asked]), user([*results, text("<reminder/>")])],
        [said("Seen 3."), user("And?")],
    ]
    for step in steps:
        history = [*history, *step]
        response = await client.send(history, stream=True, **more)
        await content_of(response)
        if not remembers:
            memory._spots.clear()
            bodies._kept.clear()
    [session] = await sessions_of(alice)
    turns = await settled(session.id)
    assert [turn.state for turn in turns] == ["completed", "completed"]
    assert turns[0].usage.tokens_output == 42
    assert await path_of(session.id) == [
        ("user", "Look"),
        ("assistant", "I look."),
        ("user", "<reminder/>"),
        ("assistant", "Seen 3."),
        ("user", "And?"),
        ("assistant", "Seen 5."),
    ]
    tools = [
        stored.part
        for one in await db(load_messages, session.id)
        for stored in one.parts
        if isinstance(stored.part, ToolPart)
    ]
    assert [(tool.output, tool.error) for tool in tools] == [("a.txt", None), (None, "gone")]
    for call, exchanged in zip((await db(list_calls, session.id))[::-1], provider.exchanged, strict=True):
        rebuilt = await db(rebuild_payload, call)
        assert (rebuilt.digest_matches, rebuilt.body) == (True, exchanged.got.decode())


async def test_what_was_recorded_is_passed_on_though_its_client_went_away_meanwhile(
    client, provider, monkeypatch, alice
):
    paused = Paused(gateway.place)
    monkeypatch.setattr(gateway, "place", paused)
    await paused.leave(client.send([user("Hello")]))
    [session] = await sessions_of(alice)
    [turn] = await settled(session.id)
    assert turn.state == "completed"
    assert await path_of(session.id) == [("user", "Hello"), ("assistant", "Answer 1.")]


async def test_a_title_has_the_persons_words_and_not_what_their_program_adds(client, alice):
    await client.send([user("<system-reminder>\nBe good.\n</system-reminder>\n\nWhat time is it?")])
    await client.send([user("<environment_context> here </environment_context>"), user("And where?")])
    assert [one.title for one in await sessions_of(alice)] == ["What time is it?", "And where?"]


async def test_a_turn_waits_for_the_clients_tools_and_ends_when_the_client_goes_on_without_them(client, provider):
    provider.say = lambda body: Saying(
        calls=(("toolu_1", "bash", {}),) if len(body["messages"]) == 1 else (), text="Hm."
    )
    response = await client.send([user("Look")], **CLAUDE)
    session_id = response.headers["X-Mnesis-Session"]
    [turn] = await settled(session_id)
    assert (turn.state, [one.reason for one in turn.waits_for]) == ("suspended", ["caller"])
    await client.send([user("Look"), user("No, stop")], **CLAUDE)
    assert [turn.state for turn in await settled(session_id)] == ["cancelled", "completed"]
    assert (await path_of(session_id))[-2:] == [("user", "No, stop"), ("assistant", "Hm.")]


async def test_an_edited_history_is_a_branch_and_a_repeated_request_answers_again(client, provider):
    first = [user("One"), said("Answer 1."), user("Two")]
    session_id = (await client.send(first[:1])).headers["X-Mnesis-Session"]
    await client.send(first)
    edited = await client.send([*first[:2], user("Two, edited")])
    assert edited.headers["X-Mnesis-Session"] == session_id
    common = [("user", "One"), ("assistant", "Answer 1.")]
    assert await path_of(session_id) == [*common, ("user", "Two, edited"), ("assistant", "Answer 3.")]
    await client.send([*first, said("Answer 2."), user("Three")])
    later = [("user", "Two"), ("assistant", "Answer 2."), ("user", "Three"), ("assistant", "Answer 4.")]
    assert await path_of(session_id) == [*common, *later]
    again = await client.send(first)
    assert again.headers["X-Mnesis-Session"] == session_id
    assert await path_of(session_id) == [*common, ("user", "Two"), ("assistant", "Answer 5.")]
    assert len(await db(load_messages, session_id)) == 9


async def test_a_history_that_was_cut_or_summarised_goes_on_in_its_session(client, provider):
    history = [user("One"), said("Answer 1."), user("Two"), said("Answer 2."), user("Three")]
    for end in (1, 3, 5):
        session_id = (await client.send(history[:end], **CLAUDE)).headers["X-Mnesis-Session"]
    cut = [said("Answer 2."), user("Three"), said("Answer 3."), user("Four")]
    assert (await client.send(cut, **CLAUDE)).headers["X-Mnesis-Session"] == session_id
    summary = [user("A summary of all that was said."), user("Five")]
    assert (await client.send(summary, **CLAUDE)).headers["X-Mnesis-Session"] == session_id
    more = [*summary, said("Answer 5."), user("Six")]
    assert (await client.send(more, **CLAUDE)).headers["X-Mnesis-Session"] == session_id
    texts = [text for _, text in await path_of(session_id)]
    assert texts == [
        *("One", "Answer 1.", "Two", "Answer 2.", "Three", "Answer 3.", "Four", "Answer 4."),
        *("A summary of all that was said.", "Five", "Answer 5.", "Six", "Answer 6."),
    ]


@pytest.mark.parametrize("named", [{}, CLAUDE], ids=["without a name", "named"])
async def test_a_system_prompt_that_changes_leaves_a_conversation_in_its_session(client, provider, alice, named):
    history = [user("One"), said("Answer 1."), user("Two"), said("Answer 2."), user("Three")]
    for end, day in ((1, "Monday"), (3, "Tuesday"), (5, "Wednesday")):
        await client.send(history[:end], system=f"Today is {day}.", **named)
    assert [one.message_seq for one in await sessions_of(alice)] == [6]


async def test_what_claude_code_compacts_goes_on_in_its_session_though_its_version_line_changes(
    client, provider, alice
):
    def system(version):
        billing = f"x-anthropic-billing-header: cc_version=2.1.197.{version}; cc_entrypoint=cli;"
        return [{"type": "text", "text": text} for text in (billing, "You are Claude Code.")]

    await client.send([user("One")], system=system("f58"), **CLAUDE)
    await client.send([user("This session is being continued."), user("Two")], system=system("f9d"), **CLAUDE)
    assert [one.message_seq for one in await sessions_of(alice)] == [5]


async def test_sub_agents_are_children_and_requests_at_once_are_all_recorded(client, provider, alice):
    gate = threading.Event()
    provider.say = lambda body: Saying(text=f"{body['messages'][0]['content']} done", gate=gate)
    main = asyncio.ensure_future(client.send([user("Main")], stream=True, **CLAUDE))
    response = await main
    others = await asyncio.gather(
        *(client.send([user(f"Sub {n}")], system=f"You are agent {n}.", stream=True, **CLAUDE) for n in range(3)),
        client.send([user("Main")], stream=True, **CLAUDE),
    )
    gate.set()
    for one in (response, *others):
        assert b"message_stop" in await content_of(one)
    sessions = await sessions_of(alice)
    assert len(sessions) == 5
    root = response.headers["X-Mnesis-Session"]
    assert {one.parent_id for one in sessions} == {None, root}
    assert {one.relation for one in sessions if one.parent_id} == {"sub-agent"}
    for one, name in zip(others, ("Sub 0", "Sub 1", "Sub 2"), strict=False):
        assert (await path_of(one.headers["X-Mnesis-Session"]))[-1] == ("assistant", f"{name} done")
    again = await client.send([user("Sub 1"), said("Sub 1 done"), user("More")], system="You are agent 1.", **CLAUDE)
    assert again.headers["X-Mnesis-Session"] == others[1].headers["X-Mnesis-Session"]


async def test_an_error_of_the_provider_comes_back_as_it_is_and_repeating_goes_on(client, provider):
    error = b'{"type":"error",  "error":{"type":"overloaded_error","message":"Overloaded sk-raw"}}'
    provider.say = lambda body: Saying(status=529, error=error) if len(provider.exchanged) < 3 else Saying(text="Yes.")
    for _ in range(2):
        response = await client.send([user("One")], stream=True)
        assert (response.status_code, await content_of(response)) == (529, error)
    await content_of(await client.send([user("One")], stream=True))
    session_id = response.headers["X-Mnesis-Session"]
    turns = await settled(session_id)
    assert [(turn.state, turn.error_code) for turn in turns] == [
        *[("failed", "MODEL_UNAVAILABLE")] * 2,
        ("completed", None),
    ]
    assert "sk-raw" not in (turns[0].error_message or "")
    assert (await path_of(session_id))[-1] == ("assistant", "Yes.")
    assert [text for _, text in await path_of(session_id)].count("One") == 1


async def test_a_client_that_goes_away_leaves_a_whole_record_and_the_provider_is_left_too(client, provider):
    gate = threading.Event()
    provider.say = lambda body: Saying(text="One two three four five six seven eight", gate=gate)
    response = await client.send([user("Go")], stream=True, **CLAUDE)
    reading = asyncio.ensure_future(content_of(response))
    await asyncio.to_thread(provider.last.at_gate.wait, PATIENCE_SECONDS)
    await asyncio.sleep(0.1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    session_id = response.headers["X-Mnesis-Session"]
    [turn] = await settled(session_id)
    gate.set()
    assert turn.state == "cancelled"
    assert (await path_of(session_id))[-1][1].startswith("One two three")
    assert (await client.send([user("Go"), user("On")], **CLAUDE)).status_code == 200


async def test_a_stream_that_breaks_off_is_recorded_as_far_as_it_came(client, provider):
    provider.say = lambda body: Saying(text="One two three four", breaks_off=True)
    response = await client.send([user("Go")], stream=True)
    assert await content_of(response) == provider.last.sent
    [turn] = await settled(response.headers["X-Mnesis-Session"])
    assert (turn.state, turn.error_code) == ("interrupted", "MODEL_STREAM_BROKEN")


async def test_what_cannot_be_passed_on_is_refused(client, provider, bob, alice):
    session_id = (await client.send([user("Mine")])).headers["X-Mnesis-Session"]
    stranger = Client(str(await db(lambda: create_key(owner_id=bob.pk))), PATHS["anthropic"])
    refused = await stranger.post(session=session_id, model="raw", messages=[user("Mine")], max_tokens=5)
    assert (refused.status_code, refused.json()["error"]["details"]["error_code"]) == (404, "SESSION_NOT_FOUND")
    other = await stranger.send([user("Mine"), said("Answer 1."), user("Yours")])
    assert other.headers["X-Mnesis-Session"] != session_id
    wrong = await client.send([user("Hi")], model="raw-openai")
    assert (wrong.status_code, wrong.json()["error"]["details"]["error_code"]) == (400, "GATEWAY_PROTOCOL")
    assert (await client.send([user("Hi")], model="nobody")).status_code == 404
    client.headers["X-Mnesis-Mode"] = "tunnel"
    assert (await client.send([user("Hi")])).status_code == 400


HOSTILE = [
    b"",
    b"{",
    b'{"model": "raw"} x',
    b'\xff{"model": "raw"}',
    b'{"model": "raw", "messages": ' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    b'{"model": "raw", "messages": "none", "metadata": 3, "system": {"a": 1}}',
    b'{"model": "raw", "messages": [1, null, {"role": 5, "content": {"a": 1}}, {"content": [[], "x"]}]}',
    b'{"model": "raw", "max_tokens": -1, "messages": [{"role": "user", "content": "\\u0000 \\ud800 \\udfff"}]}',
    b'{"model": "raw", "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "\\u0000"}]}]}',
    b'{"model": "raw", "messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "\\ud800"}]}]}',
    b'{"model": "raw", "metadata": {"user_id": "[[[["}, "messages": []}',
    json.dumps({"model": "raw", "messages": [user("x" * 5_000_000)]}).encode(),
]


async def test_hostile_bodies_are_recorded_or_refused(client, provider):
    for body in HOSTILE:
        response = await client.raw(body)
        assert response.status_code in (200, 400, 413), (body[:80], response.content[:300])
        if response.status_code == 200:
            assert provider.last.got == body.replace(b'"raw"', b'"raw-1"', 1)
            [call, *_] = await db(list_calls, response.headers["X-Mnesis-Session"])
            assert (await db(rebuild_payload, call)).digest_matches


def as_openai(history: list[Any], protocol: str) -> dict[str, Any]:
    return {"messages": history} if protocol == "chat/completions" else {"input": history}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", ["chat/completions", "responses"])
async def test_openais_protocols_pass_unchanged_with_a_loop_of_tools(client, provider, alice, protocol, stream):
    provider.say = lambda body: (
        Saying(text="I look.", calls=(("call_1", "bash", {"command": "ls"}),))
        if len(provider.exchanged) == 1
        else Saying(text=f"Answer {len(provider.exchanged)}.")
    )
    if protocol == "responses":
        called = [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": '{"command": "ls"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"},
        ]
    else:
        call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
        called = [
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
        ]
    history = [{"role": "developer", "content": "Be brief."}, user("Look")]
    for step in ([], called, [said("Answer 2."), user("And?")]):
        history = [*history, *step]
        body = json.dumps({"model": "raw-openai", "stream": stream, **as_openai(history, protocol)}, indent=1).encode()
        response = await client.raw(body, f"/v1/{protocol}")
        assert response.status_code == 200, response.content
        assert await content_of(response) == provider.last.sent
        assert provider.last.got == body.replace(b'"raw-openai"', b'"raw-1"')
        assert provider.last.headers["authorization"] == "Bearer sk-raw"
    [session] = await sessions_of(alice)
    assert session.system_prompt == "Be brief."
    turns = await settled(session.id)
    assert [(turn.state, turn.usage.tokens_input, turn.usage.tokens_output) for turn in turns] == [
        ("completed", 220, 42),
        ("completed", 110, 21),
    ]
    assert await path_of(session.id) == [
        *(("user", "Look"), ("assistant", "I look."), ("assistant", "Answer 2.")),
        *(("user", "And?"), ("assistant", "Answer 3.")),
    ]


async def test_a_key_or_a_model_says_that_requests_go_through_the_gateway(client, provider, alice):
    body = {"model": "raw", "max_tokens": 5, "messages": [user("Hi")]}
    key = await db(lambda: str(create_key(owner_id=alice.pk, mode="gateway")))
    plain = Program(str(await db(lambda: create_key(owner_id=alice.pk))), PATHS["anthropic"])
    assert (await Program(key, PATHS["anthropic"]).post(**body)).json()["id"] == "msg_1"
    await db(lambda: LanguageModel.objects.filter(alias="raw").update(through_gateway=True))
    assert (await plain.post(**body)).json()["id"] == "msg_2"
    # The request's own word counts for more than the key's, and the key's for more than the model's.
    plain.headers["X-Mnesis-Mode"] = "server"
    assert (await plain.post(**body | {"messages": []})).status_code == 400
    key = await db(lambda: str(create_key(owner_id=alice.pk, mode="server")))
    assert (await Program(key, PATHS["anthropic"]).post(**body | {"messages": []})).status_code == 400
    assert len(provider.exchanged) == 2


async def test_a_request_that_cannot_be_recorded_is_refused_or_goes_on_and_says_so(
    client, provider, monkeypatch, settings
):
    assert (await client.send([user("Hi")])).status_code == 200

    def fail(*_: Any, **__: Any) -> Any:
        raise OperationalError("the server closed the connection")

    with monkeypatch.context() as away:
        away.setattr("agents_app.turns.gateway.change", fail)
        refused = await client.send([user("Hi")], stream=True)
        assert (refused.status_code, refused.json()["error"]["details"]["error_code"]) == (503, "DATABASE_UNAVAILABLE")
        assert len(provider.exchanged) == 1
    settings.GATEWAY_WITHOUT_RECORD = True
    assert (await client.send([user("Hi"), said("Answer 1."), user("Again")])).status_code == 200
    for name in ("sessions_app.callers.find_key_with_owner", "agents_app.endpoints.gateway.get_spec"):
        monkeypatch.setattr(name, fail)
    with monkeypatch.context() as away:
        away.setattr("agents_app.turns.gateway.change", fail)
        for stream in (True, False):
            response = await client.send([user("Hi")], stream=stream)
            assert (response.status_code, response.headers["X-Mnesis-Recorded"]) == (200, "no")
            assert await content_of(response) == provider.last.sent
    unknown = Client("mns_000000000000_" + "x" * 43, PATHS["anthropic"])
    assert (await unknown.send([user("Hi")])).status_code == 503


async def test_the_same_first_question_is_another_conversation_unless_it_has_a_name(client, provider, alice):
    for _ in range(2):
        await client.send([user("Hi")])
        await client.send([user("Hi")], **CLAUDE)
    assert sorted([one.message_seq for one in await sessions_of(alice)]) == [2, 2, 3]
    memory._spots.clear()
    await client.send([user("Hi"), said("Answer 1."), user("And?")])
    assert sorted([one.message_seq for one in await sessions_of(alice)]) == [2, 3, 4]


@pytest.mark.parametrize("stream", [True, False])
async def test_the_text_at_which_an_answer_stopped_is_in_the_record(client, provider, stream):
    provider.say = lambda body: Saying(text="High.", stop="END")
    response = await client.send([user("Hi")], stream=stream, stop_sequences=["END"])
    assert b'"END"' in await content_of(response)
    session_id = response.headers["X-Mnesis-Session"]
    await settled(session_id)
    [call] = await db(list_calls, session_id)
    assert (call.finish_reason, call.stop_sequence) == ("stop_sequence", "END")


@pytest.mark.parametrize("stream", [True, False])
async def test_the_first_token_of_an_answer_that_is_streamed_is_timed(client, provider, stream):
    provider.say = lambda body: Saying(text="High.")
    response = await client.send([user("Hi")], stream=stream)
    assert b"High." in await content_of(response)
    session_id = response.headers["X-Mnesis-Session"]
    await settled(session_id)
    [call] = await db(list_calls, session_id)
    assert (call.first_token_ms is not None) == stream


@pytest.mark.parametrize("stream", [True, False])
async def test_what_a_cache_keeps_for_an_hour_is_counted_and_priced_apart(client, provider, stream):
    per_million = {
        "input": 3_000_000,
        "output": 0,
        "cache_write": 1_000_000_000_000,
        "cache_write_1h": 2_000_000_000_000,
    }
    prices = {f"{name}_micros_per_million": price for name, price in per_million.items()}
    await db(LanguageModel.objects.filter(alias="raw").update, prices_source="configured", **prices)
    provider.say = lambda body: Saying(text="High.", hour=2)
    response = await client.send([user("Hi")], stream=stream)
    assert b'"ephemeral_1h_input_tokens": 2' in await content_of(response)
    session_id = response.headers["X-Mnesis-Session"]
    await settled(session_id)
    [call] = await db(list_calls, session_id)
    assert (call.usage.tokens_cache_write, call.tokens_cache_write_1h) == (3, 2)
    assert call.usage.cost_micros == 1 * 1_000_000 + 2 * 2_000_000 + 100 * 3 + 7 * 3
    shown = await client.http.get(f"/api/calls/{call.id}", headers=client.headers)
    assert (shown.json()["usage"]["cache_write_tokens"], shown.json()["cache_write_1h_tokens"]) == (3, 2)


@pytest.mark.parametrize("stream", [True, False])
async def test_searches_that_anthropic_runs_are_in_the_cost(client, provider, alice, stream):
    name = "anthropic/claude-sonnet-4-5"
    about = {"litellm_model": name, "prices_source": "litellm", "input_micros_per_million": 3_000_000}
    await db(LanguageModel.objects.filter(alias="raw").update, **about)
    costs = []
    for searches in (0, 2):
        provider.say = lambda body, searches=searches: Saying(text="High.", searches=searches)
        response = await client.send([user(f"Look {searches}")], stream=stream)
        await content_of(response)
        [turn] = await settled(response.headers["X-Mnesis-Session"])
        costs.append(turn.usage.cost_micros)
    assert costs[1] - costs[0] == 20_000


async def test_a_count_of_tokens_goes_on_unrecorded_and_is_ours_without_the_gateway(client, provider, alice):
    body = {"model": "raw", "messages": [user("How long am I?")]}
    counted = await client.post("/v1/messages/count_tokens", **body)
    assert (counted.content, provider.last.path) == (b'{"input_tokens":   7}', "/v1/messages/count_tokens")
    assert counted.headers["X-Mnesis-Recorded"] == "no"
    client.headers["X-Mnesis-Mode"] = "server"
    ours = await client.post("/v1/messages/count_tokens", **body)
    assert 7 < ours.json()["input_tokens"] < 30
    assert await sessions_of(alice) == []


async def test_responses_that_name_the_answer_before_are_one_session(client, provider, alice, bob):
    provider.say = lambda body: Saying(
        text=f"Answer {len(provider.exchanged)}.",
        calls=(("call_1", "bash", {"command": "ls"}),) if len(provider.exchanged) == 2 else (),
    )

    async def ask(item: Any, after: str = "", *, stream: bool = False, by: Client = client) -> None:
        body = {"model": "raw-openai", "stream": stream, "input": [item]}
        body |= {"previous_response_id": after} if after else {}
        response = await by.raw(json.dumps(body).encode(), "/v1/responses")
        assert response.status_code == 200, response.content
        await content_of(response)

    await ask(user("One"))
    await ask(user("Two"), "resp_raw1", stream=True)
    memory._spots.clear()  # as in another process
    await ask({"type": "function_call_output", "call_id": "call_1", "output": "a.txt"}, "resp_raw2")
    [session] = await sessions_of(alice)
    assert [turn.state for turn in await settled(session.id)] == ["completed", "completed"]
    spoken_there = [("user", "One"), ("assistant", "Answer 1."), ("user", "Two"), ("assistant", "Answer 2.")]
    assert await path_of(session.id) == [*spoken_there, ("assistant", "Answer 3.")]
    # From an earlier answer, it goes on on a branch; an answer of another person is not known.
    await ask(user("Or three"), "resp_raw1")
    assert await path_of(session.id) == [*spoken_there[:2], ("user", "Or three"), ("assistant", "Answer 4.")]
    await ask(user("Mine?"), "resp_raw4", by=Client(str(await db(partial(create_key, owner_id=bob.pk))), client.path))
    assert len(await sessions_of(alice)) == len(await sessions_of(bob)) == 1


async def test_a_session_that_another_process_changes_before_the_claim_is_read_again(
    client, provider, alice, monkeypatch
):
    await content_of(await client.send([user("One")]))
    [session] = await sessions_of(alice)
    await settled(session.id)
    real, between = gateway.to_write, [(MessageValue(role="user", parts=(TextPart(text="Between"),)), None)]

    def write_after_another(new: Any) -> Any:
        while between:
            with change(session.id) as record:
                write_ended_turn(record, "raw", [between.pop()])
        return real(new)

    monkeypatch.setattr(gateway, "to_write", write_after_another)
    await content_of(await client.send([user("One"), said("Answer 1."), user("Two")]))
    spoken_there = [("user", "One"), ("assistant", "Answer 1."), ("user", "Two"), ("assistant", "Answer 2.")]
    assert await path_of(session.id) == spoken_there, "what came between is on another branch"


async def test_one_change_and_few_statements_lie_before_the_request_goes_on(client, provider, monkeypatch, settings):
    settings.DEBUG = True  # then the hot paths use Django's cursors, too, and are counted
    statements: list[str] = []
    changes: list[Any] = []
    before: list[tuple[int, list[str]]] = []
    run, begin = CursorWrapper.execute, Change.__init__

    def counted(cursor: Any, sql: Any, params: Any = None) -> Any:
        statements.append(str(sql))
        return run(cursor, sql, params)

    def begun(record: Any, *args: Any, **kwargs: Any) -> None:
        changes.append(record)
        begin(record, *args, **kwargs)

    def say(_: Any) -> Saying:
        before.append((len(changes), [sql for sql in statements if sql.startswith(COUNTED)]))
        return Saying(text="Yes.")

    provider.say = say
    monkeypatch.setattr(CursorWrapper, "execute", counted)
    monkeypatch.setattr(Change, "__init__", begun)
    history = [user("One")]
    for asked in ("Two", "Three", "Four"):
        statements.clear()
        changes.clear()
        response = await client.send(history, stream=True)
        await content_of(response)
        await settled(response.headers["X-Mnesis-Session"])
        history += [said("Yes."), user(asked)]
    assert [count for count, _ in before] == [2, 1, 1], "a new session is a change of its own"
    fewest = min((counted_before for _, counted_before in before[1:]), key=len)  # leases may be renewed meanwhile
    assert len(fewest) <= MOST_STATEMENTS, fewest


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", ["messages", "chat/completions", "responses"])
async def test_a_spending_limit_refuses_in_the_protocols_own_words_and_nothing_is_sent(
    client, provider, alice, protocol, stream
):
    limits = {"limits": {"session": {"tokens": 10}}}
    session = await db(partial(lifecycle.create_session, owner=alice, model="raw", config=limits))
    client.headers = client.headers | {"X-Mnesis-Session": session.id}
    said: Any = {"model": "raw", "max_tokens": 500, "messages": [user("Spend")]}
    if protocol != "messages":
        said = {"model": "raw-openai", **as_openai([user("Spend")], protocol)}
    response = await client.raw(json.dumps(said | {"stream": stream}).encode(), f"/v1/{protocol}")
    error = json.loads(await content_of(response))["error"]
    assert (response.status_code, provider.exchanged) == (429, []), error
    assert error["type"]
    assert "limit" in error["message"].lower()
    [turn] = await settled(session.id)
    assert (turn.state, turn.error_code) == ("incomplete", "BUDGET_EXHAUSTED")
    assert (await path_of(session.id), await db(list_calls, session.id)) == ([("user", "Spend")], [])


@pytest.mark.slow
async def test_a_body_of_twenty_megabytes_is_passed_on_and_kept(client, provider):
    data = json.dumps({"model": "raw", "max_tokens": 5, "messages": [user("tide " * 4_000_000)]}).encode()
    response = await client.raw(data)
    assert response.status_code == 200, response.content
    assert provider.last.got == data.replace(b'"raw"', b'"raw-1"', 1)
    await settled(response.headers["X-Mnesis-Session"])
