"""One answer streamed to many sockets, against a plain asyncio server that broadcasts each piece to each socket.

Both servers run in their own processes and all clients in this one, so that neither server pays for the clients. First
a model answers as fast as it can. Each piece that reaches a client counts as a delivery, whether it came in its own
frame, as from the plain server, or together with others. Then 20 pieces per second are sent, and the latency of each
is measured. On a machine with other load, the server's CPU time is more reliable than the clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

import psutil
from django.contrib.auth.models import User
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.support.broadcasts import LAST, order
from mnesis_core.llm.interface import ModelSpec
from sessions_app.llm import model_store
from sessions_app.llm.model_store import create_key
from sessions_app.record import session_store
from tests.support.sites.site import free_port

SOCKETS = (100, 500)
PIECES = 400
PACED, PACE_SECONDS = 40, 0.05
ROUNDS = 3
ENDS = ("turn.completed", "turn.failed", "turn.incomplete", "turn.interrupted")


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the clients received of one answer."""

    pieces: int
    seconds: float = 0.0
    """From the request to the last piece at the last client."""
    processor: float = 0.0
    """CPU time of the server."""
    texts: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    @property
    def deliveries(self) -> int:
        """Return the number of pieces that should have arrived, over all clients."""
        return self.pieces * len(self.texts)

    @property
    def delivered(self) -> float:
        """Return the share that arrived in order: after a gap, a client's remaining pieces count as missing."""
        return sum(_in_order(text) for text in self.texts) / self.deliveries


class PlainServer:
    """A server that only ``broadcasts``: without sessions, record or permissions."""

    module = "benchmarks.support.broadcasts"
    headers: dict[str, str] = {}
    path = "/"

    def text_of(self, frame: str) -> tuple[str, bool]:
        """Return the text of a frame, and whether it is the last one."""
        return frame, frame == LAST

    def order(self, order: str) -> str:
        """Return what a client sends to start the answer."""
        return order


class OurServer:
    """The web server as started by ``up``, with the benchmark's model."""

    module = "benchmarks.support.served"

    def __init__(self, session_id: str, key: str) -> None:
        self.headers = {"Authorization": f"Bearer {key}"}
        self.path = f"/ws/sessions/{session_id}"

    def text_of(self, text: str) -> tuple[str, bool]:
        """Return the text of a frame, and whether it is the last one."""
        frame: dict[str, Any] = json.loads(text)
        return frame.get("text", "") if frame["type"] == "delta" else "", frame["type"] in ENDS

    def order(self, order: str) -> str:
        """Return what a client sends to start the answer."""
        return json.dumps({"type": "turn", "message": order})


Server = PlainServer | OurServer


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner = User.objects.create_user("benchmark")
    model_store.put_model(
        ModelSpec(alias="large", litellm_model="demo/chat", context_window=400_000, max_output_tokens=9_000)
    )
    session_id = session_store.create_session(owner=owner, model="large")
    servers = (PlainServer(), OurServer(session_id, str(create_key(owner_id=owner.pk))))
    with _running(servers[0]) as plain, _running(servers[1]) as ours:
        return [asyncio.run(_row(count, list(zip(servers, (plain, ours), strict=True)))) for count in SOCKETS]


@contextmanager
def _running(server: Server) -> Iterator[tuple[int, psutil.Process]]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", server.module, str(port)], env=os.environ | {"MNESIS_ROLE": "web"}
    )
    try:
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


async def _row(count: int, servers: list[tuple[Server, tuple[int, psutil.Process]]]) -> tuple[str, ...]:
    fast = [[await _answer(server, *place, count, PIECES, 0.0) for server, place in servers] for _ in range(ROUNDS)]
    paced = [await _answer(server, *place, count, PACED, PACE_SECONDS) for server, place in servers]
    rates = [median(seen.deliveries / seen.seconds for seen in column) for column in zip(*fast, strict=True)]
    costs = [median(1e6 * seen.processor / seen.deliveries for seen in column) for column in zip(*fast, strict=True)]
    delivered = min(seen.delivered for pair in (*fast, paced) for seen in pair)
    waits = [f"{1000 * quantiles(seen.latencies, n=100)[place]:.1f}" for place in (49, 98) for seen in paced]
    return (
        *(str(count), *(f"{rate:,.0f}" for rate in rates), f"{rates[1] / rates[0]:.2f}"),
        *(*(f"{cost:.1f}" for cost in costs), f"{costs[0] / costs[1]:.2f}"),
        *(f"{100 * delivered:.1f} %", *waits),
    )


async def _answer(server: Server, port: int, process: psutil.Process, count: int, pieces: int, pause: float) -> Seen:
    """Run one answer, from the request until the last client has received all of it."""
    address = f"ws://127.0.0.1:{port}{server.path}"
    sockets = [await _connected(address, server.headers) for _ in range(count)]
    if isinstance(server, OurServer):
        await asyncio.gather(*(_caught_up(socket) for socket in sockets))
    await _quiet(process)
    seen = Seen(pieces=pieces)
    readers = [asyncio.ensure_future(_read(server, socket, seen)) for socket in sockets]
    before, began = sum(process.cpu_times()[:2]), time.perf_counter()
    await sockets[0].send(server.order(order(pieces, pause)))
    seen.texts = await asyncio.gather(*readers)
    seen.seconds = time.perf_counter() - began
    seen.processor = sum(process.cpu_times()[:2]) - before
    await asyncio.gather(*(socket.close() for socket in sockets))
    return seen


async def _connected(address: str, headers: dict[str, str]) -> ClientConnection:
    for _ in range(300):
        try:
            return await connect(address, additional_headers=headers, compression=None, max_queue=None)
        except OSError:
            await asyncio.sleep(0.1)  # still starting
    raise AssertionError(f"nobody answers at {address}")


async def _quiet(process: psutil.Process) -> None:
    """Wait until the server is idle: after starting, it still imports modules for its first turn."""
    before = -1.0
    while (now := sum(process.cpu_times()[:2])) - before > 0.02:
        before = now
        await asyncio.sleep(0.5)


async def _caught_up(socket: ClientConnection) -> None:
    while json.loads(await socket.recv())["type"] != "caught_up":
        pass


async def _read(server: Server, socket: ClientConnection, seen: Seen) -> str:
    texts: list[str] = []
    async for frame in socket:
        text, is_last = server.text_of(str(frame))
        now = time.monotonic()
        seen.latencies += [now - float(piece.partition(":")[2]) for piece in text.split() if ":" in piece]
        texts.append(text)
        if is_last:
            break
    return "".join(texts)


def _in_order(text: str) -> int:
    """Count the pieces of a text from the first one on, until one is missing or repeated."""
    numbers = [piece.partition(":")[0] for piece in text.split() if ":" in piece]
    return next((place for place, number in enumerate(numbers) if number != str(place)), len(numbers))
