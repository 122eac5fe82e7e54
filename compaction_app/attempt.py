"""One process's go at a compaction: claimed, held under a lease, and fenced, so that no other one's work is disturbed.

A process may be killed at any line, or be paused for longer than its lease. Then another one takes the compaction over
and goes on from what is committed; the first can write nothing any more and stops asking its model.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from django.utils import timezone

from compaction_app import store
from compaction_app.context import load_state, meter_of
from compaction_app.queries import is_free_to_claim
from sessions_app.database import AWAY, db
from sessions_app.ledger import Change, change

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A claimed compaction."""

    run_id: str
    session_id: str
    fence: int
    lease_seconds: float

    @contextmanager
    def held(self) -> Iterator[Change]:
        """A change of the session, if the compaction is still ours.

        :raises TakenOver: it is not.
        """
        with change(self.session_id) as record:
            store.require_run(record, self.run_id, fence=self.fence)
            yield record

    def renew(self) -> None:
        """Begin the lease anew, before a long step.

        :raises TakenOver: it is not ours any more.
        """
        store.renew_run(self.run_id, fence=self.fence, lease_seconds=self.lease_seconds)

    async def asking(self, question: Coroutine[Any, Any, T]) -> T:
        """Ask a model, nothing held, however long that takes, and keep the lease meanwhile.

        :raises TakenOver: it was lost all the same; the model is not asked any further, since nobody would use it.
        """
        asked = asyncio.ensure_future(question)
        keeper = asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait({asked, keeper}, return_when=asyncio.FIRST_COMPLETED)
            if keeper.done():
                keeper.result()
            return await asked
        finally:
            for task in (asked, keeper):
                task.cancel()
            await asyncio.gather(asked, keeper, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.lease_seconds / 3)
            # A database that is away for a moment; if it stays away, the next write says so.
            with suppress(*AWAY):
                await db(self.renew)


def claim(session_id: str, run_id: str) -> Attempt | None:
    """Take a compaction up; ``None`` if it has ended, or if another process is at it and alive.

    :raises SessionNotFoundError: there is no such session.
    """
    if not is_free_to_claim(run_id, timezone.now(), session_id=session_id):
        return None
    state = load_state(session_id)
    lease_seconds = state.config.compaction.lease_seconds
    with change(session_id) as record:
        fence = store.claim_run(
            record,
            run_id,
            lease_owner=f"{socket.gethostname()}:{os.getpid()}",
            lease_seconds=lease_seconds,
            tokens_before=meter_of(state).used_tokens,
        )
    if fence is None:
        return None
    return Attempt(run_id=run_id, session_id=session_id, fence=fence, lease_seconds=lease_seconds)
