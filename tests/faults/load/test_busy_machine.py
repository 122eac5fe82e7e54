"""A machine with too much to do: nobody takes a turn away from a process that runs, only slowly."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from tests.journeys.conftest import Caller
from tests.support.processes.children import RUN
from tests.support.sites.site import ROOT, Site

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

CORES = os.cpu_count() or 1
SOAK_BUSY = int(os.environ.get("MNESIS_SOAK_BUSY", "40"))
MESSAGE = "!slow 100 !long 60"
LONGEST_SECONDS = 1_800
BUSY = "while True: pass"


@contextmanager
def program(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program beside the test, which is killed at its end."""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("turns", "busy"),
    [
        pytest.param(20, CORES, id="few"),
        pytest.param(100, CORES, id="busy", marks=pytest.mark.soak),
        pytest.param(100, SOAK_BUSY, id="overloaded", marks=pytest.mark.soak),
    ],
)
async def test_slow_turns_stay_with_their_process_on_a_busy_machine(caller: Caller, turns: int, busy: int) -> None:
    environment = caller.site.environment
    recoverer = [sys.executable, "-c", RUN, "tests.support.processes.recoverer"]
    with ExitStack() as stack:
        sweeper = stack.enter_context(program(recoverer, environment))
        assert sweeper.stdout is not None
        assert await asyncio.to_thread(sweeper.stdout.readline) == b"looks\n"
        for _ in range(busy):
            stack.enter_context(program([sys.executable, "-c", BUSY], environment))
        async with asyncio.timeout(LONGEST_SECONDS):
            states = Counter(await states_of_turns(caller.site, caller.key, turns))
        sweeper.kill()
        assert await asyncio.to_thread(sweeper.stdout.read) == b"", "it closed turns of a process that runs"
    assert states == {"completed": turns}


async def states_of_turns(site: Site, key: str, count: int) -> list[str]:
    """How each of the turns ended, begun all at once."""
    headers = {"Authorization": f"Bearer {key}"}
    limits = httpx.Limits(max_connections=20)
    async with httpx.AsyncClient(base_url=site.url, headers=headers, timeout=300, limits=limits) as client:
        return await asyncio.gather(*(state_of_turn(client) for _ in range(count)))


async def state_of_turn(client: httpx.AsyncClient) -> str:
    """A turn in a session of its own, to its end."""
    begun = await client.post("/api/sessions", json={"message": MESSAGE})
    assert begun.status_code == 201, begun.text
    path = f"/api/sessions/{begun.json()['id']}/turns/{begun.json()['turn_id']}"
    while (state := (await client.get(path)).json()["state"]) == "running":  # noqa: ASYNC110 - another process has it
        await asyncio.sleep(2)
    return str(state)
