"""Many answers at once in one web process: each is whole, and the process neither swells nor starves."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys.conftest import Caller, caller_for
from tests.support.sites.databases import site_database
from tests.support.sites.site import UNLIMITED, Site, running_site, wait_until_ready
from tests.support.sites.webs import web_server
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

FEW, MANY = 20, 500
CONNECTING_AT_ONCE = 20
MESSAGE = "!slow 20 !long 120"
MOST_MEMORY_PER_TURN = 512 * 1024
"""Bytes; what a turn with its socket, its context and its answer may add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One answer as its client saw it. Seconds since the message was sent."""

    text: str
    first: float
    whole: float


async def test_a_few_answers_at_once_are_whole(caller: Caller, site: Site) -> None:
    await check_answers(site, caller, FEW)


@pytest.mark.soak
async def test_five_hundred_answers_at_once_are_whole(large_caller: Caller) -> None:
    await check_answers(large_caller.site, large_caller, 10)  # whatever is loaded once is loaded
    before = web_server(large_caller.site).memory_info().rss
    seen = await check_answers(large_caller.site, large_caller, MANY)
    grown = web_server(large_caller.site).memory_info().rss - before
    print(f"memory grown by {grown >> 20} MiB, {grown // MANY >> 10} KiB a turn")
    assert len(seen) == MANY
    assert grown < MANY * MOST_MEMORY_PER_TURN


@pytest.fixture
def large_caller(tmp_path: Path) -> Iterator[Caller]:
    """A site that takes so many turns."""
    config = tmp_path / "config.toml"
    config.write_text(f"[turn]\ncapacity = {2 * MANY}\nmost_at_once = {2 * MANY}\n{UNLIMITED}")
    with (
        site_database("test_streams", is_prepared=True) as database,
        running_site(tmp_path, MNESIS_CONFIG=str(config), **database) as site,
    ):
        wait_until_ready(site)
        caller = caller_for(site, "admin")
        yield caller
        caller.client.close()


async def check_answers(site: Site, caller: Caller, count: int) -> list[Seen]:
    """Run so many turns at once, each followed on its own socket, and check that the record has what each client saw."""
    sessions = [caller.new_session() for _ in range(count)]
    # They knock one after the other, and then speak all at once.
    all_there, gate = asyncio.Barrier(count), asyncio.Semaphore(CONNECTING_AT_ONCE)
    seen = await asyncio.gather(*(answer(caller, session, gate, all_there) for session in sessions))
    assert [caller.texts(session)[1] for session in sessions] == [one.text for one in seen]
    for name, values in (("first word", [one.first for one in seen]), ("whole answer", [one.whole for one in seen])):
        middle, worst = statistics.median(values), max(values)
        print(f"{count} answers at once: {name} after {middle * 1000:.0f} ms, at the worst {worst * 1000:.0f} ms")
    return list(seen)


async def answer(caller: Caller, session: str, gate: asyncio.Semaphore, all_there: asyncio.Barrier) -> Seen:
    """One turn, sent and followed on one socket."""
    text, first = "", 0.0
    async with AsyncExitStack() as stack:
        async with gate:
            socket = await stack.enter_async_context(
                caller.socket(session, open_timeout=PATIENCE_SECONDS, max_size=None)
            )
            while json.loads(await socket.recv())["type"] != "caught_up":
                pass
        await all_there.wait()
        sent = time.monotonic()
        await socket.send(json.dumps({"type": "turn", "message": MESSAGE}))
        async for line in socket:
            frame = json.loads(line)
            if frame["type"] == "delta":
                first = first or time.monotonic() - sent
                text += frame["text"]
            if frame["type"] == "turn.completed":
                return Seen(text=text, first=first, whole=time.monotonic() - sent)
    raise AssertionError("the socket was closed")
