"""What a web process's pool of PostgreSQL connections does when none can be made. For the settings: imports no framework."""

from __future__ import annotations

from typing import Any

from psycopg import OperationalError


class ServerUnreachable(OperationalError):
    """No connection could be made, so nothing was asked of the database."""


def fail_waiting(pool: Any) -> None:
    """Tell those who wait for a connection that none comes, where none is left whose return they could wait for.

    Without it each of them waits for the pool's whole timeout, which is made for a pool that is busy.
    """
    if pool.get_stats()["pool_size"] > 0:
        return
    with pool._lock:
        waiting = list(pool._waiting)
        pool._waiting.clear()
    for client in waiting:
        client.fail(ServerUnreachable("the server cannot be reached"))
