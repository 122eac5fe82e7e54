"""Concurrent turns of many sessions in one process, with a model that answers instantly: cost and duration of a turn.

All sessions start their turns at the same moment, which is the worst case. Each answer has 400 tokens. A turn's time
runs from its start to its end; the time to its first model call has a separate column.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time

import psutil
from django.conf import settings
from django.contrib.auth.models import User

from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from benchmarks.support.instant import answer_at_once, asked_at
from benchmarks.support.talk import make_turns
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import text_of
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.llm import model_store
from sessions_app.record import session_store
from sessions_app.record.turn_queries import load_turn

AT_ONCE = (1, 64, 500)
TURNS = 500


@dataclass(slots=True)
class Times:
    """Times of many turns, in seconds."""

    turns: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    """Time until the first model call."""


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    answer_at_once()
    _allow(max(AT_ONCE))
    owner = User.objects.create_user("benchmark")
    model_store.put_model(
        ModelSpec(alias="large", litellm_model="demo/chat", context_window=400_000, max_output_tokens=4_000)
    )
    return asyncio.run(_measure(owner))


async def _measure(owner: User) -> list[tuple[str, ...]]:
    await _row(owner, 1, turns=20)  # warm-up
    rows = [await _row(owner, at_once, turns=TURNS) for at_once in AT_ONCE]
    await runner.shutdown()
    return rows


async def _row(owner: User, at_once: int, *, turns: int) -> tuple[str, ...]:
    config = {"turn": {"tools": []}, "compaction": {"auto": False}}
    sessions = [await db(_new_session, owner, config) for _ in range(at_once)]
    times, messages = Times(), [text_of(user.parts) for user, _ in make_turns(max(1, turns // at_once))]
    memory = psutil.Process().memory_info().rss
    started = perf_counter(), process_time()
    for message in messages:
        await asyncio.gather(*(_turn(owner, session_id, message, times) for session_id in sessions))
    wall, processor = perf_counter() - started[0], process_time() - started[1]
    more = (psutil.Process().memory_info().rss - memory) / 1e6
    p50, p99 = (1000 * quantiles(times.turns, n=100)[place] for place in (49, 98))
    numbers = (len(times.turns) / wall, 1000 * processor / len(times.turns), p50, p99)
    first = 1000 * quantiles(times.calls, n=100)[98]
    return (str(at_once), *(f"{number:,.1f}" for number in numbers), f"{first:,.1f}", f"{more:,.0f}")


def _allow(turns: int) -> None:
    """Set how many turns may run at a time."""
    file = Path(os.environ["MNESIS_DATA_DIR"]) / "crowd.toml"
    file.write_text(f"[turn]\ncapacity = {turns}\nmost_at_once = {turns}\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
    site_config.cache_clear()


def _new_session(owner: User, config: dict[str, object]) -> str:
    return session_store.create_session(owner=owner, model="large", config=config)


async def _turn(owner: User, session_id: str, message: str, times: Times) -> None:
    began = perf_counter()
    started = await lifecycle.start_turn(session_id, owner_id=owner.pk, message=message)
    await runner.wait(started.turn.id)
    times.turns.append(perf_counter() - began)
    times.calls.append(asked_at.pop(started.turn.id) - began)
    turn = await db(load_turn, started.turn.id, session_id=session_id)
    assert turn.state == "completed", turn.error_message
