"""A worker of map runs: it takes up live runs, executes its part of each, and renews its leases and shares by a heartbeat.

In a run it reads the input, claims items, attempts many at a time and settles them in batches. One change settles what
has finished, records the calls of prepared items, and claims the next ones, which are read and rendered while the others
are asked. A worker holds nothing but leases: if it dies, another worker takes its items, and a worker that was taken for
dead can settle nothing any more.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings

from agents_app import queries, store
from agents_app.maps.agentic_map import AgenticExecutor
from agents_app.maps.executor import FinishedItem, ItemExecutor, PreparedItem, StartedItem, put_back
from agents_app.maps.llm_map import LlmExecutor
from agents_app.maps.output import finish_run, write_output
from agents_app.schedule import LONGEST_SECONDS, must_make_room
from agents_app.store import Demand
from agents_app.turns.runner import runner
from files_app.contents import content_size, reading
from files_app.queries import load_file_reference
from mnesis_core import errors
from mnesis_core.actor import read_actor
from mnesis_core.config import OperatorConfig
from mnesis_core.maps.values import ItemRecord, NewItem, OperatorKind, RunRecord, RunState, StopReason, input_lines
from mnesis_core.providers.credentials import provider_of
from mnesis_core.providers.litellm_ import close_connections
from sessions_app.conf import site_config
from sessions_app.database.outages import log_failure
from sessions_app.database.threads import AWAY, DedicatedThread
from sessions_app.llm.calls import RateLimitPause, drop_pauses, keep_pause
from sessions_app.record.actor import context_of
from sessions_app.record.change import Change, change
from sessions_app.record.lease import new_owner

ITEMS_A_CHANGE = 2_000
IDLE_SECONDS = 0.25  # between two looks for items that others hold, or that may not be attempted yet
MOST_FAILURES = 20  # changes in a row that the database refuses, before this worker gives the run up
TASK = "map"  # by this name a worker of maps acts
RUNS_AT_ONCE = 8  # of one worker: each has a thread with a connection to the database
LOOK_SECONDS = 0.5  # how long a run that has become live waits for a worker that executes others
LEAVE_SECONDS = 8.0  # for what is in flight when the cluster stops: less than the cluster has itself
ROOM_SECONDS = 30.0  # for what is in flight where others wait for the only worker: a sub-agent goes on later
logger = logging.getLogger(__name__)


def read_input(run_id: str, *, may_go_on: Callable[[], bool]) -> None:
    """Read a run's input into items, one batch a change, from where the last worker stopped.

    The run fails if the file cannot be read. Reading stops when ``may_go_on`` returns false.
    """
    run, config = queries.load_run(run_id), site_config().operators
    try:
        content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
        last = queries.load_items(run.id, [queries.last_item(run.id)[0]])
        number = last[0].number if last else 0
        after = NewItem(number=number, offset=last[0].offset, length=last[0].length) if last else None
        with reading(content_id) as read:
            size = content_size(content_id)
            lines = input_lines(read, size, after=after, line_bytes=config.line_bytes, most_items=config.most_items)
            while may_go_on():
                batch = list(islice(lines, ITEMS_A_CHANGE))
                with change(run.session_id) as record:
                    if queries.last_item(run.id)[0] != number:
                        return  # another worker reads it
                    if batch:
                        store.add_items(record, run.id, batch)
                        number = batch[-1].number
                    if len(batch) < ITEMS_A_CHANGE:
                        store.begin_run(record, run.id, items=number)
                        return
    except (errors.InvalidInput, errors.FileContentNotFound, errors.FileReferenceNotFoundError) as error:
        with suppress(errors.OperatorRunNotInState), change(run.session_id) as record:
            store.fail_run(record, run_id, error)
    except errors.OperatorRunNotInState:
        pass  # it was paused or cancelled, or another worker has read it meanwhile


class Mode(Enum):
    """What a worker does with a run: go on, finish what is in flight, or cancel that too."""

    GO = auto()
    DRAIN = auto()
    CUT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """The effect of one change. ``later`` could not be started yet; ``lost`` items belong to another worker by now."""

    started: Sequence[StartedItem[Any]] = ()
    later: Sequence[PreparedItem[Any]] = ()
    lost: Sequence[ItemRecord] = ()
    claimed: Sequence[ItemRecord] = ()
    exhausted: errors.BudgetExhausted | None = None


class RunExecutor:
    """The part of a run that this worker executes. ``owner`` names the worker in its leases."""

    def __init__(
        self, map_run: RunRecord, *, owner: str, config: OperatorConfig, items: ItemExecutor[Any, Any]
    ) -> None:
        self.map_run = map_run
        self.mode = Mode.GO
        self._owner = owner
        self._config = config
        self._items = items
        self._thread = DedicatedThread()
        self._permits = 0
        self._wake = asyncio.Event()
        self._prepared: list[PreparedItem[Any]] = []
        self._in_flight: dict[asyncio.Task[Any], StartedItem[Any]] = {}
        self._finished: list[FinishedItem] = []
        self.held: dict[int, int] = {}  # by the numbers of the items that this worker holds, their ``attempts``
        self._failures = 0

    @property
    def demand(self) -> Demand:
        spec, waiting = self._items.spec, self._items.waiting
        return Demand(
            run_id=self.map_run.id,
            wanted=self.map_run.spec.concurrency - waiting if self.mode is Mode.GO else 0,
            in_flight=len(self._in_flight) - waiting,
            concurrency=self.map_run.spec.concurrency,
            model=spec.alias,
            provider=provider_of(spec.litellm_model),
            owner_id=self.map_run.owner_id,
        )

    def allow(self, permits: int) -> None:
        if permits != self._permits:
            self._permits = permits
            self._wake.set()

    def set_mode(self, mode: Mode) -> None:
        """Change the mode; ``Mode.CUT`` is final."""
        if mode is self.mode or self.mode is Mode.CUT:
            return
        self.mode = mode
        self._wake.set()
        if mode is Mode.CUT:
            self._cancel_all()

    def drop(self, items: Mapping[int, int]) -> None:
        """Cancel the attempts at items that another worker has by now; ``items`` maps numbers to ``attempts``."""
        for task, started in self._in_flight.items():
            if items.get(started.item.number) == started.item.attempts:
                task.cancel()

    async def run(self) -> None:
        """Work until the run is over, or until this worker is to stop and holds nothing of it any more."""

        def give_back() -> None:
            with change(self.map_run.session_id) as record:
                store.give_back(record, self.map_run.id, worker=self._owner, items=list(self.held))

        try:
            if self.map_run.state is RunState.PENDING:
                await self._thread(read_input, self.map_run.id, may_go_on=lambda: self.mode is Mode.GO)
            while await self._advance():
                await self._wait_for_work()
            await self._thread(write_output, self.map_run.id)
        finally:
            # Nothing that this worker started goes on, and what it holds is free for others.
            self._cancel_all()
            await asyncio.gather(*self._in_flight, return_exceptions=True)
            if self.held:
                with suppress(*AWAY, errors.MnesisError):
                    await self._thread(give_back)
            await self._thread.close()

    async def _advance(self) -> bool:
        """Make one change, and start and prepare what it allows; return whether there is more to do."""
        for task in [task for task in self._in_flight if task.done()]:
            started = self._in_flight.pop(task)
            settle = partial(self._items.settle_cancelled, started)
            if not task.cancelled():
                settle = partial(self._items.settle, started, task.result())
            self._finished.append((started.item, settle))
        result = await self._change()
        for started in result.started:
            self._in_flight[asyncio.create_task(self._items.ask(started))] = started
        if self.mode is Mode.CUT:
            self._cancel_all()
        prepared, rejected = await self._thread(self._items.prepare, result.claimed)
        self._prepared += prepared
        self._finished += rejected
        if result.exhausted is not None:
            self.set_mode(Mode.DRAIN)
        if self._in_flight or self._prepared or self._finished:
            return True
        return self.mode is Mode.GO and not await self._thread(finish_run, self.map_run.id)

    async def _change(self) -> ChangeResult:
        """Settle, start and claim. Nothing is lost while the database is unreachable for a moment."""
        finished, self._finished = self._finished, []
        if self.mode is not Mode.GO:
            finished += [(one.item, partial(put_back, one.item)) for one in self._prepared]
            self._prepared = []
        room = max(0, self._permits - len(self._in_flight))
        start, self._prepared = self._prepared[:room], self._prepared[room:]
        wanted = max(0, self._permits - len(self._prepared)) if self.mode is Mode.GO else 0
        try:
            result = await self._thread(self._write, finished, start, wanted)
        except AWAY:
            self._failures += 1
            if self._failures > MOST_FAILURES:
                raise
            self._finished, self._prepared = finished + self._finished, start + self._prepared
            await asyncio.sleep(IDLE_SECONDS * self._failures)
            return ChangeResult()
        self._failures = 0
        for item in (*(item for item, _ in finished), *result.lost):
            if self.held.get(item.number) == item.attempts:  # or it was lost, and claimed again since
                del self.held[item.number]
        self.held |= {item.number: item.attempts for item in result.claimed}
        self._prepared = list(result.later) + self._prepared
        return result

    def _write(self, finished: list[FinishedItem], start: list[PreparedItem[Any]], wanted: int) -> ChangeResult:
        settlements = [settle() for _, settle in finished]
        if not settlements and not start and not (wanted and queries.has_claimable_items(self.map_run.id)):
            return ChangeResult()
        with change(self.map_run.session_id) as record:
            if settlements:
                store.settle_items(record, self.map_run.id, worker=self._owner, settled=settlements)
            result = self._start(record, start) if start else ChangeResult()
            if result.exhausted is not None or not wanted:
                return result
            seconds = self._config.lease_seconds
            claimed = store.claim_items(
                record, self.map_run.id, worker=self._owner, limit=wanted, lease_seconds=seconds
            )
            return replace(result, claimed=claimed)

    def _start(self, record: Change, prepared: list[PreparedItem[Any]]) -> ChangeResult:
        numbers = [one.item.number for one in prepared]
        held = store.held_items(record, self.map_run.id, worker=self._owner, items=numbers)
        ours = [one for one in prepared if held.get(one.item.number) == one.item.attempts]
        lost = [one.item for one in prepared if held.get(one.item.number) != one.item.attempts]
        # A change that paused or cancelled the run held its session before this one: nothing is asked after that.
        if not ours or queries.run_states([self.map_run.id]).get(self.map_run.id) is not RunState.RUNNING:
            return ChangeResult(later=ours, lost=lost)
        try:
            started = self._items.start(record, ours)
        except errors.BudgetExhausted as error:
            # Nothing was written for any of them. What is in flight comes to its end, and is kept.
            store.set_run_state(record, self.map_run.id, RunState.PAUSED, reason=StopReason.BUDGET)
            return ChangeResult(later=ours, lost=lost, exhausted=error)
        return ChangeResult(started=started, later=ours[len(started) :], lost=lost)

    async def _wait_for_work(self) -> None:
        """Wait until the next change has something to do; results are collected for ``flush_seconds``."""
        self._wake.clear()
        if self._finished:
            return
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            idle = None if len(self._in_flight) >= self._permits else IDLE_SECONDS
            await asyncio.wait([*self._in_flight, wake], timeout=idle, return_when=asyncio.FIRST_COMPLETED)
            if self._in_flight and not wake.done():
                await asyncio.wait(self._in_flight, timeout=self._config.flush_seconds)
        finally:
            wake.cancel()

    def _cancel_all(self) -> None:
        for task in self._in_flight:
            if not task.cancelling():  # a second cancellation would hit its cleanup
                task.cancel()


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
    """:raises ModelNotFoundError: the run's model is not there any more."""
    return (AgenticExecutor if run.kind is OperatorKind.AGENTIC else LlmExecutor)(run, pause_of=pause_of)


def work_for_a_slice(*, must_stop: Callable[[], bool] = lambda: False) -> bool:
    """Execute runs until nothing is left to do or others wait for a worker; return whether something is left.

    Once ``must_stop`` returns true nothing more is started, and soon everything is given back.
    """
    return asyncio.run(Worker(site_config().operators, must_stop=must_stop).run())


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
        heartbeat = asyncio.create_task(self._run_heartbeat())
        try:
            await self._thread(release_forgotten)  # where no run is live no heartbeat comes
            await self._work()
            return bool(await self._thread(queries.live_runs))
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
                await self._heartbeat_thread(store.drop_shares, self.owner)
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
            seconds = time.monotonic() - started
            if not self._is_stopping and (
                leave_at < math.inf
                or seconds > LONGEST_SECONDS
                or (seconds >= self.config.slice_seconds and self._has_runs_waiting)
                or (seconds >= self.config.slice_seconds and await self._thread(must_make_room))
            ):
                self._is_stopping = True
                for executor in self._executors.values():
                    executor.set_mode(Mode.GO if _is_waited_for(executor.map_run) else Mode.DRAIN)
            if not self._is_stopping or leave_at < math.inf:
                continue
            # A run for which a sub-agent of this worker waits goes on: it would be asked for twice otherwise.
            is_waited_for = any(_is_waited_for(executor.map_run) for executor in self._executors.values())
            if not is_waited_for and await self._thread(must_make_room):
                leave_at = time.monotonic() + ROOM_SECONDS

    async def _take_up_runs(self) -> None:
        """Start executing live runs; while stopping, only those for which sub-agents of this worker wait."""
        live = [run for run in await self._thread(queries.live_runs) if run.id not in self._tasks]
        random.shuffle(live)  # or the oldest would keep all workers for as long as they last
        room = 0 if self._is_stopping else max(0, RUNS_AT_ONCE - len(self._tasks))
        runs = [run for run in live if _is_waited_for(run)]
        runs += [run for run in live if run not in runs][:room]
        self._has_runs_waiting = len(live) > len(runs)
        for run in runs:
            self._has_run_agents |= run.kind is OperatorKind.AGENTIC
            try:
                items = await self._thread(make_executor, run, pause_of=self._pause_of)
            except errors.MnesisError as error:
                await self._thread(pause_for_error, run, error)
                continue
            self._executors[run.id] = RunExecutor(run, owner=self.owner, config=self.config, items=items)
            context = context_of(read_actor(run.actor).later(TASK))
            self._tasks[run.id] = asyncio.create_task(self._executors[run.id].run(), name=run.id, context=context)
        for run_id in await self._thread(queries.runs_without_output):
            await self._thread(write_output, run_id)
        if runs:
            await self._beat()

    async def _reap(self) -> None:
        for run_id in [run_id for run_id, task in self._tasks.items() if task.done()]:
            run, error = self._executors.pop(run_id).map_run, self._tasks.pop(run_id).exception()
            if isinstance(error, errors.MnesisError):
                await self._thread(pause_for_error, run, error)
            elif error is not None:
                logger.error("this worker's part in run %s broke off", run_id, exc_info=error)

    def _pause_of(self, alias: str) -> RateLimitPause:
        return self._pauses.setdefault(alias, keep_pause(alias, share=store.brake_model))

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
        held = {run_id: dict(executor.held) for run_id, executor in executors.items()}
        demands = [executor.demand for executor in executors.values()]
        states, permits, lost, brakes = await self._heartbeat_thread(self._renew, demands, held)
        for alias, until in brakes.items():
            self._pause_of(alias).extend(until)
        for run_id, executor in executors.items():
            executor.drop(lost[run_id])
            state = states.get(run_id)
            if state is None or state is RunState.CANCELLED:  # None: its session was deleted
                executor.set_mode(Mode.CUT)
            elif state.is_live and not (self._is_stopping and not _is_waited_for(executor.map_run)):
                executor.set_mode(Mode.GO)
            else:
                executor.set_mode(Mode.DRAIN)
            executor.allow(permits.get(run_id, 0))

    def _renew(
        self, demands: list[Demand], held: dict[str, dict[int, int]]
    ) -> tuple[dict[str, RunState], dict[str, int], dict[str, dict[int, int]], dict[str, datetime]]:
        """Renew leases and shares; return states and permits by run, lost items with their ``attempts``, and brakes by model.

        An item is lost if another worker has it by now.
        """
        seconds, lost = self.config.lease_seconds, {}
        for run_id, items in held.items():
            kept = store.renew_items(run_id, worker=self.owner, items=items, lease_seconds=seconds)
            lost[run_id] = {item: attempts for item, attempts in items.items() if item not in kept}
        release_forgotten()
        permits = store.renew_shares(self.owner, demands, self.config)
        brakes = queries.braked_until(list(self._pauses))
        return queries.run_states(list(held)), permits, lost, brakes


def _is_waited_for(run: RunRecord) -> bool:
    """Return whether a sub-agent's turn that runs here waits for this run: no other worker may have a slot for it."""
    return bool(run.turn_id) and runner.has(run.turn_id)


def release_forgotten() -> None:
    """Let the items of dead workers wait again, whatever run they are of."""
    for run_id, session_id in queries.sessions_of_runs(queries.forgotten_runs()).items():
        with suppress(errors.SessionNotFoundError), change(session_id) as record:
            store.release_expired(record, run_id)


def pause_for_error(run: RunRecord, error: errors.MnesisError) -> None:
    """Pause a run that cannot go on, such as when its model is not there any more, until a person has looked."""
    logger.warning("run %s is paused: %s", run.id, error.message)
    # It may have been deleted or stopped meanwhile: then no one waits for it.
    with suppress(errors.NotFound, errors.Conflict), change(run.session_id) as record:
        store.set_run_state(record, run.id, RunState.PAUSED, reason=StopReason.ERROR)
