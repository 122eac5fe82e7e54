"""Turns that wait, at the REST endpoint: what is told, what is taken, and every refusal by its code."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from django.test import AsyncClient

from agents_app.turns import lifecycle
from mnesis_core.llm.interface import ToolCall
from mnesis_core.providers.scripted import Step
from mnesis_site.asgi import application
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from tests.mnesis_site.endpoints.test_sockets import open_socket

pytestmark = pytest.mark.usefixtures("no_connection_left")

WEATHER = {"name": "weather", "description": "The weather of a town.", "parameters": {"type": "object"}}
CALLS = Step(tool_calls=(ToolCall(id="c1", name="weather", arguments='{"town": "Lyon"}'),))
ASKS = Step(tool_calls=(ToolCall(id="c2", name="calculator", arguments='{"expression": "1 + 1"}'),))
Ask = Callable[..., Awaitable[dict[str, Any]]]


class Program:
    """Alice's program at the REST endpoint."""

    def __init__(self) -> None:
        self.http = AsyncClient(raise_request_exception=False)

    async def post(self, path: str, body: Any, *, status: int) -> Any:
        answer = await self.http.post(f"/api/sessions/{path}", data=json.dumps(body), content_type="application/json")
        assert answer.status_code == status, answer.content
        found = answer.json()
        return found["error"] if status >= 400 else found

    async def refused(self, path: str, body: Any, status: int, code: str) -> None:
        assert (await self.post(path, body, status=status))["code"] == code

    async def turn(self, turn: dict[str, Any]) -> dict[str, Any]:
        """The turn when it does not run any more."""
        await lifecycle.wait_turn(turn["session_id"], turn["id"], owner_id=self.owner_id)
        found: dict[str, Any] = (await self.http.get(f"/api/sessions/{turn['session_id']}/turns/{turn['id']}")).json()
        return found


@pytest.fixture
async def program(alice) -> Program:
    program = Program()
    program.owner_id = alice.pk
    await program.http.aforce_login(alice)
    return program


async def waits(program: Program, session: Any, **values: Any) -> dict[str, Any]:
    """A turn that waits for its caller."""
    body = {"message": "Go", "tools": [WEATHER], **values}
    return await program.turn(await program.post(f"{session.id}/turns", body, status=202))


async def test_a_turn_says_what_it_waits_for_and_goes_on_with_the_results(program, session, script):
    script(CALLS, "It rains.")
    turn = await waits(program, session)
    assert turn["state"] == "suspended"
    [waiting] = turn["waits_for"]
    assert (waiting["tool_call_id"], waiting["tool_name"], waiting["reason"]) == ("c1", "weather", "caller")
    path = f"{session.id}/turns/{turn['id']}/tool-results"
    await program.post(path, {"results": [{"tool_call_id": "c1", "output": "rain"}]}, status=202)
    ended = await program.turn(turn)
    assert (ended["state"], ended["waits_for"]) == ("completed", [])
    await program.refused(path, {"results": [{"tool_call_id": "c1", "output": "sun"}]}, 409, "TOOL_CALL_ANSWERED")


@pytest.fixture
async def socket(alice, session) -> AsyncIterator[Ask]:
    """Asks on a websocket of the session, and gives what is said to it."""
    headers = [
        (b"host", b"localhost"),
        (b"authorization", f"Bearer {await db(create_key, owner_id=alice.pk)}".encode()),
    ]
    opened = open_socket(application, f"/ws/sessions/{session.id}", headers)
    await opened.send_input({"type": "websocket.connect"})

    async def ask(type: str, **values: Any) -> dict[str, Any]:
        await opened.send_input({"type": "websocket.receive", "text": json.dumps({"type": type, **values})})
        while True:
            frame = json.loads((await opened.receive_output(5)).get("text", "{}"))
            if frame.get("type") in ("accepted", "error"):
                return frame

    yield ask
    await opened.send_input({"type": "websocket.disconnect", "code": 1000})
    await opened.wait()


async def test_a_turn_is_answered_and_approved_over_a_websocket(program, session, script, socket):
    script(CALLS, "It rains.", ASKS, "It is 2.")
    turn = await waits(program, session)
    results = [{"tool_call_id": "c1", "output": "rain"}]
    assert await socket("answer", id=7, turn_id=turn["id"], results=results) == {
        "type": "accepted",
        "id": 7,
        "turn_id": turn["id"],
    }
    assert (await program.turn(turn))["state"] == "completed"
    late = await socket("answer", turn_id=turn["id"], results=results)
    assert late["error"]["code"] == "TOOL_CALL_ANSWERED"
    await program.http.patch(
        f"/api/sessions/{session.id}",
        data=json.dumps({"config": {"turn": {"ask_before": ["calculator"]}}}),
        content_type="application/json",
    )
    turn = await waits(program, session, tools=[])
    part_id = turn["waits_for"][0]["part_id"]
    assert (await socket("approve", part_id=part_id, approved="yes"))["error"]["code"] == "INVALID_REQUEST"
    assert (await socket("approve", part_id=part_id, approved=True))["turn_id"] == turn["id"]
    assert (await program.turn(turn))["state"] == "completed"


async def test_a_stream_ends_where_the_turn_waits(program, session, script):
    script(CALLS)
    answer = await program.http.post(
        f"/api/sessions/{session.id}/turns",
        data=json.dumps({"message": "Go", "tools": [WEATHER], "stream": True}),
        content_type="application/json",
    )
    lines = [line async for chunk in answer.streaming_content for line in chunk.decode().splitlines()]
    frames = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert frames[-1]["type"] == "turn.suspended"


async def test_a_person_decides_once(program, alice, script):
    config = {"turn": {"ask_before": ["calculator"]}}
    session = await db(lifecycle.create_session, owner=alice, config=config)
    script(Step(tool_calls=(ToolCall(id="c1", name="calculator", arguments='{"expression": "6*7"}'),)), "42.")
    turn = await waits(program, session, tools=[])
    [waiting] = turn["waits_for"]
    assert waiting["reason"] == "approval"
    path = f"{session.id}/approvals/{waiting['part_id']}"
    results = {"results": [{"tool_call_id": "c1", "output": "x"}]}
    await program.refused(f"{session.id}/turns/{turn['id']}/tool-results", results, 409, "TOOL_CALL_NOT_CALLERS")
    await program.post(path, {"approved": True, "note": "yes"}, status=202)
    assert (await program.turn(turn))["state"] == "completed"
    await program.refused(path, {"approved": False}, 409, "APPROVAL_NOT_PENDING")
    part = (await program.http.get(f"/api/sessions/{session.id}/messages")).json()["items"][1]["parts"][0]
    assert (part["output"], part["decision_note"]) == ("42", "yes")


ODD = ["nosuch", "%00", "%ED%A0%80", "..", "part_%27--"]


async def test_odd_ids_are_not_found(program, session, script, subtests):
    script(CALLS)
    turn = await waits(program, session)
    for odd in ODD:
        answer = {"results": [{"tool_call_id": odd, "output": "x"}]}
        with subtests.test(odd):
            await program.refused(f"{session.id}/turns/{turn['id']}/tool-results", answer, 404, "TOOL_CALL_NOT_FOUND")
        for path, body in (
            (f"{session.id}/approvals/{odd}", {"approved": True}),
            (f"{session.id}/turns/{odd}/tool-results", answer),
            (f"{odd}/turns/{turn['id']}/tool-results", answer),
        ):
            with subtests.test(path):
                data = json.dumps(body)
                found = await program.http.post(f"/api/sessions/{path}", data=data, content_type="application/json")
                assert found.status_code == 404


NO_SENSE = [
    {},
    {"results": []},
    {"results": [{}]},
    {"results": [{"tool_call_id": "c1"}]},
    {"results": [{"tool_call_id": "c1", "output": "x", "error": "y"}]},
    {"results": [{"tool_call_id": 1, "output": "x"}]},
    {"results": "c1"},
    [],
]


async def test_results_that_make_no_sense_are_invalid(program, session, script, subtests):
    script(CALLS)
    turn = await waits(program, session)
    for body in NO_SENSE:
        with subtests.test(body=body):
            await program.refused(f"{session.id}/turns/{turn['id']}/tool-results", body, 422, "INVALID_REQUEST")


REFUSED_OPTIONS = {
    "tools.0.name": {"tools": [{"name": "a b"}]},
    "tools.1.name": {"tools": [{"name": "a"}, {"name": "a"}]},
    "on_doom_loop": {"on_doom_loop": "maybe"},
    "limits.tokens": {"limits": {"tokens": -1}},
    "limits.dollars": {"limits": {"dollars": 1}},
    "tools": {"tools": "weather"},
}


async def test_options_that_cannot_be_are_refused_by_name(program, session, subtests):
    for field, values in REFUSED_OPTIONS.items():
        with subtests.test(field):
            error = await program.post(f"{session.id}/turns", {"message": "Go", **values}, status=422)
            assert field in json.dumps(error)


async def test_a_strangers_turn_is_not_found(program, session, bob, script):
    script(CALLS)
    turn = await waits(program, session)
    other = Program()
    await other.http.aforce_login(bob)
    body = {"results": [{"tool_call_id": "c1", "output": "x"}]}
    await other.refused(f"{session.id}/turns/{turn['id']}/tool-results", body, 404, "SESSION_NOT_FOUND")
    part = turn["waits_for"][0]["part_id"]
    await other.refused(f"{session.id}/approvals/{part}", {"approved": True}, 404, "SESSION_NOT_FOUND")
