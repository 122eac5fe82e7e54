"""Ask workers to work on the runs of operators. A wake-up, not the truth: what is to be done says each run's row.

A worker that is woken looks after all runs there are, so a wake-up names none, and one too many ends at once.
"""

from __future__ import annotations

import logging
import os

from django.conf import settings
from django.db import DatabaseError, connections
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.status import Stat
from django_q.tasks import async_task

from agents_app.map_queries import has_forsaken_runs, live_runs
from sessions_app.database.outages import log_failure

logger = logging.getLogger(__name__)
TASK = "agents_app.tasks.work"
LONGEST_SECONDS = 600.0
"""A worker makes room for others after so long at the latest, but for what it still waits for."""
TASK_SECONDS = 3_600
"""A worker that takes longer is killed by the cluster: it hangs."""


def most_workers() -> int:
    """How many workers of one cluster may work on runs at a time: one is always left for what people wait for."""
    return max(1, int(str(settings.Q_CLUSTER["workers"])) - 1)


def wake_workers(count: int | None = None) -> None:
    """Queue so many wake-ups, or one for each worker that may work on runs, in the caller's transaction if there is one."""
    for _ in range(most_workers() if count is None else count):
        # The broker's queue is a table of this database, so a wake-up commits with what it is for or not at all.
        async_task(TASK, timeout=TASK_SECONDS)


def wake_for_forsaken() -> bool:
    """Queue wake-ups where there is work that nobody does, and none are queued; whether there were any."""
    if not has_forsaken_runs() or is_queued():
        return False
    wake_workers()
    return True


def wake_in_new_worker(**_signal: object) -> None:
    """Queue a wake-up if any run is live: a new worker may have taken the place of one that died over it."""
    try:
        if live_runs() and not is_queued():
            wake_workers(1)
    except DatabaseError as error:
        log_failure(logger, "A new worker could not look for runs; the next sweep does", error)
    finally:
        connections.close_all()


def is_queued() -> bool:
    """Whether a wake-up waits in the queue."""
    return any(_is_ours(row) for row in OrmQ.objects.filter(lock__lte=timezone.now()).order_by("id")[:_LOOK_AT])


def is_cluster_stopping() -> bool:
    """Whether the cluster whose worker this process is has been told to stop: it waits for us, and not for long."""
    return any(os.getpid() in stat.workers and stat.status == Conf.STOPPING for stat in Stat.get_all())


def must_make_room() -> bool:
    """Whether a worker that works on runs keeps others of the queue waiting: only where there is no other worker."""
    if int(str(settings.Q_CLUSTER["workers"])) > most_workers():
        return False
    return any(not _is_ours(row) for row in OrmQ.objects.order_by("-id")[:_LOOK_AT])


_LOOK_AT = 200
"""Rows of the queue."""


def _is_ours(row: OrmQ) -> bool:
    return bool(row.func() == TASK)
