"""Several web processes on one database: who follows in one sees what runs in the other, text and all."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.journeys.conftest import Caller, read_until
from tests.support.sites.site import ROOT, free_port, stop, wait_until
from tests.support.waiting import PATIENCE_SECONDS

ROUNDS = 10


@pytest.fixture(scope="module")
def other(caller: Caller) -> Iterator[Caller]:
    """The same person at a second web server."""
    port = free_port()
    command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "mnesis_site.asgi:application"]
    server = subprocess.Popen(command, cwd=ROOT, env=caller.site.environment, stderr=subprocess.DEVNULL)
    headers = {"Authorization": f"Bearer {caller.key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE_SECONDS) as client:
        wait_until(lambda: answers(client))
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


def test_busy_interrupt_and_approval_hold_across_processes(caller: Caller, other: Caller):
    session = caller.new_session()
    turn = caller.start(session, "!slow 50 !long 400")
    body = {"message": "me too"}
    assert other.call("POST", f"/api/sessions/{session}/turns", body, status=409)["error"]["code"] == "SESSION_BUSY"
    other.call("POST", f"/api/sessions/{session}/interrupt")
    assert other.wait(turn)["state"] == "cancelled"
    session = caller.new_session(config={"turn": {"ask_before": ["calculator"]}})
    turn = caller.start(session, '!tool calculator {"expression": "6 * 7"}')
    path = f"/api/sessions/{session}/turns/{turn['id']}"
    wait_until(lambda: other.call("GET", path)["state"] == "suspended")
    [waiting] = other.call("GET", path)["waits_for"]
    approval = f"/api/sessions/{session}/approvals/{waiting['part_id']}"
    other.call("POST", approval, {"approved": True}, status=202)
    assert other.wait(turn)["state"] == "completed"
    assert caller.call("POST", approval, {"approved": True}, status=409)["error"]["code"] == "APPROVAL_NOT_PENDING"
    assert "42" in caller.texts(session)[-1]


def test_of_two_servers_that_claim_one_session_at_the_same_moment_one_wins(caller: Caller, other: Caller):
    for _ in range(ROUNDS):
        session = caller.new_session()
        path, ready = f"/api/sessions/{session}/turns", threading.Barrier(2)
        with ThreadPoolExecutor(2) as people:
            claims = [people.submit(claim, server, path, ready) for server in (caller, other)]
        statuses = sorted(claimed.result() for claimed in claims)
        assert statuses == [202, 409]
        assert len(caller.call("GET", path)["items"]) == 1
        assert len(caller.messages(session)) <= 2


def claim(server: Caller, path: str, ready: threading.Barrier) -> int:
    """A turn as soon as the other one is about to ask, too; what it was answered."""
    ready.wait()
    return server.client.post(path, json={"message": "!slow 100 !long 50"}).status_code
