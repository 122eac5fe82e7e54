"""A foreign agent with the official client: over HTTP at a running site, and over the pipes of a command."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.journeys.conftest import Caller
from tests.journeys.conversations.test_a_session_compacts_itself import STORY
from tests.support.sites.site import ROOT
from tests.support.waiting import PATIENCE_SECONDS


@asynccontextmanager
async def over_http(caller: Caller) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {caller.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as http,
        Client(streamable_http_client(f"{caller.site.url}/mcp", http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def over_pipes(caller: Caller) -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["manage.py", "mcp", "--user", "admin"],
        env=caller.site.environment,
        cwd=ROOT,
    )
    async with Client(stdio_client(command)) as client:
        yield client


async def use(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content or result.content[0].text  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def talk(caller: Caller) -> dict[str, Any]:
    """A session with a summary, and a word that only its first message has."""
    session = caller.new_session(title="Harbours")
    caller.say(session, f"Remember: the harbour is called Zanderhaven. {STORY * 3}")
    for number in range(3):
        caller.say(session, f"Chapter {number}. {STORY * 3}")
    run = caller.call("POST", f"/api/sessions/{session}/compact", {"wait": True})
    return {"session": session, "summary": run["summary_id"]}


@pytest.mark.parametrize("transport", [over_http, over_pipes])
async def test_a_foreign_agent_greps_expands_and_talks(caller: Caller, talk: dict[str, Any], transport: Any) -> None:
    async with transport(caller) as client:
        found = await use(client, "lcm_grep", pattern="Zanderhaven", session_id=talk["session"], scope="messages")
        hit = found["items"][-1]
        assert hit["covered_by"] == talk["summary"]
        assert "Zanderhaven" in await use(client, "lcm_expand", summary_id=talk["summary"])
        assert "Zanderhaven" in await use(client, "lcm_read", id=hit["message_id"])
        answer = await use(client, "mnesis_run", message="Hello")
        assert answer["state"] == "completed"
        assert answer["text"] == caller.texts(answer["session_id"])[1]


async def test_another_person_finds_nothing_of_it(stranger: Caller, talk: dict[str, Any]) -> None:
    async with over_http(stranger) as client:
        assert (await use(client, "lcm_grep", q="Zanderhaven"))["items"] == []
        for tool, arguments in (
            ("lcm_expand", {"summary_id": talk["summary"]}),
            ("mnesis_resume", {"session_id": talk["session"], "message": "Hello"}),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.structured_content["error"]["code"].endswith("_NOT_FOUND")
