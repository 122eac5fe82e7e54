"""Outages (of the database, its migrations, disk space, Redis): what callers are told, and what the log says once a minute."""

from __future__ import annotations

import errno
import logging
import sqlite3
import time
from collections.abc import Iterable

import redis
from django.utils.translation import gettext_noop
from pydantic import ValidationError

from mnesis_core.errors import (
    DatabaseUnavailable,
    InvalidRequest,
    MigrationsMissing,
    MnesisError,
    NotReady,
    StorageFull,
)
from sessions_app.database.threads import AWAY, drop_broken

logger = logging.getLogger(__name__)

LOG_INTERVAL_SECONDS = 60.0
DISK_FULL = "53100"  # PostgreSQL's SQLSTATE
NO_SUCH = {"42P01", "42703"}  # the SQLSTATEs of a table or column that is not there
_NO_SUCH = ("no such table", "no such column", "has no column named")  # SQLite has words only
LONGEST_FIELD = 200  # characters of a path that are repeated: a caller may have written a key of any length
_logged_at: dict[tuple[str, str], float] = {}


def outage_of(exception: BaseException | None) -> NotReady | None:
    """Return the error that callers get during an outage, or ``None`` if the exception is about something else."""
    cause = exception
    while cause is not None:
        is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        is_full |= isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        if is_full or getattr(cause, "sqlstate", None) == DISK_FULL:
            return StorageFull()
        is_lacking = isinstance(cause, sqlite3.OperationalError) and any(words in str(cause) for words in _NO_SUCH)
        if is_lacking or getattr(cause, "sqlstate", None) in NO_SUCH:
            return MigrationsMissing()
        cause = cause.__cause__
    return DatabaseUnavailable() if isinstance(exception, AWAY) else None


def log_outage(logger: logging.Logger, sentence: str, error: BaseException) -> None:
    """Log one line without a traceback, each sentence once a minute: thousands of requests fail for the same reason."""
    if not _is_due(logger.name, sentence):
        return
    reason = (str(error).strip() or "no reason given").splitlines()[0]
    logger.error("%s (%s: %s)", sentence, type(error).__name__, reason)


def log_failure(logger: logging.Logger, sentence: str, error: BaseException) -> None:
    """Log an outage as ``log_outage`` does, and anything else with its traceback."""
    if outage_of(error) is not None or isinstance(error, redis.RedisError):
        log_outage(logger, sentence, error)
    else:
        logger.error(sentence, exc_info=error)


class OnceAMinute(logging.Filter):
    """A filter for loggers of libraries that repeat themselves at every attempt."""

    def filter(self, record: logging.LogRecord) -> bool:
        return _is_due(record.name, str(record.msg))


def _is_due(name: str, sentence: str) -> bool:
    now = time.monotonic()
    logged_at = _logged_at.get((name, sentence))
    if logged_at is not None and now - logged_at < LOG_INTERVAL_SECONDS:
        return False
    _logged_at[name, sentence] = now
    return True


def to_error(exception: Exception, *, asked: str) -> MnesisError:
    """Return the error that a caller may see; ``asked`` says in the log what was requested.

    An unexpected exception is logged in full, and the caller learns nothing of it.
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
        return InvalidRequest(gettext_noop("The body is nested too deeply."))
    if isinstance(exception, UnicodeError):
        return InvalidRequest(gettext_noop("The request has text that is not valid Unicode."))
    logger.error("%s failed", asked, exc_info=exception)
    return MnesisError()


def invalid_fields(wrong: Iterable[tuple[str, str]]) -> InvalidRequest:
    """Return an error that names each wrong field (its path as the caller wrote it) and the problem.

    It never repeats the value, which may be large or secret.
    """
    named = [{"field": field[:LONGEST_FIELD], "problem": problem} for field, problem in wrong]
    sentence = "; ".join(f"{item['field']}: {item['problem']}" for item in named[:3])
    return InvalidRequest(gettext_noop("The request is not valid. %(sentence)s"), {"sentence": sentence}, errors=named)
