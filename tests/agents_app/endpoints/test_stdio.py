"""JSON-RPC on standard input and output, without a process of its own."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents_app.endpoints.jsonrpc import Connection, Subscribe, _read, serve
from agents_app.turns import lifecycle
from mnesis_core.errors import NotSignedIn
from mnesis_core.records import SessionRecord
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from tests.support.people.cast import caller_of


async def exchange(user: User, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """What is answered to these requests and the end of input."""
    lines = "".join(f"{json.dumps({'jsonrpc': '2.0', **request})}\n" for request in requests)
    target = io.StringIO()
    await serve(caller_of(user), io.BytesIO(lines.encode()), target)
    return [json.loads(line) for line in target.getvalue().splitlines()]


async def test_the_end_of_input_waits_for_what_was_asked(alice: User, session: SessionRecord) -> None:
    params = {"session_id": session.id, "wait": True}
    answers = await exchange(
        alice, {"id": 1, "method": "session/compact", "params": params}, {"id": 2, "method": "session/list"}
    )
    assert {answer["id"]: "result" in answer for answer in answers} == {1: True, 2: True}


async def test_somebody_elses_session_cannot_be_followed(bob: User, session: SessionRecord) -> None:
    answers = await exchange(bob, {"id": 1, "method": "events/subscribe", "params": {"session_id": session.id}})
    assert [answer["error"]["data"]["code"] for answer in answers] == ["SESSION_NOT_FOUND"]


async def test_a_last_line_without_its_end_is_answered(alice: User) -> None:
    target = io.StringIO()
    source = io.BytesIO(b'{"jsonrpc": "2.0", "id": 1, "method": "session/list"}')
    await serve(caller_of(alice), source, target)
    assert json.loads(target.getvalue())["result"]["items"] == []


class Unread(io.StringIO):
    """A pipe that nobody reads until its gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def write(self, text: str) -> int:
        self.gate.wait(10)
        return super().write(text)


async def test_a_client_that_does_not_read_holds_up_nothing_else(alice: User) -> None:
    target = Unread()
    source = io.BytesIO(b'{"jsonrpc": "2.0", "id": 1, "method": "session/list"}\n')
    serving = asyncio.create_task(serve(caller_of(alice), source, target))
    began = time.monotonic()
    await asyncio.sleep(0.3)
    assert time.monotonic() - began < 5
    assert not serving.done()
    target.gate.set()
    await serving
    assert json.loads(target.getvalue())["id"] == 1


@pytest.mark.slow
def test_a_reader_that_outlives_its_loop_leaves_nothing_behind() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    _read(io.BytesIO(b"one\ntwo\n"), asyncio.Queue(), loop)
    gc.collect()  # what was never awaited says so now


async def test_a_person_whose_account_was_closed_is_served_no_longer(alice: User, session: SessionRecord) -> None:
    alice.is_active = False
    await db(alice.save)
    with pytest.raises(NotSignedIn):
        await exchange(alice, {"id": 1, "method": "session/list"})


async def test_a_followed_session_that_is_deleted_says_so(
    alice: User, session: SessionRecord, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[stream]\nrecheck_seconds = 0.05\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
    site_config.cache_clear()
    said: list[dict[str, Any]] = []

    async def send(text: str) -> None:
        said.append(json.loads(text))

    connection = Connection(caller_of(alice), send)
    await connection.subscribe(connection.caller, Subscribe(session_id=session.id))
    following = connection.following[session.id]
    await db(lifecycle.delete_session, session.id, owner_id=alice.pk)
    await asyncio.wait_for(following, 60)
    site_config.cache_clear()
    assert said[-1]["params"]["event"]["error"]["code"] == "SESSION_NOT_FOUND"


def test_nobody_of_that_name(transactional_db: None) -> None:
    with pytest.raises(CommandError, match="INVALID_REQUEST") as refused:
        call_command("rpc", "--user", "nobody")
    assert refused.value.returncode == 2
