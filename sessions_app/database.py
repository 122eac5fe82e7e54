"""Database access from asyncio code that outlives a request: turns, sockets, streams.

Threads of our own, so that one slow query does not hold up every socket, and connections that are closed
when they are stale. Never the async ORM there: inside a request it is tied to the request's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from channels.db import DatabaseSyncToAsync

P = ParamSpec("P")
R = TypeVar("R")

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="database")
_LONG_THREADS = ThreadPoolExecutor(16, thread_name_prefix="work")


async def db(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a store or query function in a database thread and wait for it."""
    return await _run(_THREADS, call, *args, **kwargs)


async def work(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run something that takes long (a tool, a compaction) in a thread of its own kind, so that reads go on."""
    return await _run(_LONG_THREADS, call, *args, **kwargs)


async def _run(threads: ThreadPoolExecutor, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    run = DatabaseSyncToAsync(call, thread_sensitive=False, executor=threads)
    result: R = await run(*args, **kwargs)
    return result
