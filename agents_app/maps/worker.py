"""Places for workers that work on runs: so many of a machine's workers do at a time, the others are for other jobs.

A place is a lock on a file, which the kernel takes back when its holder dies, however it dies.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from agents_app import map_store
from agents_app.map_queries import (
    braked_until,
    forgotten_runs,
    live_runs,
    run_states,
    runs_without_output,
    sessions_of_runs,
)
from agents_app.map_store import Demand
from agents_app.maps.agentic_map import AgenticTries
from agents_app.maps.executor import Trying
from agents_app.maps.llm_map import LlmTries
from agents_app.maps.output import write_output
from agents_app.maps.run import Mode, RunWork
from agents_app.schedule import LONGEST_SECONDS, must_make_room
from agents_app.turns.runner import runner
from mnesis_core.config import OperatorConfig
from mnesis_core.errors import Conflict, MnesisError, NotFound, SessionNotFoundError
from mnesis_core.maps.values import OperatorKind, RunRecord, RunState, StopReason
from mnesis_core.providers.litellm_ import close_connections
from sessions_app.conf import site_config
from sessions_app.database.outages import log_failure
from sessions_app.database.threads import AWAY, DedicatedThread
from sessions_app.rate_limit_pauses import RateLimitPause, drop_pauses, keep_pause
from sessions_app.record.change import change
from sessions_app.record.lease import new_owner

_FOLDER = "operators"


@contextmanager
def place(count: int) -> Iterator[bool]:
    """Take one of so many places for the length of the block; False where none is free."""
    handle = next(filter(None, (_take(number) for number in range(count))), None)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


def _take(number: int) -> int | None:
    """The handle of a locked file; closing it gives the place back."""
    folder = Path(settings.DATA_DIR) / _FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder / f"worker-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    os.close(handle)
    return None


# Which way the items of a run are tried.


def tries_of(run: RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> Trying[Any, Any]:
    """The way to try the items of a run.

    :param pause_of: the rate-limit pause of a model, by its alias
    :raises ModelNotFoundError: the run's model is not there any more.
    """
    if run.kind is OperatorKind.AGENTIC:
        return AgenticTries(run, pause_of=pause_of)
    return LlmTries(run, pause_of=pause_of)


# Story: a worker works on all live runs at once, in one loop, for a slice of time.
#
# Its heartbeat renews what it holds, a second at a time, and brings what was decided elsewhere: how much it may have in
# flight, what was paused or cancelled, which workers died.

RUNS_AT_ONCE = 8
"""Of one worker: each has a thread with a connection to the database."""
LOOK_SECONDS = 0.5
"""How long a run that has become live waits for a worker that works on others."""
LEAVE_SECONDS = 8.0
"""What is in flight has so long to end when the worker's cluster stops: less than the cluster has itself."""
ROOM_SECONDS = 30.0
"""Likewise where others wait for the only worker there is: a sub-agent goes on later where it was."""
logger = logging.getLogger(__name__)


def work_for_a_slice(*, must_stop: Callable[[], bool] = lambda: False) -> bool:
    """Work on runs until nothing is left to do, or others wait for a worker; whether something is left.

    :param must_stop: asked now and then; once it is true nothing more is begun, and soon all is given back
    """
    return asyncio.run(Worker(site_config().operators, must_stop=must_stop).run())


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What a heartbeat brings, of each run."""

    states: dict[str, RunState]
    permits: dict[str, int]
    lost: dict[str, dict[int, int]]
    """Items that another worker has by now."""
    brakes: dict[str, datetime]
    """Until when no worker may ask a model, by its alias."""


@dataclass(slots=True)
class Worker:
    """One process that works on runs."""

    config: OperatorConfig
    must_stop: Callable[[], bool]
    owner: str = field(default_factory=new_owner)
    _works: dict[str, RunWork] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _hand: DedicatedThread = field(default_factory=DedicatedThread)
    _heartbeat_hand: DedicatedThread = field(default_factory=DedicatedThread)
    """Another one: leases must not wait while an output is written."""
    _pauses: dict[str, RateLimitPause] = field(default_factory=dict)
    """By the aliases of models."""
    _stops: bool = False
    _is_full: bool = False
    """Whether runs wait for a worker that has room for them."""
    _has_agents: bool = False
    """Whether turns of sub-agents have run here."""

    async def run(self) -> bool:
        """See ``work_for_a_slice``."""
        heartbeat = asyncio.create_task(self._run_heartbeat())
        try:
            await self._hand(release_forgotten)  # where no run is live no heartbeat comes
            await self._work()
            return bool(await self._hand(live_runs))
        finally:
            # Where it ended well none of them is left.
            for task in (heartbeat, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(heartbeat, *self._tasks.values(), return_exceptions=True)
            await close_connections()
            if self._has_agents:
                await runner.shutdown()
            drop_pauses(self._pauses)
            with suppress(*AWAY):
                # In the heartbeat's own thread: a last one may still be on its way there, and would take them again.
                await self._heartbeat_hand(map_store.drop_shares, self.owner)
            await self._hand.close()
            await self._heartbeat_hand.close()

    async def _work(self) -> None:
        began, leave_at = time.monotonic(), math.inf
        while True:
            await self._take_up()
            if not self._tasks or time.monotonic() > leave_at:
                return
            await asyncio.wait(self._tasks.values(), timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            await self._reap()
            if await self._hand(self.must_stop):
                leave_at = min(leave_at, time.monotonic() + LEAVE_SECONDS)
            if not self._stops and (leave_at < math.inf or await self._is_to_stop(time.monotonic() - began)):
                self._stops = True
                for work in self._works.values():
                    work.turn(Mode.GO if _is_waited_for(work.run) else Mode.DRAIN)
            if self._stops and leave_at == math.inf and await self._keeps_others_waiting():
                leave_at = time.monotonic() + ROOM_SECONDS

    async def _is_to_stop(self, seconds: float) -> bool:
        if seconds > LONGEST_SECONDS:
            return True
        if seconds < self.config.slice_seconds:
            return False
        return self._is_full or await self._hand(must_make_room)

    async def _keeps_others_waiting(self) -> bool:
        """Whether others of the queue need this worker, and no sub-agent of it waits for a run: that would be asked for twice."""
        is_waited_for = any(_is_waited_for(work.run) for work in self._works.values())
        return not is_waited_for and await self._hand(must_make_room)

    async def _take_up(self) -> None:
        """Begin with runs that are live and that this worker does not work on yet; at its end, with what it waits for."""
        found = [run for run in await self._hand(live_runs) if run.id not in self._tasks]
        random.shuffle(found)  # or the oldest would keep all workers for as long as they last
        room = 0 if self._stops else max(0, RUNS_AT_ONCE - len(self._tasks))
        runs = [run for run in found if _is_waited_for(run)]
        runs += [run for run in found if run not in runs][:room]
        self._is_full = len(found) > len(runs)
        for run in runs:
            self._has_agents |= run.kind is OperatorKind.AGENTIC
            await self._begin(run)
        for run_id in await self._hand(runs_without_output):
            await self._hand(write_output, run_id)
        if runs:
            await self._beat()

    async def _begin(self, run: RunRecord) -> None:
        try:
            trying = await self._hand(tries_of, run, pause_of=self._pause_of)
        except MnesisError as error:
            await self._hand(pause_for_error, run, error)
            return
        work = RunWork(run, owner=self.owner, config=self.config, trying=trying)
        self._works[run.id] = work
        self._tasks[run.id] = asyncio.create_task(work.go(), name=run.id)

    async def _reap(self) -> None:
        for run_id, task in list(self._tasks.items()):
            if not task.done():
                continue
            del self._tasks[run_id]
            run, error = self._works.pop(run_id).run, task.exception()
            if isinstance(error, MnesisError):
                await self._hand(pause_for_error, run, error)
            elif error is not None:
                logger.error("this worker's part in run %s broke off", run_id, exc_info=error)

    def _pause_of(self, alias: str) -> RateLimitPause:
        return self._pauses.setdefault(alias, keep_pause(alias, share=map_store.brake_model))

    async def _run_heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self.config.heartbeat_seconds)
            try:
                await self._beat()
            except Exception as error:
                # A database that is away for a moment must not stop the heartbeat; the leases have slack for it.
                log_failure(logger, "The heartbeat of a worker failed and tries again", error)

    async def _beat(self) -> None:
        works = dict(self._works)
        held = {run_id: work.held for run_id, work in works.items()}
        news = await self._heartbeat_hand(self._renew, [work.demand for work in works.values()], held)
        for alias, until in news.brakes.items():
            self._pause_of(alias).extend(until)
        for run_id, work in works.items():
            work.lose(news.lost[run_id])
            work.turn(_mode_for(news.states.get(run_id), stops=self._stops and not _is_waited_for(work.run)))
            work.allow(news.permits.get(run_id, 0))

    def _renew(self, demands: list[Demand], held: dict[str, dict[int, int]]) -> News:
        seconds, lost = self.config.lease_seconds, {}
        for run_id, items in held.items():
            kept = map_store.renew_items(run_id, worker=self.owner, items=items, lease_seconds=seconds)
            lost[run_id] = {item: attempts for item, attempts in items.items() if item not in kept}
        release_forgotten()
        permits = map_store.renew_shares(self.owner, demands, self.config)
        brakes = braked_until(list(self._pauses))
        return News(states=run_states(list(held)), permits=permits, lost=lost, brakes=brakes)


def _is_waited_for(run: RunRecord) -> bool:
    """Whether a sub-agent's turn that runs here asked for a run: no other worker may have a place for it."""
    return bool(run.turn_id) and runner.has(run.turn_id)


def release_forgotten() -> None:
    """Let the items of dead workers wait again, whatever run they are of."""
    for run_id, session_id in sessions_of_runs(forgotten_runs()).items():
        with suppress(SessionNotFoundError), change(session_id) as record:
            map_store.release_expired(record, run_id)


def pause_for_error(run: RunRecord, error: MnesisError) -> None:
    """Let a run wait that nobody can go on with, as when its model is not there any more, until a person has looked."""
    logger.warning("run %s is paused: %s", run.id, error.message)
    # It was deleted meanwhile, or somebody has stopped it: then nobody waits for it.
    with suppress(NotFound, Conflict), change(run.session_id) as record:
        map_store.set_run_state(record, run.id, RunState.PAUSED, reason=StopReason.ERROR)


def _mode_for(state: RunState | None, *, stops: bool) -> Mode:
    """``None``: the run's session was deleted."""
    if state is None or state is RunState.CANCELLED:
        return Mode.CUT
    return Mode.GO if state.is_live and not stops else Mode.DRAIN
