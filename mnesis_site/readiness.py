"""What a server needs to do its work, and which of it is missing."""

from __future__ import annotations

import logging
import socket

import redis
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from django_q.conf import Conf
from django_q.status import Stat

from compaction_app.queries import longest_wait
from sessions_app.grants import connection_differences, grant_differences
from sessions_app.guards import guard_differences
from sessions_app.search_checks import index_differences

logger = logging.getLogger(__name__)


def missing_parts() -> dict[str, list[str]]:
    """Sentences on what is missing, by part: ``database``, ``migrations``, ``guards``, ``index``, ``worker``. Empty when ready."""
    try:
        found = {
            "migrations": unapplied_migrations(),
            "guards": unguarded(),
            "index": index_differences(connection),
            "worker": missing_worker(),
        }
    except DatabaseError:
        # In the log, not in the answer: it may name hosts and accounts, and anybody may ask.
        logger.exception("The database does not answer")
        return {"database": ["The database does not answer. The server's log says why."]}
    return {part: sentences for part, sentences in found.items() if sentences}


def unguarded() -> list[str]:
    """What the record's guards are against what they should be; nobody should be served while they differ."""
    return [
        *guard_differences(connection),
        *grant_differences(connection),
        *connection_differences(connection),
    ]


def report_unguarded() -> None:
    """Put it into the log: for a server that was started without 'manage.py up', which would have refused."""
    try:
        sentences = unguarded()
    except DatabaseError:
        logger.exception("The database does not answer")
        return
    if sentences:
        logger.error("%s /readyz lists all (%d) and answers 503 until then.", sentences[0], len(sentences))


def unapplied_migrations() -> list[str]:
    """The names of the migrations that 'manage.py migrate' would apply."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name} is not applied" for migration, _backwards in plan]


def worker_gives_sign(pid: int) -> bool:
    """Whether the worker cluster of this process id says that it lives; also while nobody could hear it."""
    try:
        return any(stat.pid == pid and stat.host == socket.gethostname() for stat in Stat.get_all())
    except redis.RedisError:
        return True


def waiting() -> dict[str, int]:
    """Seconds that the oldest piece of work has waited for a worker, by its kind; empty when nothing waits."""
    seconds = longest_wait(timezone.now())
    return {} if seconds is None else {"compaction": int(seconds)}


def missing_worker() -> list[str]:
    """A worker cluster says every half second that it lives, and its word holds for three seconds."""
    try:
        alive = [stat for stat in Stat.get_all() if stat.status in (Conf.IDLE, Conf.WORKING)]
    except redis.RedisError:
        logger.exception("Redis does not answer")
        return ["Redis does not answer, where workers say that they live. The server's log says why."]
    return [] if alive else ["No worker runs. 'manage.py up' starts one; 'manage.py qcluster' is one alone."]
