"""What is away for a while (the database, room on a disk, Redis): how callers are told, and the log, once a minute."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

import redis
from psycopg_pool import PoolTimeout
from pydantic import ValidationError

from mnesis_core.errors import DatabaseUnavailable, InvalidRequest, MnesisError, NotReady, StorageFull
from sessions_app.database.pool import ServerUnreachable
from sessions_app.database.threads import AWAY, db, drop_broken

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)

SAY_AGAIN_SECONDS = 60.0
PATIENCE_SECONDS = 60.0
"""How long a running turn waits for the database."""
TRY_AGAIN_SECONDS = 1.0
DISK_FULL = "53100"
"""PostgreSQL's state of a statement for which its disk has no room."""
_said: dict[tuple[str, str], float] = {}
"""When each sentence was last said."""


def outage_of(exception: BaseException | None) -> NotReady | None:
    """The error that callers get for what is away; ``None``: the exception is about something else."""
    if any(_is_full(cause) for cause in _causes(exception)):
        return StorageFull()
    return DatabaseUnavailable() if isinstance(exception, AWAY) else None


async def patiently(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Like ``db``, but tries again for a minute while the server cannot be reached and so was asked nothing.

    For what a running turn reads and writes. A call that broke off half way is not repeated: it may have been committed.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await db(call, *args, **kwargs)
        except AWAY as error:
            if not isinstance(error.__cause__, (ServerUnreachable, PoolTimeout)) or time.monotonic() > deadline:
                raise
            log_outage(logger, "Running turns wait for the database", error)
        await asyncio.sleep(TRY_AGAIN_SECONDS)


def log_outage(logger: logging.Logger, sentence: str, error: BaseException) -> None:
    """One line without a traceback, each sentence once a minute: thousands of requests fail by the same."""
    if not _is_due(logger.name, sentence):
        return
    reason = (str(error).strip() or "no reason given").splitlines()[0]
    logger.error("%s (%s: %s)", sentence, type(error).__name__, reason)


def log_failure(logger: logging.Logger, sentence: str, error: BaseException) -> None:
    """An outage as ``log_outage`` does; anything else is a mistake, with its traceback."""
    if outage_of(error) is not None or isinstance(error, redis.RedisError):
        log_outage(logger, sentence, error)
    else:
        logger.error(sentence, exc_info=error)


class OnceAMinute(logging.Filter):
    """For a logger of a library that says the same at every try."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        return _is_due(record.name, str(record.msg))


def _is_due(name: str, sentence: str) -> bool:
    now = time.monotonic()
    said_at = _said.get((name, sentence))
    if said_at is not None and now - said_at < SAY_AGAIN_SECONDS:
        return False
    _said[name, sentence] = now
    return True


def _causes(exception: BaseException | None) -> Iterator[BaseException]:
    while exception is not None:
        yield exception
        exception = exception.__cause__


def _is_full(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    is_of_disk = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return is_of_disk or getattr(error, "sqlstate", None) == DISK_FULL


# What a door answers for any exception: errors of ours as they are, a database that is away, hostile values, mistakes.

LONGEST_FIELD = 200
"""Characters of a field's path that are repeated: a caller may have written a key of any length."""
Wrong = tuple[str, str]
"""The path of a field as the caller wrote it, and what is wrong with it."""


def as_error(exception: Exception, *, asked: str) -> MnesisError:
    """The error that a caller may see; ``asked`` says in the log what they wanted.

    Of an unexpected exception the log has everything and the caller nothing.
    """
    if isinstance(exception, MnesisError):
        return exception
    if outage := outage_of(exception):
        drop_broken(exception)
        log_outage(logger, f"Requests are answered {outage.code}", exception)
        return outage
    if isinstance(exception, ValidationError):
        return invalid_fields((".".join(map(str, item["loc"])), str(item["msg"])) for item in exception.errors())
    if isinstance(exception, RecursionError):
        return InvalidRequest("The body is nested too deeply.")
    if isinstance(exception, UnicodeError):
        return InvalidRequest("The request has text that is not valid Unicode.")
    logger.error("%s failed", asked, exc_info=exception)
    return MnesisError()


def invalid_fields(wrong: Iterable[Wrong]) -> InvalidRequest:
    """Names each field that is wrong, and why; never repeats the value, which may be large or secret."""
    named = [{"field": field[:LONGEST_FIELD], "problem": problem} for field, problem in wrong]
    sentence = "; ".join(f"{item['field']}: {item['problem']}" for item in named[:3])
    return InvalidRequest(f"The request is not valid. {sentence}", errors=named)
