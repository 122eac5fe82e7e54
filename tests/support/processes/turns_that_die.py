"""Turns of a web process that is killed right after its n-th commit: every step of a turn ends with one.

One warmed-up process forks them all, side by side, each with a session of its own. ``main`` prints what a client of each
would know before the kill: the turn that was accepted, and every event that it was sent, a line each.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import signal
from contextlib import aclosing
from typing import Any

from django.conf import settings
from django.db import connections

from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from mnesis_core.llm.interface import Model, ModelSpec, ToolCall
from mnesis_core.providers.scripted import ScriptedModel, Step
from sessions_app.live import follow
from tests.support.processes.writers import fork

LONGEST_LIFE_SECONDS = 60
CALL = ToolCall(id="c1", name="calculator", arguments='{"expression": "6 * 7"}')


def make_model(spec: ModelSpec) -> Model:
    """What ``MODEL_FACTORY`` names here: some words and a tool, then an answer."""
    return ScriptedModel(spec, [Step(text="Let me see.", tool_calls=(CALL,)), "It is 42."])


def main(sessions: str, owner_id: str) -> int:
    """A turn in each session (ids, with commas); the process of the n-th is killed after n commits."""
    places = [
        fork(functools.partial(run_and_die, session_id, int(owner_id), commits))
        for commits, session_id in enumerate(sessions.split(","), start=1)
    ]
    ends = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in places}
    return 0 if ends <= {0, -signal.SIGKILL} else 1


def run_and_die(session_id: str, owner_id: int, commits: int) -> None:
    """A whole turn, unless so many commits come first."""
    signal.alarm(LONGEST_LIFE_SECONDS)
    settings.MNESIS = {**settings.MNESIS, "MODEL_FACTORY": f"{__name__}.make_model"}
    kind: Any = type(connections["default"])
    commit, count = kind._commit, itertools.count(1)

    def commit_and_die(self: Any) -> None:
        commit(self)
        if next(count) == commits:
            os.kill(os.getpid(), signal.SIGKILL)

    kind._commit = commit_and_die
    asyncio.run(run_turn(session_id, owner_id))
    os._exit(0)  # the threads of the database have no end of their own


async def run_turn(session_id: str, owner_id: int) -> None:
    """Start it as an endpoint does, and follow it."""
    following = asyncio.create_task(tell_frames(session_id))
    started = await lifecycle.start_turn(session_id, owner_id=owner_id, message="What is 6 times 7?")
    tell(session_id, "accepted", started.turn.id)
    await runner.wait(started.turn.id)
    await asyncio.sleep(0.1)
    following.cancel()
    await runner.shutdown()


async def tell_frames(session_id: str) -> None:
    """What a client is sent."""
    async with aclosing(follow(session_id)) as frames:  # type: ignore[type-var]
        async for frame in frames:
            if "data" in frame:
                tell(session_id, frame["type"], str(frame["seq"]))


def tell(*words: str) -> None:
    """A line, whole or not at all."""
    os.write(1, f"{' '.join(words)}\n".encode())
