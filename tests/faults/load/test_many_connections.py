"""Many answers at once over few database connections: waiting for a model or a client holds none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.journeys.conftest import Caller, caller_for
from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.sites.databases import site_database, with_query
from tests.support.sites.site import running_site, wait_until, wait_until_ready
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

STREAMS = 64
MESSAGE = "!slow 50 !long 60"
ASKED_AGAIN = 3
STORY = "The harbour office moved its ledgers to the new building in March, and Ines checked every one of them. "
KINDS = ("server-sent events", "chat completions", "whole chat completions", "socket")


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A site whose web process may have two connections to PostgreSQL."""
    directory = tmp_path_factory.mktemp("site")
    config = directory / "config.toml"
    config.write_text("[turn]\nlease_seconds = 120\n")  # what is asked here is not who dies first
    with (
        site_database("test_connections", is_prepared=True) as database,
        running_site(
            directory,
            MNESIS_CONFIG=str(config),
            LOOPBACK_KEY="key",
            **with_query(database, "pool_max=2&pool_timeout=60"),
        ) as site,
    ):
        wait_until_ready(site)
        caller = caller_for(site, "admin")
        yield caller
        caller.client.close()


async def test_streams_of_every_kind_are_answered_over_two_connections(caller: Caller) -> None:
    sessions = [caller.new_session() for _ in range(STREAMS)]
    limits = httpx.Limits(max_connections=2 * STREAMS)
    headers = {"Authorization": f"Bearer {caller.key}"}
    begun = asyncio.Barrier(STREAMS)
    async with httpx.AsyncClient(
        base_url=caller.site.url, headers=headers, timeout=4 * PATIENCE_SECONDS, limits=limits
    ) as client:
        answers = {
            "server-sent events": lambda session: server_sent(client, session, begun),
            "chat completions": lambda session: completion(client, begun, stream=True),
            "whole chat completions": lambda session: completion(client, begun, stream=False),
            "socket": lambda session: over_socket(caller, session, begun),
        }
        async with asyncio.timeout(4 * PATIENCE_SECONDS):
            seen = await asyncio.gather(
                *(answers[KINDS[place % len(KINDS)]](session) for place, session in enumerate(sessions))
            )
    assert {(len(text.split()), end) for text, end in seen} == {(60, "completed")}


def test_summaries_that_are_asked_for_hold_no_connection_while_their_model_thinks(caller: Caller) -> None:
    summary = summarised(caller)
    with OpenAIServer() as server, ThreadPoolExecutor(ASKED_AGAIN) as threads:
        address = ["--api-base", server.base_url, "--api-key-env", "LOOPBACK_KEY", "--context", "16000"]
        made = caller.site.manage("model", "add", "--alias", "held", "--litellm", "openai/held", *address)
        assert made.returncode == 0, made.stderr
        previews = [threads.submit(preview, caller, summary) for _ in range(ASKED_AGAIN)]
        try:
            wait_until(lambda: len(server.requests) == ASKED_AGAIN)
            assert caller.call("GET", "/api/sessions")["items"]
        finally:
            server.release()
        assert {one.result() for one in previews} == {201}


def summarised(caller: Caller) -> str:
    """The id of a summary of a session."""
    session = caller.new_session()
    for index in range(5):
        caller.say(session, f"Chapter {index}. {STORY * 12}")
    caller.call("POST", f"/api/sessions/{session}/compact")
    runs = f"/api/sessions/{session}/compactions"
    wait_until(lambda: caller.call("GET", runs)["items"][0]["state"] == "completed")
    [summary] = caller.call("GET", runs)["items"][0]["summary_ids"]
    return str(summary)


def preview(caller: Caller, summary: str) -> int:
    """Have a summary said again by the model that keeps everybody waiting; returns the status of the answer."""
    headers = {"Authorization": f"Bearer {caller.key}"}
    address = f"{caller.site.url}/api/summaries/{summary}/preview"
    return httpx.post(address, json={"model": "held"}, headers=headers, timeout=4 * PATIENCE_SECONDS).status_code


async def server_sent(client: httpx.AsyncClient, session: str, begun: asyncio.Barrier) -> tuple[str, str]:
    """Return the words of a streamed turn, and how it ended. It is read when all have begun."""
    text = ""
    body = {"message": MESSAGE, "stream": True}
    async with client.stream("POST", f"/api/sessions/{session}/turns", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        await begun.wait()
        async for line in answer.aiter_lines():
            frame = json.loads(line[6:]) if line.startswith("data: ") else {"type": ""}
            text += frame["text"] if frame["type"] == "delta" else ""
            if frame["type"] in ("turn.completed", "turn.interrupted", "turn.failed", "error"):
                return text, frame["type"].removeprefix("turn.")
    raise AssertionError("the stream ended before its turn")


async def completion(client: httpx.AsyncClient, begun: asyncio.Barrier, *, stream: bool) -> tuple[str, str]:
    """Return the words of a chat completion, and how its turn ended: well, if the answer stopped by itself."""
    body = {"model": "demo", "stream": stream, "messages": [{"role": "user", "content": MESSAGE}]}
    if not stream:
        await begun.wait()
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        [choice] = answer.json()["choices"]
        return choice["message"]["content"], _end(choice["finish_reason"])
    text, end = "", ""
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        await begun.wait()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            [choice] = json.loads(line[6:])["choices"]
            text += choice["delta"].get("content") or ""
            end = choice["finish_reason"] or end
    return text, _end(end)


def _end(finish_reason: str) -> str:
    return "completed" if finish_reason == "stop" else finish_reason


async def over_socket(caller: Caller, session: str, begun: asyncio.Barrier) -> tuple[str, str]:
    """Return the words of a turn that is followed on a websocket, and how it ended."""
    text = ""
    async with caller.socket(session, open_timeout=PATIENCE_SECONDS, max_size=None) as socket:
        await socket.send(json.dumps({"type": "turn", "message": MESSAGE}))
        await begun.wait()
        async for line in socket:
            frame = json.loads(line)
            text += frame["text"] if frame["type"] == "delta" else ""
            if frame["type"] in ("turn.completed", "turn.interrupted", "turn.failed", "error"):
                return text, frame["type"].removeprefix("turn.")
    raise AssertionError("the socket was closed")
