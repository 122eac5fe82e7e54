"""The turns that run in this process: asyncio tasks of their own, detached from whoever asked (decision 11)."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import secrets
import socket
import time

from agents_app.recovery import recover_turns
from agents_app.turns import run_turn
from compaction_app.schedule import wake_stale
from mnesis_core.errors import AtCapacity
from mnesis_core.record import TurnRecord
from sessions_app import store
from sessions_app.conf import site_config
from sessions_app.database import db

SWEEP_SECONDS = 5.0
logger = logging.getLogger(__name__)


class Runner:
    """Starts turns, keeps their leases, passes on interrupts, and ends them all at shutdown."""

    def __init__(self) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._heart: asyncio.Task[None] | None = None
        self._swept_at = 0.0
        self._interrupted: set[str] = set()
        self._is_stopping = False

    def check_capacity(self) -> None:
        """:raises AtCapacity: as many turns run here as may."""
        if len(self._tasks) >= site_config().turn.capacity:
            raise AtCapacity()

    def start(self, turn: TurnRecord) -> None:
        """Set a claimed turn going. The task belongs to this runner, not to the caller."""
        # An empty context: a request's own must not outlive it (asgiref keeps the request's thread there).
        task = asyncio.get_running_loop().create_task(
            run_turn(turn, is_shutdown=lambda: self._is_stopping), name=turn.id, context=contextvars.Context()
        )
        self._tasks[turn.id] = task
        task.add_done_callback(lambda _: self._forget(turn.id))
        self.beat()

    def _forget(self, turn_id: str) -> None:
        self._tasks.pop(turn_id, None)
        self._interrupted.discard(turn_id)

    def beat(self) -> None:
        """Start the heart, if it does not beat: leases, interrupts, and the sweep for what others left behind."""
        loop = asyncio.get_running_loop()
        if self._heart is None or self._heart.done() or self._heart.get_loop() is not loop:
            self._heart = loop.create_task(self._run_heart(), name="turn heartbeat", context=contextvars.Context())

    async def wait(self, turn_id: str) -> None:
        """Wait until a turn that runs here has ended."""
        if task := self._tasks.get(turn_id):
            await asyncio.wait([task])

    async def shutdown(self) -> None:
        """Cancel every turn and wait until each has written what it has."""
        self._is_stopping = True
        if self._heart is not None:
            self._heart.cancel()
        tasks = list(self._tasks.values())
        for turn_id, task in self._tasks.items():
            if turn_id not in self._interrupted:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)
        self._is_stopping = False

    async def _run_heart(self) -> None:
        config = site_config().turn
        while True:
            try:
                await self._beat_once(config.lease_seconds)
            except Exception:
                # A database that is away for a moment must not stop the heart; the lease has slack for it.
                logger.exception("the heartbeat of the turns failed and tries again")
            await asyncio.sleep(config.heartbeat_seconds if self._tasks else SWEEP_SECONDS)

    async def _beat_once(self, lease_seconds: float) -> None:
        if self._tasks:
            wanted = await db(
                store.renew_leases,
                lease_owner=self.owner,
                turn_ids=list(self._tasks),
                lease_seconds=lease_seconds,
            )
            # Once only: a second cancellation would hit the turn while it writes what it has.
            for turn_id in wanted - self._interrupted:
                if task := self._tasks.get(turn_id):
                    self._interrupted.add(turn_id)
                    task.cancel()
        if time.monotonic() - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            await db(recover_turns, lease_owner=self.owner)
            await db(wake_stale)


runner = Runner()
