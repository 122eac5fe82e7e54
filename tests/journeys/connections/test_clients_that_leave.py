"""Clients whose connection ends while their request is on its way: what was recorded is answered all the same."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

from tests.journeys.conftest import Caller

REQUESTS = 40


def test_a_turn_whose_client_left_at_any_moment_runs_to_its_end(caller: Caller):
    began = time.monotonic()
    caller.start(caller.new_session(), "Hello")
    whole = time.monotonic() - began
    sessions = [caller.new_session() for _ in range(REQUESTS)]
    for number, session in enumerate(sessions):
        # Each stays a little longer than the one before, so some leave in the middle of each step of a request.
        leave_after(caller, session, body_of(number), seconds=number * whole / REQUESTS)
    turns = [caller.call("GET", f"/api/sessions/{session}/turns")["items"] for session in sessions]
    begun = [caller.wait(turn) for found in turns for turn in found]
    assert {turn["state"] for turn in begun} == {"completed"}
    # Sent again under the same key, the message is there once, whether the first request came to anything or not.
    for number, session in enumerate(sessions):
        caller.wait(caller.call("POST", f"/api/sessions/{session}/turns", body_of(number)))
        assert len(caller.messages(session)) == 2


def body_of(number: int) -> dict[str, str]:
    return {"message": "Hello", "idempotency_key": f"left-{number}"}


def leave_after(caller: Caller, session: str, body: dict[str, str], *, seconds: float) -> None:
    """Send a message, and close the connection without waiting for the answer."""
    host, data = urlsplit(str(caller.client.base_url)), json.dumps(body).encode()
    lines = [
        f"POST /api/sessions/{session}/turns HTTP/1.1",
        f"Host: {host.netloc}",
        f"Authorization: {caller.client.headers['Authorization']}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    ]
    with socket.create_connection((host.hostname or "", host.port or 80)) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + data)
        time.sleep(seconds)
