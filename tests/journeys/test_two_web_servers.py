"""Several web processes on one database: who follows in one sees what runs in the other, text and all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.journeys.conftest import Caller, read_until
from tests.support.site import ROOT, free_port, stop, wait_until


@pytest.fixture
def other(caller: Caller) -> Iterator[Caller]:
    """The same person at a second web server."""
    port = free_port()
    command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "mnesis_site.asgi:application"]
    server = subprocess.Popen(command, cwd=ROOT, env=caller.site.environment, stderr=subprocess.DEVNULL)
    headers = {"Authorization": f"Bearer {caller.key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
        wait_until(lambda: answers(client), seconds=60)
        yield Caller(site=caller.site, key=caller.key, client=client, port=port)
    stop(server)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/livez").status_code == 200
    except httpx.TransportError:
        return False


async def test_a_follower_in_another_process_gets_every_event_and_the_text_as_it_grows(caller: Caller, other: Caller):
    session = caller.new_session()
    async with other.socket(session) as socket:
        await read_until(socket, "caught_up")
        turn = caller.start(session, "!slow 30 !long 150")
        frames = await read_until(socket, "turn.completed")
    assert caller.wait(turn)["state"] == "completed"
    deltas = [frame for frame in frames if frame["type"] == "delta"]
    assert "".join(frame["text"] for frame in deltas) == caller.texts(session)[1]
    assert len(deltas) > 5
    seqs = [frame["seq"] for frame in frames if "data" in frame]
    assert seqs == list(range(2, seqs[-1] + 1))


def test_busy_and_interrupt_hold_across_processes(caller: Caller, other: Caller):
    session = caller.new_session()
    turn = caller.start(session, "!slow 50 !long 400")
    body = {"message": "me too"}
    assert other.call("POST", f"/api/sessions/{session}/turns", body, status=409)["error"]["code"] == "SESSION_BUSY"
    other.call("POST", f"/api/sessions/{session}/interrupt")
    assert other.wait(turn)["state"] == "cancelled"
