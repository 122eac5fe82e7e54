"""Tasks of the worker. A task may run twice or late: the rows say what is to be done."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from django_q.tasks import async_task

from agents_app.maps.worker import TASK as MAP
from agents_app.maps.worker import work_for_a_slice, worker_slot
from agents_app.schedule import is_cluster_stopping, most_workers, wake_workers
from agents_app.turns.lifecycle import FORK_TASK, finish_fork
from mnesis_core.actor import Actor, read_actor
from mnesis_core.errors import Conflict, SessionNotFoundError
from sessions_app.record.actor import acting_as

# How long one task of a long fork lasts. The worker then makes room for others, well within its own time limit.
FORK_SECONDS = 60.0


def work(**_later: Any) -> None:
    """Work on operators' runs for a slice of time, unless enough workers of this machine do, and queue the rest."""
    with acting_as(Actor().later(MAP)), worker_slot(most_workers()) as is_free:
        is_more = is_free and work_for_a_slice(must_stop=is_cluster_stopping)
    if is_more:
        wake_workers(1)


def fork(fork_id: str, *, actor: str = "", **_later: Any) -> None:
    """Copy a part of a long fork, and queue the rest, unless another worker copies it or it was deleted."""
    with acting_as(read_actor(actor).later("fork")), suppress(Conflict, SessionNotFoundError):
        if not finish_fork(fork_id, deadline=time.monotonic() + FORK_SECONDS):
            async_task(FORK_TASK, fork_id, actor=actor)
