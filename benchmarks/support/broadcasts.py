"""``python -m benchmarks.support.broadcasts PORT``: sends each piece of an answer to each socket, with plain asyncio."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator

from websockets.asyncio.server import ServerConnection, broadcast, serve

LAST = "the end"


def order(pieces: int, pause: float) -> str:
    """Return the order for a number of pieces, so many seconds apart."""
    return f"{pieces} {pause}"


async def pieces_of(order: str) -> AsyncIterator[str]:
    """Yield the pieces of an answer, each with its number and the time it was made."""
    count, pause = order.split()[:2]
    for number in range(int(count)):
        yield f"{number}:{time.monotonic():.6f} "
        await asyncio.sleep(float(pause))


async def main(port: int) -> None:
    """Serve until the process is stopped."""
    clients: set[ServerConnection] = set()

    async def serve_one(socket: ServerConnection) -> None:
        clients.add(socket)
        try:
            async for message in socket:
                async for piece in pieces_of(str(message)):
                    broadcast(clients, piece)
                broadcast(clients, LAST)
        finally:
            clients.discard(socket)

    async with serve(serve_one, "127.0.0.1", port, compression=None):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
