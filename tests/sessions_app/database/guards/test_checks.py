"""Each check reports what it is for and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.checks import registry
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.db.utils import ConnectionHandler

from sessions_app.database.guards import checks
from sessions_app.database.guards.triggers import remove_guards
from sessions_app.management.acting import SiteCommand
from sessions_app.models import Event

pytestmark = pytest.mark.both_databases


def connect(**entry: Any) -> Any:
    """A connection of its own, made from a DATABASES entry."""
    return ConnectionHandler({"default": entry})["default"]


def sqlite(path: Path, **entry: Any) -> Any:
    return connect(ENGINE="django.db.backends.sqlite3", NAME=str(path), **entry)


def ids(errors: Any) -> list[str | None]:
    return [error.id for error in errors]


def test_the_project_passes_its_own_checks(db: None) -> None:
    call_command("check", databases=["default"], verbosity=0)


def test_the_checks_are_registered() -> None:
    assert {checks.check_settings, checks.check_databases} <= set(registry.registry.get_checks())


def test_a_command_runs_the_checks_of_mnesis_that_need_no_database() -> None:
    tagged = {check.__name__ for check in registry.registry.get_checks() if checks.SITE in check.tags}
    assert tagged == {"check_settings", "check_fts5", "check_tool_names"}
    assert {*SiteCommand.requires_system_checks} == {checks.SITE}


def test_the_check_of_the_admin_looks_at_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    call_command("check", tags=["admin"], verbosity=0)
    monkeypatch.setattr(admin.site._registry[User], "list_display", ["nosuch"])
    with pytest.raises(SystemCheckError, match=r"admin\.E108"):
        call_command("check", tags=["admin"], verbosity=0)


@pytest.mark.owner
def test_a_missing_guard_fails_the_database_checks_and_no_other(db: None) -> None:
    remove_guards(connection, [Event])
    with pytest.raises(SystemCheckError, match=r"mnesis\.E001") as caught:
        call_command("check", databases=["default"], verbosity=0)
    assert "events is not guarded" in str(caught.value)
    call_command("check", verbosity=0)


def test_another_database_is_refused() -> None:
    unknown = connect(ENGINE="django.db.backends.dummy")
    assert ids(checks.connection_errors("default", unknown)) == ["mnesis.E002"]


@pytest.mark.parametrize("mode", ["IMMEDIATE", "immediate", "DEFERRED", None])
def test_sqlite_transactions_must_begin_immediate(tmp_path: Path, mode: str | None) -> None:
    entry = sqlite(tmp_path / "a.sqlite3", OPTIONS={"transaction_mode": mode} if mode else {})
    expected = [] if (mode or "").upper() == "IMMEDIATE" else ["mnesis.E003"]
    assert ids(checks.connection_errors("default", entry)) == expected


@pytest.mark.parametrize(
    ("pragmas", "safe"),
    [
        ("PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;", True),
        ("PRAGMA journal_mode=WAL;PRAGMA synchronous=EXTRA;", True),
        ("PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;", False),
        ("PRAGMA journal_mode=DELETE;PRAGMA synchronous=FULL;", False),
        ("", False),
    ],
)
def test_sqlite_must_log_ahead_and_sync_every_commit(db: None, tmp_path: Path, pragmas: str, safe: bool) -> None:
    database = sqlite(tmp_path / "a.sqlite3", OPTIONS={"init_command": pragmas} if pragmas else {})
    found = ids(checks.durability_errors(database))
    database.close()
    assert found == ([] if safe else ["mnesis.E004"])


@pytest.mark.parametrize(
    ("queue", "safe"),
    [
        ({"timeout": 300, "retry": 900}, True),
        ({"timeout": 300, "retry": 300}, False),
        ({"timeout": 300}, False),
        ({"retry": 900}, False),
        ({"timeout": None, "retry": 900}, False),
    ],
)
def test_the_queue_must_retry_only_after_the_timeout(queue: dict[str, int], safe: bool) -> None:
    assert ids(checks.queue_errors(queue)) == ([] if safe else ["mnesis.E005"])


@pytest.mark.parametrize("age", [0, 1, None])
def test_connections_must_not_outlive_a_request(tmp_path: Path, age: int | None) -> None:
    options = {"transaction_mode": "IMMEDIATE"}
    found = ids(checks.connection_errors("default", sqlite(tmp_path / "a.sqlite3", CONN_MAX_AGE=age, OPTIONS=options)))
    assert found == ([] if age == 0 else ["mnesis.E006"])
