"""A turn at the terminal: what ``manage.py run`` and ``resume`` share."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from agents_app import lifecycle
from agents_app.runner import runner
from mnesis_core.record import TurnRecord
from sessions_app.database import db
from sessions_app.follow import follow
from sessions_app.queries import load_turn


async def run_to_end(session_id: str, *, owner_id: int, message: str, write: Callable[[str], None]) -> TurnRecord:
    """Start a turn in this process, write its text as it comes, and return the turn when it has ended.

    Ctrl-C interrupts the turn; what was said is kept.
    """
    started = await lifecycle.start_turn(session_id, owner_id=owner_id, message=message)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: asyncio.ensure_future(runner.shutdown()))
    writer = asyncio.create_task(_write_text(session_id, started.seq, write))
    await runner.wait(started.turn.id)
    await asyncio.sleep(0.1)  # the last words are on their way to the writer
    writer.cancel()
    return await db(load_turn, started.turn.id, session_id=session_id)


async def _write_text(session_id: str, after: int, write: Callable[[str], None]) -> None:
    async for frame in follow(session_id, after=after):
        if frame["type"] == "delta" and frame["part_type"] == "text":
            write(frame["text"])
