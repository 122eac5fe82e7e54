"""How a tool is run: in the loop or in a thread, and never longer than it may."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

from agents_app.tools.registry import (
    Tool,
    ToolContext,
    ToolScope,
    ToolThreads,
    call_tool,
    check_tool_names,
    offered_tools,
    tool,
)
from mnesis_core.config import Config, override
from mnesis_core.errors import AtCapacity, InvalidRequest
from mnesis_core.llm.interface import ToolSpec
from tests.support.waiting import PATIENCE_SECONDS, until

HERE = ToolContext(session_id="sess_x", owner_id=1, turn_id="turn_x", part_id="part_x")


@tool(scope="sub_agent", read_only=True)
async def whisper(context: ToolContext, text: str) -> str:
    """Say it quietly, for sub-agents."""
    await asyncio.sleep(0)
    return f"{text.lower()} for {context.part_id} in {threading.current_thread().name}"


@tool(scope="root", needs_approval=True, timeout_seconds=1)
def shout(context: ToolContext, text: str) -> str:
    """Say it loudly, for people."""
    return f"{text.upper()} in {threading.current_thread().name}"


def made(run, *, seconds: float = 5.0) -> Tool:
    class Nothing(BaseModel):
        pass

    return Tool(
        spec=ToolSpec(name="made", description="", parameters={}), run=run, arguments=Nothing, timeout_seconds=seconds
    )


def test_the_decorator_says_who_may_have_it_and_what_it_does():
    offered = offered_tools(["shout", "whisper", "calculator"], user_id=None, depth=0)
    assert list(offered) == ["shout", "calculator"]
    assert list(offered_tools(["shout", "whisper", "calculator"], user_id=None, depth=2)) == ["whisper", "calculator"]
    assert (offered["shout"].needs_approval, offered["shout"].read_only) == (True, False)
    assert (offered["shout"].scope, offered["shout"].timeout_seconds) == (ToolScope.ROOT, 1)
    assert offered["calculator"].source == "built in"


async def test_a_coroutine_runs_in_the_loop_and_a_function_in_a_thread():
    [low] = offered_tools(["whisper"], user_id=None, depth=1).values()
    [loud] = offered_tools(["shout"], user_id=None).values()
    said = await call_tool(low, HERE, '{"text": "HO"}', longest_seconds=60)
    assert said == f"ho for part_x in {threading.current_thread().name}"
    assert await call_tool(loud, HERE, '{"text": "ho"}', longest_seconds=60) == "HO in tool"
    with pytest.raises(InvalidRequest, match="text"):
        await call_tool(low, HERE, "{}", longest_seconds=60)


async def test_the_shorter_of_the_two_times_counts():
    async def forever(context: ToolContext) -> str:
        return await asyncio.Event().wait() and ""

    with pytest.raises(TimeoutError, match=r"within 0\.05 seconds"):
        await call_tool(made(forever, seconds=0.05), HERE, "", longest_seconds=60)
    with pytest.raises(TimeoutError, match=r"within 0\.02 seconds"):
        await call_tool(made(forever), HERE, "", longest_seconds=0.02)


async def test_calls_that_never_return_take_nobodys_place(monkeypatch):
    threads = ToolThreads(running=2, given_up=3)
    monkeypatch.setattr("agents_app.tools.registry._THREADS", threads)
    gate = threading.Event()
    stuck = made(lambda context: str(gate.wait(10)), seconds=0.05)
    # On a busy machine a call may be given up before it has begun: then nothing is stuck.
    while threads._given_up < 3:
        with pytest.raises(TimeoutError):
            await call_tool(stuck, HERE, "", longest_seconds=1)
    with pytest.raises(AtCapacity, match="3 tool calls have not returned"):
        await call_tool(made(lambda context: "ok"), HERE, "", longest_seconds=1)
    gate.set()
    await until(lambda: threads._given_up == 0)
    assert await call_tool(made(lambda context: "ok"), HERE, "", longest_seconds=1) == "ok"
    assert threads._threads <= 2


async def test_more_calls_than_threads_wait_their_turn(monkeypatch):
    threads = ToolThreads(running=2, given_up=3)
    monkeypatch.setattr("agents_app.tools.registry._THREADS", threads)
    slow = made(lambda context: time.sleep(0.02) or "done")
    answers = await asyncio.gather(*(call_tool(slow, HERE, "", longest_seconds=60) for _ in range(8)))
    assert answers == ["done"] * 8
    assert threads._threads == 2


ENDLESS = """
import threading, django
django.setup()
from agents_app.tools.registry import ToolThreads
running = threading.Event()
threads = ToolThreads(running=1, given_up=1)
threads.submit(lambda: running.set() or threading.Event().wait())
print(running.wait(20))
"""


@pytest.mark.slow
def test_a_process_ends_though_a_tool_does_not():
    ended = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, timeout=PATIENCE_SECONDS, text=True)
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def test_a_site_that_names_a_tool_that_is_not_there_says_so_at_its_start(monkeypatch):
    def checked(**values: Any) -> list[str]:
        monkeypatch.setattr("agents_app.tools.registry.site_config", lambda: override(Config(), {"turn": values}))
        return [f"{error.id} {error.msg}" for error in check_tool_names(None)]

    assert checked() == []
    assert checked(tools=["calculator", "removed__tool", "removed__*"]) == []
    [said] = checked(tools=["calculatr", "calculator"])
    assert said == "mnesis.E010 The configuration (MNESIS_CONFIG) names the tool 'calculatr', and there is none."
    assert len(checked(ask_before=["nosuch", "nosuch"])) == 1
