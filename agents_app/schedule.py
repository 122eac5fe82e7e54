"""Wake workers for the runs of operators. A wake-up is only a hint: the rows of the runs say what is to be done.

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

from agents_app.queries import has_forsaken_runs, live_runs
from sessions_app.database.outages import log_failure

logger = logging.getLogger(__name__)
TASK = "agents_app.tasks.work"
LONGEST_SECONDS = 600.0  # after this a worker begins no more items, so that other tasks get their turn
TASK_SECONDS = 3_600  # a worker that takes longer hangs, and the cluster kills it
LOOK_AT = 200


def most_workers() -> int:
    # One worker of a cluster always stays free for what people wait for.
    return max(1, int(str(settings.Q_CLUSTER["workers"])) - 1)


def wake_workers(count: int | None = None) -> None:
    """Queue so many wake-ups, or one for each worker that may work on runs, in the caller's transaction if there is one."""
    for _ in range(most_workers() if count is None else count):
        # The broker's queue is a table of this database, so a wake-up commits with what it is for or not at all.
        async_task(TASK, timeout=TASK_SECONDS)


def wake_for_forsaken() -> bool:
    """Queue wake-ups if no worker works on some run and no wake-up waits; return whether any was queued."""
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
    rows = OrmQ.objects.filter(lock__lte=timezone.now()).order_by("id")
    return any(row.func() == TASK for row in rows[:LOOK_AT])


def is_cluster_stopping() -> bool:
    """Return whether this worker's cluster is stopping: it waits for its workers, and not for long."""
    return any(os.getpid() in stat.workers and stat.status == Conf.STOPPING for stat in Stat.get_all())


def must_make_room() -> bool:
    """Return whether other tasks wait in the queue that only this worker can run."""
    if int(str(settings.Q_CLUSTER["workers"])) > most_workers():
        return False
    return any(row.func() != TASK for row in OrmQ.objects.order_by("-id")[:LOOK_AT])
