"""On PostgreSQL a test's threads keep their connections until its end, as a web process does by its pool.

Without a pool each look at the database would open a connection of its own, which costs both sides more than the look.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

_kept: list[BaseDatabaseWrapper] = []


@contextmanager
def kept_connections() -> Iterator[None]:
    """Keep what other threads than the test's own open meanwhile, and close it at the end."""
    connection_created.connect(_keep)
    try:
        yield
    finally:
        connection_created.disconnect(_keep)
        _close_all()


@contextmanager
def new_connections() -> Iterator[None]:
    """For the length of the block keep none after all: what is tried here happens to each new one."""
    was_connected = connection_created.disconnect(_keep)
    _close_all()
    try:
        yield
    finally:
        if was_connected:
            connection_created.connect(_keep)


def _keep(connection: Any, **_: object) -> None:
    is_the_tests_own = threading.current_thread() is threading.main_thread()
    if connection.vendor != "postgresql" or is_the_tests_own:
        return
    connection.close_at = None
    _kept.append(connection)


def _close_all() -> None:
    while _kept:
        connection = _kept.pop()
        connection.inc_thread_sharing()
        connection.close()
