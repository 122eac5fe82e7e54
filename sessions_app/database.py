"""Database access from asyncio code that outlives a request: turns, sockets, streams.

Threads of our own, so that one slow query does not hold up every socket, and connections that are closed
when they are stale. Never the async ORM there: inside a request it is tied to the request's thread.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, connections, transaction
from psycopg_pool import PoolTimeout

P = ParamSpec("P")
R = TypeVar("R")

AWAY = (OperationalError, InterfaceError)
"""The database does not answer, is locked or is full: no fault of what was asked, which may be asked again."""

_THREADS = ThreadPoolExecutor(8, thread_name_prefix="database")
_LONG_THREADS = ThreadPoolExecutor(16, thread_name_prefix="work")


async def db(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a store or query function in a database thread and wait for it."""
    return await _run(_THREADS, call, *args, **kwargs)


async def work(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run something that takes long (a tool, a compaction) in a thread of its own kind, so that reads go on."""
    return await _run(_LONG_THREADS, call, *args, **kwargs)


class Hand:
    """One thread with connections of its own, open until ``close``: for what asks the database again and again."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hand")

    async def __call__(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a store or query function there and wait for it; one after the other."""
        in_thread = partial(contextvars.copy_context().run, partial(_keeping, call, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._thread, in_thread)

    async def close(self) -> None:
        """Close the connections and the thread, once what it does is done."""
        await asyncio.get_running_loop().run_in_executor(self._thread, connections.close_all)
        self._thread.shutdown(wait=False)


@contextmanager
def snapshot(*, using: str = "default") -> Iterator[None]:
    """One look at the database for the whole block: it sees no later write, and no writer waits for it."""
    connection = connections[using]
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "sqlite":
        # Not atomic(), which would begin IMMEDIATE and keep every writer out.
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
    else:
        with transaction.atomic(using=using), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield


async def _run(threads: ThreadPoolExecutor, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    # asgiref's own way does the same and costs several times as much, which a turn pays a dozen times.
    context = contextvars.copy_context()
    in_thread = partial(context.run, partial(_with_connections, call, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(threads, in_thread)


def _with_connections(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    _close_stale()
    try:
        return call(*args, **kwargs)
    except AWAY as error:
        drop_broken(error)
        raise
    finally:
        _close_stale()


def _keeping(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    try:
        return call(*args, **kwargs)
    except AWAY:
        connections.close_all()  # the next call gets new ones
        raise


def drop_broken(error: BaseException) -> None:
    """Where this thread's connection of a pool broke, those that wait in the pool broke with it: have new ones made."""
    if isinstance(error.__cause__, PoolTimeout):  # all are in use, and none is known to be broken
        return
    for connection in connections.all(initialized_only=True):
        pool = getattr(connection, "pool", None)
        # A transaction that could not even be rolled back has closed its connection.
        if pool is not None and (connection.connection is None or connection.connection.broken):
            pool.drain()


def _close_stale() -> None:
    """Close what no longer works, and give a pool back what is its own.

    A connection to SQLite is kept: the thread is ours and stays, and opening one costs more than what is done with it.
    """
    for connection in connections.all(initialized_only=True):
        if connection.vendor == "sqlite":
            connection.close_at = None
        connection.close_if_unusable_or_obsolete()
