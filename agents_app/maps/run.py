"""Story: the lines of a run's input become its items, a batch a change; whoever goes on begins where the last one ended."""

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
from agents_app.maps.executor import Begun, Ended, Ready, Trying, put_back
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
    """Read a run's input until its end, or until it may not go on; a file that cannot be read fails the run."""
    run = load_run(run_id)
    try:
        file = load_file_reference(run.input_file_id, session_id=run.session_id)
        _read(run, file.content_id, may_go_on)
    except (InvalidInput, FileContentNotFound, FileReferenceNotFoundError) as error:
        with suppress(OperatorRunNotInState), change(run.session_id) as record:
            map_store.fail_run(record, run_id, error)
    except OperatorRunNotInState:
        pass  # somebody paused or cancelled it, or another worker has read it meanwhile


def _read(run: RunRecord, content_id: str, may_go_on: Callable[[], bool]) -> None:
    config = site_config().operators
    last = load_items(run.id, [last_item(run.id)[0]])
    number = last[0].number if last else 0
    after = NewItem(number=number, offset=last[0].offset, length=last[0].length) if last else None
    with reading(content_id) as read:
        size = content_size(content_id)
        found = input_lines(read, size, after=after, line_bytes=config.line_bytes, most_items=config.most_items)
        while may_go_on():
            some = list(islice(found, ITEMS_A_CHANGE))
            with change(run.session_id) as record:
                if last_item(run.id)[0] != number:
                    return  # another worker reads it
                if some:
                    map_store.add_items(record, run.id, some)
                    number = some[-1].number
                if len(some) < ITEMS_A_CHANGE:
                    map_store.begin_run(record, run.id, items=number)
                    return


# Story: one worker's part in one run. It claims items, tries many at a time, and settles what came of them in batches.
#
# One change does it all: it settles what has ended, writes the calls of the items that are ready, and claims the next,
# which are read and rendered while the others are asked. Nothing is held meanwhile but a lease: whoever dies leaves items
# that another worker takes up, and a worker that was taken for dead can settle nothing any more.

IDLE_SECONDS = 0.25
"""Between two looks for items that others hold, or that may not be tried yet."""
MOST_FAILURES = 20
"""Changes in a row that the database refuses, before this worker gives the run up."""


class Mode(Enum):
    """What a worker is to do with a run."""

    GO = auto()
    DRAIN = auto()
    """Begin nothing, and wait for what is in flight."""
    CUT = auto()
    """Begin nothing, and cut off what is in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one change did."""

    begun: Sequence[Begun[Any]] = ()
    later: Sequence[Ready[Any]] = ()
    """What could not be begun yet."""
    lost: Sequence[ItemRecord] = ()
    """What somebody else has by now."""
    claimed: Sequence[ItemRecord] = ()
    exhausted: BudgetExhausted | None = None


class RunWork:
    """A run, as far as this worker works on it."""

    def __init__(self, run: RunRecord, *, owner: str, config: OperatorConfig, trying: Trying[Any, Any]) -> None:
        """:param owner: the name of this worker, which stands at what it holds"""
        self.run = run
        self._owner = owner
        self._config = config
        self._trying = trying
        self._hand = DedicatedThread()
        self._permits = 0
        self._mode = Mode.GO
        self._news = asyncio.Event()
        self._ready: list[Ready[Any]] = []
        self._flying: dict[asyncio.Task[Any], Begun[Any]] = {}
        self._done: list[Ended] = []
        self._held: dict[int, int] = {}
        """The ``attempts`` of each item that this worker has, by number."""
        self._failures = 0

    @property
    def demand(self) -> Demand:
        """What this worker wants of the run, and has."""
        spec, resting = self._trying.spec, self._trying.resting
        return Demand(
            run_id=self.run.id,
            wanted=self.run.spec.concurrency - resting if self._mode is Mode.GO else 0,
            in_flight=len(self._flying) - resting,
            concurrency=self.run.spec.concurrency,
            model=spec.alias,
            provider=provider_of(spec.litellm_model),
            owner_id=self.run.owner_id,
        )

    @property
    def held(self) -> dict[int, int]:
        """The ``attempts`` of each item that this worker has, by number."""
        return dict(self._held)

    @property
    def mode(self) -> Mode:
        """What is to be done now."""
        return self._mode

    def allow(self, permits: int) -> None:
        """Let so many items be in flight from now on."""
        if permits != self._permits:
            self._permits = permits
            self._news.set()

    def turn(self, mode: Mode) -> None:
        """Go on in another way; what was cut off stays so."""
        if mode is self._mode or self._mode is Mode.CUT:
            return
        self._mode = mode
        self._news.set()
        if mode is Mode.CUT:
            self._cut_off()

    def lose(self, items: Mapping[int, int]) -> None:
        """Somebody else has these items by now, in these tries: nobody would use what came of them here."""
        for task, begun in self._flying.items():
            if items.get(begun.ready.item.number) == begun.ready.item.attempts:
                task.cancel()

    async def go(self) -> None:
        """Work until the run is over, or until this worker is to stop and holds nothing of it any more."""
        try:
            if self.run.state is RunState.PENDING:
                await self._hand(read_input, self.run.id, may_go_on=lambda: self._mode is Mode.GO)
            while await self._step():
                await self._gather()
            await self._hand(write_output, self.run.id)
        finally:
            await self._let_go()

    async def _step(self) -> bool:
        """One change; whether there is more to do."""
        self._collect()
        written = await self._change()
        for begun in written.begun:
            self._flying[asyncio.create_task(self._trying.ask(begun))] = begun
        if self._mode is Mode.CUT:
            self._cut_off()
        ready, hopeless = await self._hand(self._trying.prepare, written.claimed)
        self._ready += ready
        self._done += hopeless
        if written.exhausted is not None:
            self.turn(Mode.DRAIN)
        if self._flying or self._ready or self._done:
            return True
        return self._mode is Mode.GO and not await self._hand(finish_run, self.run.id)

    async def _change(self) -> Written:
        """Settle, begin and claim; while the database is away for a moment nothing is lost."""
        done, begin, wanted = self._plan()
        try:
            written = await self._hand(self._write, done, begin, wanted)
        except AWAY:
            self._failures += 1
            if self._failures > MOST_FAILURES:
                raise
            self._done, self._ready = done + self._done, begin + self._ready
            await asyncio.sleep(IDLE_SECONDS * self._failures)
            return Written()
        self._failures = 0
        for item in (*(ended.item for ended in done), *written.lost):
            if self._held.get(item.number) == item.attempts:  # or it was lost, and claimed again since
                del self._held[item.number]
        self._held |= {item.number: item.attempts for item in written.claimed}
        self._ready = list(written.later) + self._ready
        return written

    def _plan(self) -> tuple[list[Ended], list[Ready[Any]], int]:
        """What the next change is to do: settle, begin and claim."""
        done, self._done = self._done, []
        if self._mode is not Mode.GO:
            done += [Ended(item=ready.item, settlement=partial(put_back, ready.item)) for ready in self._ready]
            self._ready = []
        room = max(0, self._permits - len(self._flying))
        begin, self._ready = self._ready[:room], self._ready[room:]
        wanted = max(0, self._permits - len(self._ready)) if self._mode is Mode.GO else 0
        return done, begin, wanted

    def _write(self, done: list[Ended], begin: list[Ready[Any]], wanted: int) -> Written:
        settlements = [ended.settlement() for ended in done]
        if not settlements and not begin and not (wanted and has_claimable_items(self.run.id)):
            return Written()
        with change(self.run.session_id) as record:
            if settlements:
                map_store.settle_items(record, self.run.id, worker=self._owner, settled=settlements)
            written = self._begin(record, begin) if begin else Written()
            if written.exhausted is not None:
                return written
            return replace(written, claimed=self._claim(record, wanted))

    def _claim(self, record: Change, wanted: int) -> list[ItemRecord]:
        if not wanted:
            return []
        seconds = self._config.lease_seconds
        return map_store.claim_items(record, self.run.id, worker=self._owner, limit=wanted, lease_seconds=seconds)

    def _begin(self, record: Change, begin: list[Ready[Any]]) -> Written:
        numbers = [ready.item.number for ready in begin]
        held = map_store.held_items(record, self.run.id, worker=self._owner, items=numbers)
        ready = [one for one in begin if held.get(one.item.number) == one.item.attempts]
        lost = [one.item for one in begin if held.get(one.item.number) != one.item.attempts]
        # Whoever paused or cancelled the run had its session before us: nothing is asked after that.
        if not ready or run_states([self.run.id]).get(self.run.id) is not RunState.RUNNING:
            return Written(later=ready, lost=lost)
        try:
            begun = self._trying.begin(record, ready)
        except BudgetExhausted as error:
            # Nothing was written for any of them. What is in flight comes to its end, and is kept.
            map_store.set_run_state(record, self.run.id, RunState.PAUSED, reason=StopReason.BUDGET)
            return Written(later=ready, lost=lost, exhausted=error)
        return Written(begun=begun, later=ready[len(begun) :], lost=lost)

    async def _gather(self) -> None:
        """Wait until there is something for the next change: results for a while, or all there can be; or news."""
        self._news.clear()
        if self._done:
            return
        news = asyncio.ensure_future(self._news.wait())
        try:
            idle = None if len(self._flying) >= self._permits else IDLE_SECONDS
            await asyncio.wait([*self._flying, news], timeout=idle, return_when=asyncio.FIRST_COMPLETED)
            if self._flying and not news.done():
                await asyncio.wait(self._flying, timeout=self._config.flush_seconds)
        finally:
            news.cancel()

    def _collect(self) -> None:
        for task in [task for task in self._flying if task.done()]:
            begun = self._flying.pop(task)
            judge = partial(self._trying.cut_off, begun)
            if not task.cancelled():
                judge = partial(self._trying.settle, begun, task.result())
            self._done.append(Ended(item=begun.ready.item, settlement=judge))

    def _cut_off(self) -> None:
        for task in self._flying:
            if not task.cancelling():  # twice would hit it while it ends what it has begun
                task.cancel()

    async def _let_go(self) -> None:
        """Whatever happened, nothing that this worker began goes on, and what it has is free for others."""
        self._cut_off()
        await asyncio.gather(*self._flying, return_exceptions=True)
        if self._held:
            with suppress(*AWAY, MnesisError):
                await self._hand(self._give_back)
        await self._hand.close()

    def _give_back(self) -> None:
        with change(self.run.session_id) as record:
            map_store.give_back(record, self.run.id, worker=self._owner, items=list(self._held))
