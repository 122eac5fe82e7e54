"""A program that started ``manage.py rpc`` and speaks with it over its pipes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.journeys.conftest import Caller
from tests.support.sites.site import ROOT
from tests.support.waiting import PATIENCE_SECONDS


class Pipe:
    """The two ends of one process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def call(self, method: str, **params: Any) -> Any:
        """The result of a method, or its error; events that come meanwhile are kept."""
        self.send(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}))
        while "id" not in (message := self.read()):
            self.events.append(message["params"]["event"])
        assert message["id"] == method
        return message.get("result", message.get("error"))

    def events_until(self, type: str) -> list[dict[str, Any]]:
        while not self.events or self.events[-1]["type"] != type:
            message = self.read()
            assert message["method"] == "session/event"
            self.events.append(message["params"]["event"])
        return self.events


@pytest.fixture(scope="module")
def pipe(caller: Caller) -> Iterator[Pipe]:
    command = [sys.executable, "manage.py", "rpc", "--user", "admin"]
    with subprocess.Popen(
        command, cwd=ROOT, env=caller.site.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Pipe(process)
        process.kill()


def test_a_turn_over_pipes_with_its_events(pipe: Pipe, caller: Caller) -> None:
    session = pipe.call("session/create", title="over pipes")["id"]
    assert pipe.call("events/subscribe", session_id=session) == {"session_id": session, "subscribed": True}
    turn = pipe.call("turn/start", session_id=session, message="Say something")
    frames = pipe.events_until("turn.completed")
    seqs = [frame["seq"] for frame in frames if "data" in frame]
    assert seqs == list(range(1, seqs[-1] + 1))
    said = "".join(frame["text"] for frame in frames if frame["type"] == "delta")
    assert said == caller.texts(session)[1]
    assert pipe.call("turn/read", session_id=session, turn_id=turn["id"])["state"] == "completed"
    assert pipe.call("events/unsubscribe", session_id=session)["subscribed"] is False


def test_hostile_lines_end_nothing(pipe: Pipe) -> None:
    for line in ("nonsense", "[" * 3_000, '{"id": 1}', '"\\ud800"'):
        pipe.send(line)
        assert pipe.read()["error"]["data"]["code"] == "INVALID_REQUEST"
    pipe.send("x" * 26_000_001)
    assert pipe.read()["error"]["data"]["code"] == "REQUEST_TOO_LARGE"
    pipe.send("")
    assert pipe.call("session/read", session_id="sess_nobody")["data"]["code"] == "SESSION_NOT_FOUND"


def test_ctrl_c_ends_it_though_its_input_goes_on(pipe: Pipe) -> None:
    pipe.call("session/list")  # it has begun
    pipe.process.send_signal(signal.SIGINT)
    assert pipe.process.wait(timeout=PATIENCE_SECONDS) == 130
