"""The queue's broker: its rows are in our database, and a database that is away is waited for."""

from __future__ import annotations

import logging
from time import sleep
from typing import Any

import redis
from django.db import close_old_connections, connections
from django.db.models import QuerySet
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

from sessions_app.database.outages import log_outage
from sessions_app.database.threads import AWAY

AWAY_SECONDS = 1.0
"""Between two looks at a database that is away."""
UNHEARD = (redis.RedisError, OSError)
"""The place of the signs of life cannot be read or written: Redis is away, or the disk is full."""
logger = logging.getLogger(__name__)


class Broker(ORM):  # type: ignore[misc]
    """The library's broker, except that its processes survive an outage and open no connection before they need it."""

    @staticmethod
    def get_connection(list_key: str | None = None) -> QuerySet[OrmQ]:
        """The queue's rows; opens no connection, so that a cluster can start before its database."""
        if not connections[Conf.ORM].in_atomic_block:
            close_old_connections()
        rows: QuerySet[OrmQ] = OrmQ.objects.using(Conf.ORM)
        return rows

    def dequeue(self) -> list[tuple[int, str]] | None:
        """The next jobs; none while the database is away."""
        try:
            found: list[tuple[int, str]] | None = super().dequeue()
        except AWAY as error:
            log_outage(logger, "No jobs are taken: the database does not answer", error)
            connections.close_all()
            sleep(AWAY_SECONDS)
            return None
        return found

    def acknowledge(self, task_id: int) -> None:
        """Take a finished job out of the queue. If that fails the job runs once more, which is harmless."""
        try:
            super().acknowledge(task_id)
        except AWAY as error:
            log_outage(logger, "A job that is done stays in the queue: the database does not answer", error)
            connections.close_all()

    def set_stat(self, key: str, value: str, timeout: int) -> Any:
        """Say that a cluster lives."""
        try:
            return super().set_stat(key, value, timeout)
        except UNHEARD as error:
            log_outage(logger, "The worker cannot say that it lives", error)
            return None

    def get_stats(self, pattern: str) -> list[str]:
        """Return what clusters reported, or nothing while the database is away. Unlike the library's own, it writes nothing."""
        try:
            return list(self.cache.get_many(self.cache.get(Conf.Q_STAT) or []).values())
        except UNHEARD as error:
            log_outage(logger, "Whether workers live cannot be read", error)
            return []
