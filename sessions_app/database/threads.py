"""Where threads and event loops meet: nothing waits while it holds a database connection, except for the database.

Asynchronous code that outlives a request (turns, sockets, streams) uses the database in the threads of this module, so
that one slow query does not hold up every socket; never through the async ORM, which is tied to the request's thread.

A web process has a pool of connections to PostgreSQL, which would soon be empty if each open stream kept one. So a
thread gives its connection back whenever synchronous code ends or begins to wait for asynchronous code: ``db`` and
``work``, the thread of a request (``request_thread``), ``waiting_for`` and ``in_waiting_thread``. No other module crosses from
one to the other (``banned-api`` in pyproject.toml). Synchronous code that waits for anything else calls ``give_back``.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import psycopg
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connection, connections, transaction
from psycopg_pool import PoolTimeout

P = ParamSpec("P")
R = TypeVar("R")

# The database does not answer, is locked or is full. The request is not at fault and may be repeated.
AWAY = (OperationalError, InterfaceError)

_THREADS = ThreadPoolExecutor(8, thread_name_prefix="database")
_LONG_THREADS = ThreadPoolExecutor(16, thread_name_prefix="work")
_SHIELDED: set[asyncio.Task[Any]] = set()  # an event loop alone does not keep its tasks


async def db(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a store or query function in a database thread and wait for it."""
    return await _run(_THREADS, call, *args, **kwargs)


async def work(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run something that takes long (a tool, a compaction) in a thread of another pool, so that reads go on."""
    return await _run(_LONG_THREADS, call, *args, **kwargs)


async def shielded(begin: Coroutine[Any, Any, R]) -> R:
    """Wait for something that goes on to its end even if the one who waits is cancelled, as a request is whose client goes away.

    A thread of ``db`` goes on too, so what it has committed would otherwise never be followed by what has to come next.
    """
    task = asyncio.create_task(begin)
    _SHIELDED.add(task)
    task.add_done_callback(_SHIELDED.discard)
    return await asyncio.shield(task)


def waiting_for(call: Callable[P, Awaitable[R]], *, own_loop: bool = False) -> Callable[P, R]:
    """Return an asynchronous function for synchronous code, which holds no pooled connection while it waits."""

    def wait(*args: P.args, **kwargs: P.kwargs) -> R:
        give_back()
        return async_to_sync(call, force_new_loop=own_loop)(*args, **kwargs)

    return wait


def in_waiting_thread(call: Callable[P, R]) -> Callable[P, Awaitable[R]]:
    """Return a store function for asynchronous code below ``waiting_for``; it runs in the thread that waits."""
    return sync_to_async(partial(_giving_back, call))


@asynccontextmanager
async def request_thread() -> AsyncIterator[None]:
    """Run the synchronous code of the block in one thread, which has a pooled connection only while it runs."""
    thread = _RequestThread(1, thread_name_prefix="request")
    try:
        async with ThreadSensitiveContext(executor=thread):
            yield
    finally:
        thread.shutdown(wait=False)


class _RequestThread(ThreadPoolExecutor):
    def submit(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return super().submit(partial(_giving_back, call, *args, **kwargs))


def give_back() -> None:
    """Give connections back to the pool before a wait that is not for the database; a transaction keeps its own."""
    for own in connections.all(initialized_only=True):
        # Django would close one in the middle of its transaction.
        if getattr(own, "pool", None) and not own.in_atomic_block:
            own.close_if_unusable_or_obsolete()


@contextmanager
def beside_the_pool() -> Iterator[None]:
    """Let this thread use separate connections in the block, without waiting for the pool; they are closed at its end."""
    own = connections.create_connection(DEFAULT_DB_ALIAS)
    options = {name: value for name, value in own.settings_dict["OPTIONS"].items() if name != "pool"}
    own.settings_dict = own.settings_dict | {"OPTIONS": options}
    connections[DEFAULT_DB_ALIAS] = own
    try:
        yield
    finally:
        connections.close_all()
        del connections[DEFAULT_DB_ALIAS]


class DedicatedThread:
    """A thread with its own connections, open until ``close``, for code that uses the database again and again."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hand")

    async def __call__(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a store or query function in the thread, one after the other, and wait for it."""

        def in_thread() -> R:
            try:
                return call(*args, **kwargs)
            except AWAY:
                connections.close_all()  # the next call gets new ones
                raise

        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, context.run, in_thread)

    async def close(self) -> None:
        """Close the connections and the thread once its work is done."""
        await asyncio.get_running_loop().run_in_executor(self._thread, connections.close_all)
        self._thread.shutdown(wait=False)


@contextmanager
def snapshot(*, using: str = "default") -> Iterator[None]:
    """Show the block one state of the database: it sees no later write, and no writer waits for it."""
    own = connections[using]
    if own.in_atomic_block:
        yield
    elif own.vendor == "sqlite":
        # Not atomic(), which would begin IMMEDIATE and keep every writer out.
        with own.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
    else:
        with transaction.atomic(using=using), own.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield


async def _run(threads: ThreadPoolExecutor, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    def in_thread() -> R:
        _close_stale()
        try:
            return call(*args, **kwargs)
        except AWAY as error:
            drop_broken(error)
            raise
        finally:
            _close_stale()

    # asgiref does the same at several times the cost, which a turn pays a dozen times.
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(threads, context.run, in_thread)


def connection_arguments() -> dict[str, Any]:
    """Return the arguments with which Django connects to PostgreSQL, for another connection of psycopg."""
    arguments = connection.get_connection_params()
    return {name: value for name, value in arguments.items() if name not in ("context", "cursor_factory")}


def _giving_back(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    try:
        return call(*args, **kwargs)
    finally:
        give_back()


def drop_broken(error: BaseException) -> None:
    """Have a pool replace its connections if this thread's pooled connection broke: the others broke with it."""
    if isinstance(error.__cause__, PoolTimeout):  # all are in use, and none is known to be broken
        return
    for own in connections.all(initialized_only=True):
        pool = getattr(own, "pool", None)
        # A transaction that could not even be rolled back has closed its connection.
        if pool is not None and (own.connection is None or own.connection.broken):
            pool.drain()


def _close_stale() -> None:
    for own in connections.all(initialized_only=True):
        if own.vendor == "sqlite":
            own.close_at = None  # kept, because opening a connection costs more than most calls, and the thread stays
        own.close_if_unusable_or_obsolete()


# ``mnesis_site.database_url`` imports this module while the settings are read: at import nothing here may use them.


class ServerUnreachable(psycopg.OperationalError):
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


_IMPORT_LOCK = Lock()
_LOADED: dict[str, ModuleType] = {}


async def load(name: str) -> ModuleType:
    """Import a module that needs a large package, in a thread and at the first call only."""

    # Never two at a time: modules of some packages (the MCP SDK) import each other in circles, and two threads that enter
    # such a circle at different places deadlock, which Python breaks with an ImportError.
    def import_alone() -> ModuleType:
        with _IMPORT_LOCK:
            return _LOADED.setdefault(name, import_module(name))

    return _LOADED[name] if name in _LOADED else await asyncio.to_thread(import_alone)
