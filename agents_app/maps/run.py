"""One worker's part in one run: it reads the input, claims items, attempts many at a time and settles them in batches.

One change settles what has finished, records the calls of prepared items, and claims the next ones, which are read and
rendered while the others are asked. A worker holds nothing but leases: if it dies, another worker takes its items, and
a worker that was taken for dead can settle nothing any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import Any

from agents_app import map_store
from agents_app.map_queries import has_claimable_items, last_item, load_items, load_run, run_states
from agents_app.map_store import Demand
from agents_app.maps.executor import FinishedItem, ItemExecutor, PreparedItem, StartedItem, put_back
from agents_app.maps.output import finish_run, write_output
from files_app.contents import content_size, reading
from files_app.queries import load_file_reference
from mnesis_core.config import OperatorConfig
from mnesis_core.errors import (
    BudgetExhausted,
    FileContentNotFound,
    FileReferenceNotFoundError,
    InvalidInput,
    MnesisError,
    OperatorRunNotInState,
)
from mnesis_core.maps.lines import input_lines
from mnesis_core.maps.values import ItemRecord, NewItem, RunRecord, RunState, StopReason
from mnesis_core.providers.credentials import provider_of
from sessions_app.conf import site_config
from sessions_app.database.threads import AWAY, DedicatedThread
from sessions_app.record.change import Change, change

ITEMS_A_CHANGE = 2_000


def read_input(run_id: str, *, may_go_on: Callable[[], bool]) -> None:
    """Read a run's input into items, one batch a change, from where the last worker stopped.

    The run fails if the file cannot be read. Reading stops when ``may_go_on`` returns false.
    """
    run, config = load_run(run_id), site_config().operators
    try:
        content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
        last = load_items(run.id, [last_item(run.id)[0]])
        number = last[0].number if last else 0
        after = NewItem(number=number, offset=last[0].offset, length=last[0].length) if last else None
        with reading(content_id) as read:
            size = content_size(content_id)
            lines = input_lines(read, size, after=after, line_bytes=config.line_bytes, most_items=config.most_items)
            while may_go_on():
                batch = list(islice(lines, ITEMS_A_CHANGE))
                with change(run.session_id) as record:
                    if last_item(run.id)[0] != number:
                        return  # another worker reads it
                    if batch:
                        map_store.add_items(record, run.id, batch)
                        number = batch[-1].number
                    if len(batch) < ITEMS_A_CHANGE:
                        map_store.begin_run(record, run.id, items=number)
                        return
    except (InvalidInput, FileContentNotFound, FileReferenceNotFoundError) as error:
        with suppress(OperatorRunNotInState), change(run.session_id) as record:
            map_store.fail_run(record, run_id, error)
    except OperatorRunNotInState:
        pass  # it was paused or cancelled, or another worker has read it meanwhile


IDLE_SECONDS = 0.25  # between two looks for items that others hold, or that may not be attempted yet
MOST_FAILURES = 20  # changes in a row that the database refuses, before this worker gives the run up


class Mode(Enum):
    """What a worker does with a run: go on, finish what is in flight, or cancel that too."""

    GO = auto()
    DRAIN = auto()
    CUT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """What one change did. ``later`` could not be started yet; ``lost`` items belong to another worker by now."""

    started: Sequence[StartedItem[Any]] = ()
    later: Sequence[PreparedItem[Any]] = ()
    lost: Sequence[ItemRecord] = ()
    claimed: Sequence[ItemRecord] = ()
    exhausted: BudgetExhausted | None = None


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
        self._held: dict[int, int] = {}
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

    @property
    def held(self) -> dict[int, int]:
        """The ``attempts`` of each item that this worker holds, by number."""
        return dict(self._held)

    def allow(self, permits: int) -> None:
        """Let this number of items be in flight from now on."""
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
            if self._held:
                with suppress(*AWAY, MnesisError):
                    await self._thread(self._give_back)
            await self._thread.close()

    async def _advance(self) -> bool:
        """Make one change, and start and prepare what it allows; return whether there is more to do."""
        for task in [task for task in self._in_flight if task.done()]:
            started = self._in_flight.pop(task)
            settle = partial(self._items.settle_cancelled, started)
            if not task.cancelled():
                settle = partial(self._items.settle, started, task.result())
            self._finished.append(FinishedItem(item=started.item, settle=settle))
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
            finished += [FinishedItem(item=one.item, settle=partial(put_back, one.item)) for one in self._prepared]
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
        for item in (*(one.item for one in finished), *result.lost):
            if self._held.get(item.number) == item.attempts:  # or it was lost, and claimed again since
                del self._held[item.number]
        self._held |= {item.number: item.attempts for item in result.claimed}
        self._prepared = list(result.later) + self._prepared
        return result

    def _write(self, finished: list[FinishedItem], start: list[PreparedItem[Any]], wanted: int) -> ChangeResult:
        settlements = [one.settle() for one in finished]
        if not settlements and not start and not (wanted and has_claimable_items(self.map_run.id)):
            return ChangeResult()
        with change(self.map_run.session_id) as record:
            if settlements:
                map_store.settle_items(record, self.map_run.id, worker=self._owner, settled=settlements)
            result = self._start(record, start) if start else ChangeResult()
            if result.exhausted is not None or not wanted:
                return result
            seconds = self._config.lease_seconds
            claimed = map_store.claim_items(
                record, self.map_run.id, worker=self._owner, limit=wanted, lease_seconds=seconds
            )
            return replace(result, claimed=claimed)

    def _start(self, record: Change, prepared: list[PreparedItem[Any]]) -> ChangeResult:
        numbers = [one.item.number for one in prepared]
        held = map_store.held_items(record, self.map_run.id, worker=self._owner, items=numbers)
        ours = [one for one in prepared if held.get(one.item.number) == one.item.attempts]
        lost = [one.item for one in prepared if held.get(one.item.number) != one.item.attempts]
        # A change that paused or cancelled the run held its session before this one: nothing is asked after that.
        if not ours or run_states([self.map_run.id]).get(self.map_run.id) is not RunState.RUNNING:
            return ChangeResult(later=ours, lost=lost)
        try:
            started = self._items.start(record, ours)
        except BudgetExhausted as error:
            # Nothing was written for any of them. What is in flight comes to its end, and is kept.
            map_store.set_run_state(record, self.map_run.id, RunState.PAUSED, reason=StopReason.BUDGET)
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

    def _give_back(self) -> None:
        with change(self.map_run.session_id) as record:
            map_store.give_back(record, self.map_run.id, worker=self._owner, items=list(self._held))
