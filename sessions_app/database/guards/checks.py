"""System checks: a configuration that lets the record change, or loses what was acknowledged, is an error.

* ``mnesis.E001`` a guard is missing, differs or is switched off, or something undeclared acts on a table
* ``mnesis.E002`` the database is neither SQLite nor PostgreSQL
* ``mnesis.E003`` SQLite's transactions do not begin ``IMMEDIATE``
* ``mnesis.E004`` SQLite does not log ahead (WAL) or does not sync every commit (FULL)
* ``mnesis.E005`` the queue hands a task out again while it may still be running
* ``mnesis.E006`` connections are kept between requests
* ``mnesis.E007`` a database role has other rights than those declared

E001, E004 and E007 query the database, so ``manage.py check`` runs them only with ``--database default``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import Error, Tags, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from sessions_app.database.guards.rights import grant_differences
from sessions_app.database.guards.triggers import DIALECTS, guard_differences

SITE = "mnesis"
"""The tag of the checks that ``manage.py up`` and each command of Mnesis runs: of settings and of the configuration."""
SYNCED = (2, 3)  # PRAGMA synchronous: FULL and EXTRA


def register_checks() -> None:
    register(check_settings, SITE)
    register(check_databases, Tags.database)


def check_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[Error]:
    found = [error for alias in connections for error in connection_errors(alias, connections[alias])]
    return [*found, *queue_errors(settings.Q_CLUSTER)]


def check_databases(
    app_configs: Sequence[AppConfig] | None, databases: Iterable[str] | None = None, **_: Any
) -> list[Error]:
    asked = [connections[alias] for alias in databases or () if connections[alias].vendor in DIALECTS]
    questions = (guard_errors, grant_errors, durability_errors)
    return [error for connection in asked for question in questions for error in question(connection)]


def connection_errors(alias: str, connection: BaseDatabaseWrapper) -> Iterator[Error]:
    entry = connection.settings_dict
    if connection.vendor not in DIALECTS:
        yield Error(
            f"The database {alias!r} is {connection.vendor}, where nothing would guard the record.",
            hint="Use SQLite or PostgreSQL.",
            id="mnesis.E002",
        )
    if connection.vendor == "sqlite" and str(entry["OPTIONS"].get("transaction_mode")).upper() != "IMMEDIATE":
        yield Error(
            f"Transactions of the database {alias!r} do not begin IMMEDIATE: one that reads, then writes, can fail.",
            hint='Set OPTIONS["transaction_mode"] to "IMMEDIATE".',
            id="mnesis.E003",
        )
    if entry["CONN_MAX_AGE"] != 0:
        yield Error(
            f"The database {alias!r} keeps connections between requests, which threads of an async server never close.",
            hint="Set CONN_MAX_AGE to 0; PostgreSQL has a pool for the same gain.",
            id="mnesis.E006",
        )


def queue_errors(queue: Mapping[str, Any]) -> Iterator[Error]:
    timeout, retry = queue.get("timeout"), queue.get("retry", 60)  # django-q's own defaults: none, and a minute
    if not timeout or retry <= timeout:
        yield Error(
            f"The queue hands a task out again after {retry} s, but may run it for {timeout or 'any number of'} s.",
            hint='Set Q_CLUSTER["timeout"], and "retry" larger than that.',
            id="mnesis.E005",
        )


def guard_errors(connection: BaseDatabaseWrapper) -> Iterator[Error]:
    hint = "Find out who changed it. manage.py migrate restores guards; the owner of the tables drops what is foreign."
    return (Error(difference, hint=hint, id="mnesis.E001") for difference in guard_differences(connection))


def grant_errors(connection: BaseDatabaseWrapper) -> Iterator[Error]:
    hint = "manage.py roles, run by the owner of the tables, puts it right."
    return (Error(difference, hint=hint, id="mnesis.E007") for difference in grant_differences(connection))


def durability_errors(connection: BaseDatabaseWrapper) -> Iterator[Error]:
    """Yield E004: with less, a power cut loses messages that were acknowledged."""
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = cursor.execute("PRAGMA synchronous").fetchone()[0]
    if journal != "wal" or synchronous not in SYNCED:
        yield Error(
            f"The database {connection.alias!r} can lose acknowledged messages in a power cut:"
            f" journal_mode is {journal}, synchronous is {synchronous}.",
            hint='Set OPTIONS["init_command"] to "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;".',
            id="mnesis.E004",
        )
