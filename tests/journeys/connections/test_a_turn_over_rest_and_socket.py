"""A program creates a session, sends messages and follows them, over HTTP and the websocket."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.exceptions import ConnectionClosed

from tests.journeys.conftest import Caller, read_until


@pytest.mark.smoke
def test_a_turn_by_rest_ends_with_text_numbers_and_their_source(caller: Caller):
    session = caller.new_session(title="First")
    turn = caller.start(session, "What is 6 * 7?")
    assert turn["state"] == "running"
    turn = caller.wait(turn)
    assert (turn["state"], turn["usage"]["source"]) == ("completed", "provider")
    user, called, answer = caller.messages(session)
    assert (user["role"], called["parts"][0]["tool_name"], called["parts"][0]["output"]) == ("user", "calculator", "42")
    assert "42" in answer["parts"][0]["text"]
    assert (answer["finish_reason"], answer["outcome"]) == ("stop", "complete")
    read = caller.call("GET", f"/api/sessions/{session}")
    assert (read["state"], read["message_count"]) == ("idle", 3)
    assert read["context"]["used_tokens"] > 0
    assert read["billing"]["input_tokens"] == turn["usage"]["input_tokens"]
    calls = caller.call("GET", f"/api/sessions/{session}/calls")["items"]
    assert [call["state"] for call in calls] == ["completed", "completed"]


@pytest.mark.smoke
def test_a_turn_streams_as_server_sent_events_until_it_ends(caller: Caller):
    session = caller.new_session()
    body = {"message": "!slow 5 Show me markdown", "stream": True}
    with caller.client.stream("POST", f"/api/sessions/{session}/turns", json=body) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    frames = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert frames[0]["type"] == "turn.started"
    assert frames[-1]["type"] == "turn.completed"
    text = "".join(frame["text"] for frame in frames if frame["type"] == "delta")
    assert text == caller.texts(session)[1]
    assert sum(frame["type"] == "delta" for frame in frames) > 3


@pytest.mark.smoke
async def test_every_socket_sees_the_same_whenever_it_comes_or_breaks(caller: Caller):
    session = caller.new_session()
    async with caller.socket(session) as first:
        await first.send(json.dumps({"type": "turn", "message": "!slow 15 !long 120", "id": 1}))
        before = await read_until(first, "delta")
        # It breaks off in the middle, without a word.
        first.transport.abort()
    last = max(frame["seq"] for frame in before if "data" in frame)
    async with caller.socket(session, after=last) as again, caller.socket(session) as second:
        resumed, fresh = await asyncio.gather(read_until(again, "turn.completed"), read_until(second, "turn.completed"))
    text = caller.texts(session)[1]
    for frames in (resumed, fresh):
        deltas = [frame for frame in frames if frame["type"] == "delta"]
        assert deltas[0]["offset"] == 0
        assert "".join(frame["text"] for frame in deltas) == text
    seqs = [frame["seq"] for frame in [*before, *resumed] if "data" in frame]
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_second_turn_is_busy_and_an_interrupt_from_another_process_keeps_the_text(caller: Caller):
    session = caller.new_session()
    # Long enough for a process to start meanwhile on a machine that is busy.
    turn = caller.start(session, "!slow 100 !long 1000")
    error = caller.call("POST", f"/api/sessions/{session}/turns", {"message": "me too"}, status=409)["error"]
    assert error["code"] == "SESSION_BUSY"
    assert caller.call("GET", f"/api/sessions/{session}")["state"] == "running"
    events = f"/api/sessions/{session}/events"
    with caller.client.stream("GET", events, headers={"Accept": "text/event-stream"}) as stream:
        next(line for line in stream.iter_lines() if '"delta"' in line)
    stopped = caller.site.manage("sessions", "interrupt", session, "--json")
    assert stopped.returncode == 0, stopped.stderr
    assert caller.wait(turn)["state"] == "cancelled"
    assert len(caller.texts(session)[1]) > 10
    error = caller.call("POST", f"/api/sessions/{session}/interrupt", status=409)["error"]
    assert error["code"] == "SESSION_NOT_RUNNING"
    assert caller.say(session, "Hello again")["state"] == "completed"


async def test_another_persons_session_is_not_found_at_every_endpoint(caller: Caller, stranger: Caller):
    session = caller.new_session(message="Hello")
    paths = ("", "/turns", "/messages", "/events", "/calls", "/context", "/compactions", "/summaries", "/search?q=a")
    for path in paths:
        error = stranger.call("GET", f"/api/sessions/{session}{path}", status=404)["error"]
        assert error["code"] == "SESSION_NOT_FOUND"
    for path in ("/turns", "/interrupt", "/archive", "/compact"):
        body = {"message": "x"} if path == "/turns" else None
        error = stranger.call("POST", f"/api/sessions/{session}{path}", body, status=404)["error"]
        assert error["code"] == "SESSION_NOT_FOUND"
    assert all(item["id"] != session for item in stranger.call("GET", "/api/sessions")["items"])
    async with stranger.socket(session) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4404


@pytest.mark.smoke
async def test_a_socket_without_a_key_is_closed_and_wrong_frames_get_their_error(caller: Caller):
    session = caller.new_session()
    nobody = Caller(site=caller.site, key="", client=caller.client)
    async with nobody.socket(session) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4401
    async with caller.socket(session) as socket:
        await read_until(socket, "caught_up")
        hostile = [
            "",
            "nonsense",
            "[]",
            "[" * 3_000,
            '{"type": "nosuch"}',
            '{"type": "turn"}',
            '{"type": "turn", "message": 7}',
        ]
        for frame in hostile:
            await socket.send(frame)
            [error] = await read_until(socket, "error")
            assert error["error"]["code"] == "INVALID_REQUEST"
            assert error["error"]["request"].startswith("req_")
        await socket.send(json.dumps({"type": "interrupt"}))
        assert (await read_until(socket, "error"))[-1]["error"]["code"] == "SESSION_NOT_RUNNING"
        await socket.send(json.dumps({"type": "ping", "id": 5}))
        assert (await read_until(socket, "pong"))[-1]["id"] == 5


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "INVALID_REQUEST"),
        ({"message": ""}, 422, "INVALID_REQUEST"),
        ({"message": 7}, 422, "INVALID_REQUEST"),
        ({"message": "x", "parts": []}, 422, "INVALID_REQUEST"),
        ({"parts": [{"type": "image"}]}, 422, "INVALID_REQUEST"),
        ({"message": "x" * 5_000_001}, 413, "REQUEST_TOO_LARGE"),
        ({"message": "x" * 20_000_000}, 413, "REQUEST_TOO_LARGE"),
        ({"message": "x", "idempotency_key": "k" * 201}, 422, "INVALID_REQUEST"),
    ],
)
def test_a_wrong_message_gets_a_clear_error_and_leaves_nothing(caller: Caller, body, status, code):
    session = caller.new_session()
    error = caller.call("POST", f"/api/sessions/{session}/turns", body, status=status)["error"]
    assert error["code"] == code
    assert error["message"]
    assert caller.messages(session) == []


def test_a_session_whose_first_message_is_refused_is_not_made(caller: Caller):
    before = caller.call("GET", "/api/sessions?limit=500")["items"]
    assert caller.call("POST", "/api/sessions", {"message": " "}, status=422)["error"]["code"] == "INVALID_REQUEST"
    assert caller.call("GET", "/api/sessions?limit=500")["items"] == before


def test_hostile_text_is_answered_and_kept(caller: Caller):
    session = caller.new_session()
    hostile = '{"message": "NUL \\u0000, lone \\ud800, bidi \\u202e, \\u241b"}'
    answer = caller.client.post(
        f"/api/sessions/{session}/turns", content=hostile, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 202, answer.text
    assert caller.wait(answer.json())["state"] == "completed"
    assert caller.texts(session)[0] == "NUL \x00, lone \ufffd, bidi \u202e, \u241b"


@pytest.mark.parametrize(
    "path",
    [
        "/api/sessions?limit=0",
        "/api/sessions?limit=99999999999999999999",
        "/api/sessions?cursor=nonsense",
        "/api/sessions?cursor=2026-01-01T00:00:00",
        "/api/sessions?label=nonsense",
        "/api/sessions?label=a__b=c",
        "/api/sessions/%00/messages",
        "/api/sessions/%ED%A0%80",
        "/api/sessions/x/messages?after=-1",
        "/api/sessions/x/events?after=99999999999999999999",
        "/api/calls/%00",
        "/api/summaries/%F0%9F%92%A9",
        "/api/summaries/%00/lineage",
        "/api/summaries/%ED%A0%80/expand?deep=true",
        "/api/previews/%00",
        "/api/sessions/%00/cover",
        "/api/sessions/x/messages/%00/lineage",
    ],
)
def test_no_wrong_address_is_a_server_error(caller: Caller, path):
    answer = caller.client.get(path)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["error"]["code"]
