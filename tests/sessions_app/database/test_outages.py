"""What is away for a while: told to callers by a code, and to the log once a minute."""

from __future__ import annotations

import errno
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import redis
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from mnesis_core.errors import DatabaseUnavailable, MigrationsMissing, StorageFull
from sessions_app.database import outages
from sessions_app.database.outages import log_failure, log_outage, outage_of

pytestmark = pytest.mark.both_databases

logger = logging.getLogger("tests.outages")


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "_logged_at", {})


def full_database(path: Path) -> sqlite3.Error:
    """What SQLite raises when there is no room."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA max_page_count = 2")
        with pytest.raises(sqlite3.OperationalError) as caught:
            database.execute("CREATE TABLE a (b)").execute("INSERT INTO a VALUES (zeroblob(100000))")
    return caught.value


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_no_room_is_told_apart_however_deep_it_is_wrapped(tmp_path: Path) -> None:
    inner = caused(OperationalError("database or disk is full"), full_database(tmp_path / "a"))
    assert isinstance(outage_of(inner), StorageFull)
    assert isinstance(outage_of(caused(OperationalError("the commit failed"), inner)), StorageFull)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "no space"), OSError(errno.EDQUOT, "quota"), psycopg.errors.DiskFull("no space")]
)
def test_no_room_for_a_file_or_in_postgresql_is_no_room(error: Exception) -> None:
    assert isinstance(outage_of(error), StorageFull)


@pytest.mark.parametrize("error", [OperationalError("refused"), InterfaceError("closed")])
def test_a_database_that_fails_is_unavailable(error: Exception) -> None:
    assert isinstance(outage_of(error), DatabaseUnavailable)


@pytest.mark.parametrize("statement", ["SELECT 1 FROM not_there", "SELECT not_there FROM sessions"])
@pytest.mark.django_db
def test_what_is_not_there_calls_for_a_migration(statement: str) -> None:
    with pytest.raises(DatabaseError) as caught, connection.cursor() as cursor:
        cursor.execute(statement)
    assert isinstance(outage_of(caught.value), MigrationsMissing)


@pytest.mark.parametrize("error", [None, ValueError("a mistake"), OSError(errno.ENOENT, "no such file")])
def test_anything_else_is_no_outage(error: Exception | None) -> None:
    assert outage_of(error) is None


def test_an_outage_is_logged_once_a_minute_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(1_000):
        log_failure(logger, "The database is away", OperationalError("refused\nby the server"))
        log_failure(logger, "Redis is away", redis.ConnectionError("refused"))
    assert [(record.getMessage(), record.exc_info) for record in caplog.records] == [
        ("The database is away (OperationalError: refused)", None),
        ("Redis is away (ConnectionError: refused)", None),
    ]
    monkeypatch.setattr(outages, "LOG_INTERVAL_SECONDS", 0.0)
    log_outage(logger, "Redis is away", redis.ConnectionError("refused"))
    assert len(caplog.records) == 3


def test_a_mistake_is_logged_each_time_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        log_failure(logger, "That failed", ValueError("a mistake"))
    assert len(caplog.records) == 2
    assert all(record.exc_info for record in caplog.records)


def test_a_library_that_repeats_itself_is_heard_once(caplog: pytest.LogCaptureFixture) -> None:
    chatty = logging.getLogger("tests.chatty")
    chatty.addFilter(outages.OnceAMinute())
    for number in range(5):
        chatty.warning("no connection %d", number)
    assert [record.getMessage() for record in caplog.records] == ["no connection 0"]
