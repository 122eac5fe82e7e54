"""What a web process's PostgreSQL pool does when no connection can be made. Settings import it: no framework here."""

from __future__ import annotations

from typing import Any

from psycopg import OperationalError


class ServerUnreachable(OperationalError):
    """No connection could be made, so the database received nothing."""


def fail_waiting(pool: Any) -> None:
    """Fail the pending requests for a connection if the pool has none left that could be returned.

    Otherwise each of them waits for the pool's whole timeout, which is meant for a busy pool.
    """
    if pool.get_stats()["pool_size"] > 0:
        return
    with pool._lock:
        waiting = list(pool._waiting)
        pool._waiting.clear()
    for client in waiting:
        client.fail(ServerUnreachable("the server cannot be reached"))
