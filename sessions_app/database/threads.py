"""Where threads and event loops meet: nobody waits for anything else with a database connection in hand.

Asyncio code that outlives a request (turns, sockets, streams) asks the database in threads of our own, so that one slow
query does not hold up every socket; never by the async ORM, which is tied to the request's thread.

A web process has a pool of connections to PostgreSQL, which would be empty as soon as each open stream kept one. So a
thread gives its connection back whenever synchronous code ends or begins to wait for asynchronous code: ``db`` and
``work``, the thread of a request (``request_thread``), ``waiting_for`` and ``in_waiting_thread``. Nobody else crosses from
one to the other (``banned-api`` in pyproject.toml). Synchronous code that waits for something else gives it back itself (``give_back``).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connection, connections, transaction
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


def waiting_for(call: Callable[P, Awaitable[R]], *, own_loop: bool = False) -> Callable[P, R]:
    """An asynchronous function for synchronous code, which holds no pooled connection while it waits."""

    def wait(*args: P.args, **kwargs: P.kwargs) -> R:
        give_back()
        return async_to_sync(call, force_new_loop=own_loop)(*args, **kwargs)

    return wait


def in_waiting_thread(call: Callable[P, R]) -> Callable[P, Awaitable[R]]:
    """A store function for asynchronous code below ``waiting_for``: it runs in the thread that waits for that code."""
    return sync_to_async(partial(_giving_back, call))


@asynccontextmanager
async def request_thread() -> AsyncIterator[None]:
    """The thread in which the block's synchronous code runs: it has a pool's connection only while it runs."""
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
    """Give a pool its connections back, before a wait that is not for the database; a transaction keeps its own."""
    for own in connections.all(initialized_only=True):
        # Django would close one in the middle of its transaction.
        if getattr(own, "pool", None) and not own.in_atomic_block:
            own.close_if_unusable_or_obsolete()


@contextmanager
def beside_the_pool() -> Iterator[None]:
    """Let this thread have connections of its own for the block, for which it waits for nobody; closed at its end."""
    own = connections.create_connection(DEFAULT_DB_ALIAS)
    options = {name: value for name, value in own.settings_dict["OPTIONS"].items() if name != "pool"}
    own.settings_dict = own.settings_dict | {"OPTIONS": options}
    connections[DEFAULT_DB_ALIAS] = own
    try:
        yield
    finally:
        connections.close_all()
        del connections[DEFAULT_DB_ALIAS]


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
    # asgiref's own way does the same and costs several times as much, which a turn pays a dozen times.
    context = contextvars.copy_context()
    in_thread = partial(context.run, partial(_with_connections, call, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(threads, in_thread)


def connection_arguments() -> dict[str, Any]:
    """What Django connects to PostgreSQL with, for a connection beside its own (of psycopg, also an asynchronous one)."""
    arguments = connection.get_connection_params()
    return {name: value for name, value in arguments.items() if name not in ("context", "cursor_factory")}


def _with_connections(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    _close_stale()
    try:
        return call(*args, **kwargs)
    except AWAY as error:
        drop_broken(error)
        raise
    finally:
        _close_stale()


def _giving_back(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    try:
        return call(*args, **kwargs)
    finally:
        give_back()


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
    for own in connections.all(initialized_only=True):
        pool = getattr(own, "pool", None)
        # A transaction that could not even be rolled back has closed its connection.
        if pool is not None and (own.connection is None or own.connection.broken):
            pool.drain()


def _close_stale() -> None:
    """Close what no longer works, and give a pool back what is its own.

    A connection to SQLite is kept: the thread is ours and stays, and opening one costs more than what is done with it.
    """
    for own in connections.all(initialized_only=True):
        if own.vendor == "sqlite":
            own.close_at = None
        own.close_if_unusable_or_obsolete()


# Importing what takes seconds only when it is needed, beside everything else that goes on.

_ONE_AT_A_TIME = Lock()
_LOADED: dict[str, ModuleType] = {}


async def load(name: str) -> ModuleType:
    """A module of ours that needs a large package, imported in a thread at the first call.

    Never two at a time: the modules of some packages (the MCP SDK) import each other in circles, and two threads that enter such a circle
    at different places meet modules that are half made. Python breaks that deadlock with an ``ImportError``.
    """
    return _LOADED[name] if name in _LOADED else await asyncio.to_thread(_load, name)


def _load(name: str) -> ModuleType:
    with _ONE_AT_A_TIME:
        return _LOADED.setdefault(name, import_module(name))
