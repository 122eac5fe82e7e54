"""A worker executes all live runs at once, in one event loop, for a slice of time.

Its heartbeat renews what it holds and brings what was decided elsewhere: how much it may have in flight, what was
paused or cancelled, which workers died. Some of a machine's workers execute runs at a time; the others are for other
jobs.
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
from agents_app.maps.agentic_map import AgenticExecutor
from agents_app.maps.executor import ItemExecutor
from agents_app.maps.llm_map import LlmExecutor
from agents_app.maps.output import write_output
from agents_app.maps.run import Mode, RunExecutor
from agents_app.schedule import LONGEST_SECONDS, must_make_room
from agents_app.turns.runner import runner
from mnesis_core.config import OperatorConfig
from mnesis_core.errors import Conflict, MnesisError, NotFound, SessionNotFoundError
from mnesis_core.maps.values import OperatorKind, RunRecord, RunState, StopReason
from mnesis_core.providers.litellm_ import close_connections
from sessions_app.conf import site_config
from sessions_app.database.outages import log_failure
from sessions_app.database.threads import AWAY, DedicatedThread
from sessions_app.model_calls import RateLimitPause, drop_pauses, keep_pause
from sessions_app.record.change import change
from sessions_app.record.lease import new_owner

RUNS_AT_ONCE = 8  # of one worker: each has a thread with a connection to the database
LOOK_SECONDS = 0.5  # how long a run that has become live waits for a worker that executes others
LEAVE_SECONDS = 8.0  # for what is in flight when the cluster stops: less than the cluster has itself
ROOM_SECONDS = 30.0  # for what is in flight where others wait for the only worker: a sub-agent goes on later
logger = logging.getLogger(__name__)


@contextmanager
def worker_slot(count: int) -> Iterator[bool]:
    """Take one of ``count`` slots of this machine for the length of the block; yield False where none is free."""
    folder = Path(settings.DATA_DIR) / "operators"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(count):
        # The kernel takes a file's lock back when its holder dies, however it dies.
        handle = os.open(folder / f"worker-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        try:
            yield True
        finally:
            os.close(handle)
        return
    yield False


def make_executor(run: RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> ItemExecutor[Any, Any]:
    """Return the item executor of a run. ``pause_of`` finds the rate-limit pause of a model by its alias.

    :raises ModelNotFoundError: the run's model is not there any more.
    """
    if run.kind is OperatorKind.AGENTIC:
        return AgenticExecutor(run, pause_of=pause_of)
    return LlmExecutor(run, pause_of=pause_of)


def work_for_a_slice(*, must_stop: Callable[[], bool] = lambda: False) -> bool:
    """Execute runs until nothing is left to do or others wait for a worker; return whether something is left.

    Once ``must_stop`` returns true nothing more is started, and soon everything is given back.
    """
    return asyncio.run(Worker(site_config().operators, must_stop=must_stop).run())


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a heartbeat brings. Brakes are by the aliases of models, the rest is by the ids of runs.

    ``lost`` holds the items that another worker has by now, with their ``attempts``.
    """

    states: dict[str, RunState]
    permits: dict[str, int]
    lost: dict[str, dict[int, int]]
    brakes: dict[str, datetime]


@dataclass(slots=True)
class Worker:
    config: OperatorConfig
    must_stop: Callable[[], bool]
    owner: str = field(default_factory=new_owner)
    _executors: dict[str, RunExecutor] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _thread: DedicatedThread = field(default_factory=DedicatedThread)
    # Leases must not wait while an output is written.
    _heartbeat_thread: DedicatedThread = field(default_factory=DedicatedThread)
    _pauses: dict[str, RateLimitPause] = field(default_factory=dict)
    _is_stopping: bool = False
    _has_runs_waiting: bool = False
    _has_run_agents: bool = False

    async def run(self) -> bool:
        """Execute runs as ``work_for_a_slice`` says."""
        heartbeat = asyncio.create_task(self._run_heartbeat())
        try:
            await self._thread(release_forgotten)  # where no run is live no heartbeat comes
            await self._work()
            return bool(await self._thread(live_runs))
        finally:
            # Where it ended well none of them is left.
            for task in (heartbeat, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(heartbeat, *self._tasks.values(), return_exceptions=True)
            await close_connections()
            if self._has_run_agents:
                await runner.shutdown()
            drop_pauses(self._pauses)
            with suppress(*AWAY):
                # In the heartbeat's own thread: a last one may still be on its way there, and would take them again.
                await self._heartbeat_thread(map_store.drop_shares, self.owner)
            await self._thread.close()
            await self._heartbeat_thread.close()

    async def _work(self) -> None:
        started, leave_at = time.monotonic(), math.inf
        while True:
            await self._take_up_runs()
            if not self._tasks or time.monotonic() > leave_at:
                return
            await asyncio.wait(self._tasks.values(), timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            await self._reap()
            if await self._thread(self.must_stop):
                leave_at = min(leave_at, time.monotonic() + LEAVE_SECONDS)
            if not self._is_stopping and (leave_at < math.inf or await self._is_slice_over(started)):
                self._is_stopping = True
                for executor in self._executors.values():
                    executor.set_mode(Mode.GO if _is_waited_for(executor.map_run) else Mode.DRAIN)
            if not self._is_stopping or leave_at < math.inf:
                continue
            # A run for which a sub-agent of this worker waits goes on: it would be asked for twice otherwise.
            is_waited_for = any(_is_waited_for(executor.map_run) for executor in self._executors.values())
            if not is_waited_for and await self._thread(must_make_room):
                leave_at = time.monotonic() + ROOM_SECONDS

    async def _is_slice_over(self, started: float) -> bool:
        seconds = time.monotonic() - started
        if seconds > LONGEST_SECONDS:
            return True
        if seconds < self.config.slice_seconds:
            return False
        return self._has_runs_waiting or await self._thread(must_make_room)

    async def _take_up_runs(self) -> None:
        """Start executing live runs; while stopping, only those for which sub-agents of this worker wait."""
        live = [run for run in await self._thread(live_runs) if run.id not in self._tasks]
        random.shuffle(live)  # or the oldest would keep all workers for as long as they last
        room = 0 if self._is_stopping else max(0, RUNS_AT_ONCE - len(self._tasks))
        runs = [run for run in live if _is_waited_for(run)]
        runs += [run for run in live if run not in runs][:room]
        self._has_runs_waiting = len(live) > len(runs)
        for run in runs:
            self._has_run_agents |= run.kind is OperatorKind.AGENTIC
            try:
                items = await self._thread(make_executor, run, pause_of=self._pause_of)
            except MnesisError as error:
                await self._thread(pause_for_error, run, error)
                continue
            self._executors[run.id] = RunExecutor(run, owner=self.owner, config=self.config, items=items)
            self._tasks[run.id] = asyncio.create_task(self._executors[run.id].run(), name=run.id)
        for run_id in await self._thread(runs_without_output):
            await self._thread(write_output, run_id)
        if runs:
            await self._beat()

    async def _reap(self) -> None:
        for run_id, task in list(self._tasks.items()):
            if not task.done():
                continue
            del self._tasks[run_id]
            run, error = self._executors.pop(run_id).map_run, task.exception()
            if isinstance(error, MnesisError):
                await self._thread(pause_for_error, run, error)
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
        executors = dict(self._executors)
        held = {run_id: executor.held for run_id, executor in executors.items()}
        demands = [executor.demand for executor in executors.values()]
        renewal = await self._heartbeat_thread(self._renew, demands, held)
        for alias, until in renewal.brakes.items():
            self._pause_of(alias).extend(until)
        for run_id, executor in executors.items():
            executor.drop(renewal.lost[run_id])
            state = renewal.states.get(run_id)
            if state is None or state is RunState.CANCELLED:  # None: its session was deleted
                executor.set_mode(Mode.CUT)
            elif state.is_live and not (self._is_stopping and not _is_waited_for(executor.map_run)):
                executor.set_mode(Mode.GO)
            else:
                executor.set_mode(Mode.DRAIN)
            executor.allow(renewal.permits.get(run_id, 0))

    def _renew(self, demands: list[Demand], held: dict[str, dict[int, int]]) -> Renewal:
        seconds, lost = self.config.lease_seconds, {}
        for run_id, items in held.items():
            kept = map_store.renew_items(run_id, worker=self.owner, items=items, lease_seconds=seconds)
            lost[run_id] = {item: attempts for item, attempts in items.items() if item not in kept}
        release_forgotten()
        permits = map_store.renew_shares(self.owner, demands, self.config)
        brakes = braked_until(list(self._pauses))
        return Renewal(states=run_states(list(held)), permits=permits, lost=lost, brakes=brakes)


def _is_waited_for(run: RunRecord) -> bool:
    """Return whether a sub-agent's turn that runs here waits for this run: no other worker may have a slot for it."""
    return bool(run.turn_id) and runner.has(run.turn_id)


def release_forgotten() -> None:
    """Let the items of dead workers wait again, whatever run they are of."""
    for run_id, session_id in sessions_of_runs(forgotten_runs()).items():
        with suppress(SessionNotFoundError), change(session_id) as record:
            map_store.release_expired(record, run_id)


def pause_for_error(run: RunRecord, error: MnesisError) -> None:
    """Pause a run that cannot go on, such as when its model is not there any more, until a person has looked."""
    logger.warning("run %s is paused: %s", run.id, error.message)
    # It may have been deleted or stopped meanwhile: then no one waits for it.
    with suppress(NotFound, Conflict), change(run.session_id) as record:
        map_store.set_run_state(record, run.id, RunState.PAUSED, reason=StopReason.ERROR)
