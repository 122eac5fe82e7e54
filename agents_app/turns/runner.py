"""The turns that run in this process: their tasks, leases and places, and the sweep for what other processes left."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from agents_app.queries import waiting_sessions
from agents_app.schedule import wake_for_forsaken
from agents_app.tools.registry import close_connections
from agents_app.turns.claim import claim_waiting, recover_turns
from agents_app.turns.leaving import end_temporary_chats
from agents_app.turns.loop import Passing, run_turn
from compaction_app.compact import wake_stale
from mnesis_core.actor import read_actor
from mnesis_core.errors import AtCapacity, SessionNotFoundError, TooManyTurns
from mnesis_core.providers import passing
from mnesis_core.records import TurnRecord
from sessions_app.conf import site_config
from sessions_app.database.outages import log_failure
from sessions_app.database.threads import db
from sessions_app.record import session_store, turn_store
from sessions_app.record.actor import SYSTEM, context_of
from sessions_app.record.lease import Heartbeat, new_owner
from sessions_app.record.turn_queries import interrupted_turns
from sessions_app.search import vector_store

logger = logging.getLogger(__name__)
# Between heartbeats of the leases, or a quarter of the lease if that is less: a session may have a shorter one.
RENEW_SECONDS = 1.0
SWEEP_SECONDS = 5.0
SESSIONS_A_SWEEP = 50  # with waiting messages, at the most: leases must not wait long for them
LATER_SECONDS = 5  # in ``Retry-After``, for a person with too many turns: no one knows when one of them ends


class Runner:
    def __init__(self) -> None:
        self._owner, self._owner_pid = "", 0
        self._tasks: dict[str, asyncio.Task[bool]] = {}
        self._heartbeat: asyncio.Task[None] | None = None
        self.takes_messages = False  # sessions in host mode live only in a process that stays, such as a web server
        self._called = asyncio.Event()
        self._due: set[str] = set()
        self._looked_up_to = ""
        self._swept_at = 0.0
        self._interrupted: set[str] = set()
        self._is_stopping = False
        self._permits: Counter[int | None] = Counter()
        self._owners: dict[str, int] = {}  # the owner of each turn that counts towards its person's limit
        self._without_slot: Counter[str] = Counter()  # turns that take no slot, and for how many reasons
        self.waiting: set[str] = set()  # turns that wait for the run of a map, and ask no model meanwhile
        self._leases = Heartbeat(
            "leases",
            held=lambda: list(self._tasks),
            renew=lambda turn_ids: turn_store.renew_leases(
                lease_owner=self.owner, turn_ids=turn_ids, lease_seconds=site_config().turn.lease_seconds
            ),
            seconds=lambda: min(RENEW_SECONDS, site_config().turn.lease_seconds / 4),
        )

    @property
    def owner(self) -> str:
        # A forked process must not hold turns under its parent's name.
        if self._owner_pid != os.getpid():
            self._owner, self._owner_pid = new_owner(), os.getpid()
        return self._owner

    @contextmanager
    def permit(self, owner_id: int | None = None) -> Iterator[None]:
        """Reserve room for one more turn while it is claimed and started.

        :param owner_id: the person whose limit it counts towards, if any
        :raises AtCapacity: as many turns run here as may.
        :raises TooManyTurns: as many of this person's.
        """
        config = site_config().turn
        if len(self._tasks.keys() - self._without_slot.keys()) + self._permits.total() >= config.capacity:
            raise AtCapacity()
        if owner_id is not None:
            running = sum(owner == owner_id for owner in self._owners.values()) + self._permits[owner_id]
            if running >= config.most_at_once:
                raise TooManyTurns(limit=config.most_at_once, retry_after=LATER_SECONDS)
        self._permits[owner_id] += 1
        try:
            yield
        finally:
            self._permits -= Counter([owner_id])

    @contextmanager
    def release_slot(self, turn_id: str) -> Iterator[None]:
        self._without_slot[turn_id] += 1
        try:
            yield
        finally:
            self._without_slot -= Counter([turn_id])

    @contextmanager
    def mark_waiting(self, turn_id: str) -> Iterator[None]:
        self.waiting.add(turn_id)
        try:
            yield
        finally:
            self.waiting.discard(turn_id)

    def has(self, turn_id: str) -> bool:
        return turn_id in self._tasks

    def start(
        self,
        turn: TurnRecord,
        *,
        is_resumed: bool = False,
        owner_id: int | None = None,
        passing: Passing | None = None,
    ) -> None:
        """Start a claimed turn. The task belongs to this runner, not to the caller; ``owner_id`` is as for ``permit``.

        :param passing: the call of a request through the gateway
        """
        actor = read_actor(turn.actor)
        # A context of its own: a request's must not outlive it (asgiref keeps the request's thread there).
        task = asyncio.get_running_loop().create_task(
            run_turn(turn, is_resumed=is_resumed, is_shutdown=lambda: self._is_stopping, passing=passing),
            name=turn.id,
            context=context_of(actor.later("turn") if is_resumed else actor),
        )
        self._tasks[turn.id] = task
        if owner_id is not None:
            self._owners[turn.id] = owner_id
        self._leases.start()

        def forget(task: asyncio.Task[bool]) -> None:
            if not task.cancelled() and task.result():
                self.check_inbox(turn.session_id)
            # A turn that was suspended here may have been resumed before its first task came to its last line.
            if self._tasks.get(turn.id) is task:
                del self._tasks[turn.id]
                self._owners.pop(turn.id, None)
                self._interrupted.discard(turn.id)
            if not self._tasks:
                self._leases.stop()

        task.add_done_callback(forget)
        self.start_heartbeat()

    def check_inbox(self, session_id: str) -> None:
        if self.takes_messages and not self._is_stopping:
            self._due.add(session_id)
            self.start_heartbeat()
            self._called.set()

    def start_heartbeat(self) -> None:
        loop = asyncio.get_running_loop()
        if self._heartbeat is None or self._heartbeat.done() or self._heartbeat.get_loop() is not loop:
            self._called = asyncio.Event()
            context = context_of(SYSTEM)
            self._heartbeat = loop.create_task(self._run_heartbeat(), name="turn heartbeat", context=context)

    async def wait(self, turn_id: str) -> None:
        if task := self._tasks.get(turn_id):
            await asyncio.wait([task])

    def interrupt(self, turn_id: str) -> None:
        if (task := self._tasks.get(turn_id)) and turn_id not in self._interrupted:
            self._interrupted.add(turn_id)
            task.cancel()

    async def shutdown(self) -> None:
        self._is_stopping = True
        self._due.clear()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        tasks = list(self._tasks.values())
        for turn_id in self._tasks:
            self.interrupt(turn_id)
        if tasks:
            await asyncio.wait(tasks, timeout=10)
        await close_connections()
        await passing.close_connections()
        self._is_stopping = False

    async def _run_heartbeat(self) -> None:
        config = site_config().turn
        while True:
            try:
                await self._beat()
            except Exception as error:
                # A database that is away for a moment must not stop the heartbeat; the lease has slack for it.
                log_failure(logger, "The heartbeat of the turns failed and tries again", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(config.heartbeat_seconds if self._tasks else SWEEP_SECONDS):
                    await self._called.wait()
            self._called.clear()

    async def _beat(self) -> None:
        if self._tasks:
            for turn_id in await db(interrupted_turns, list(self._tasks)):
                self.interrupt(turn_id)
        if time.monotonic() - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            await db(
                recover_turns,
                lease_owner=self.owner,
                # A turn that is being claimed has no task yet, and may be any.
                runs_here=lambda turn_id: self.has(turn_id) or self._permits.total() > 0,
            )
            await db(end_temporary_chats)
            await db(wake_stale)
            await db(wake_for_forsaken)
            await db(vector_store.waker.wake)
            await db(session_store.recorder.look)
            if self.takes_messages:
                # The next sessions for which messages wait: each comes round, however many cannot begin.
                found = await db(waiting_sessions, after=self._looked_up_to, limit=SESSIONS_A_SWEEP)
                self._looked_up_to = found[-1] if len(found) == SESSIONS_A_SWEEP else ""
                self._due |= set(found)
        while self._due:
            await self._take_messages(self._due.pop())

    async def _take_messages(self, session_id: str) -> None:
        try:
            with self.permit():
                turn = await db(claim_waiting, session_id, lease_owner=self.owner)
                if turn is not None:
                    self.start(turn)
        except (AtCapacity, SessionNotFoundError):
            pass  # in the latter case it was deleted meanwhile
        except Exception as error:
            log_failure(logger, "Messages that wait for a session were not taken", error)


runner = Runner()
