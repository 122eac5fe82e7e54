"""A database of its own for a site that a test starts: on the kind of database that this run is about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from tests.support.sites.site import environment_for, manage, migrate, one_at_a_time, shared_folder


@contextmanager
def site_database(name: str, *, is_prepared: bool = False) -> Iterator[dict[str, str]]:
    """The environment that gives a site a new, empty database; with SQLite it makes one in its directory.

    :param is_prepared: on PostgreSQL, whether it has its tables already
    """
    url = os.environ.get("DATABASE_URL", "")
    redis_url = os.environ.get("REDIS_URL", "")
    if not url.startswith("postgres"):
        yield {"REDIS_URL": redis_url} if redis_url else {}
        return
    database = f"{name}_{os.getpid()}"
    prepared = migrated_database(url) if is_prepared else nullcontext("template1")
    with psycopg.connect(url, autocommit=True) as connection, prepared as template:
        connection.execute(f'CREATE DATABASE {database} TEMPLATE "{template}"')  # type: ignore[call-overload]
        try:
            yield {"DATABASE_URL": on_server(url, database), "REDIS_URL": redis_url}
        finally:
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")  # type: ignore[call-overload]


@contextmanager
def migrated_database(url: str) -> Iterator[str]:
    """The name of a database on this server that has all tables and no rows, to be copied.

    One that the processes of a run share stays until ``drop_shared``.
    """
    folder = shared_folder()
    if folder is None:
        try:
            yield _make_migrated(url, f"migrated_{os.getpid()}")
        finally:
            _drop(url, f"migrated_{os.getpid()}")
        return
    mark = folder / "migrated.postgresql"
    with one_at_a_time(folder):
        if not mark.exists():
            mark.write_text(_make_migrated(url, f"migrated_{folder.name}".lower()))
    yield mark.read_text()


def drop_shared(url: str) -> None:
    """Drop the database that the processes of this run shared."""
    if (folder := shared_folder()) and (mark := folder / "migrated.postgresql").exists():
        _drop(url, mark.read_text())


def on_server(url: str, database: str) -> str:
    """The address of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def _make_migrated(url: str, name: str) -> str:
    with psycopg.connect(url, autocommit=True) as server, TemporaryDirectory() as folder:
        server.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
        migrate(Path(folder), DATABASE_URL=on_server(url, name))
    return name


def _drop(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[call-overload]


def with_query(database: dict[str, str], query: str) -> dict[str, str]:
    """The environment of a site with options in its address, where it is PostgreSQL's."""
    url = database.get("DATABASE_URL", "")
    return database | {"DATABASE_URL": urlunsplit(urlsplit(url)._replace(query=query))} if url else database


def execute(*statements: str) -> None:
    """Run statements on the database of the test."""
    with connections["default"].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def ask(sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query without parameters, from the database of the test."""
    with connections["default"].cursor() as cursor:
        cursor.execute(sql)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def unmigrate(app: str) -> None:
    """Take an app's tables away, and those that depend on it, as the owner of the database: no command does that."""
    # Here, not above: benchmarks import this module before Django is set up.
    from sessions_app.database.guards.triggers import lift_guards, restore_guards

    executor = MigrationExecutor(connections["default"])
    plan = executor.migration_plan([(app, None)])
    lift_guards(using="default", plan=plan)
    executor.migrate([(app, None)], plan=plan)
    restore_guards(using="default", plan=plan)


@contextmanager
def with_a_role(database: dict[str, str], directory: Path) -> Iterator[dict[str, str]]:
    """The environment of a site that, on PostgreSQL, does not own its tables (``docs/operations.md``)."""
    owner = database.get("DATABASE_URL", "")
    if not owner:
        yield database
        return
    role = f"site_of_{urlsplit(owner).path[1:]}"
    for command in (["migrate", "--verbosity=0"], ["roles", "--app", role]):
        done = manage(*command, environment=environment_for(directory, **database))
        assert done.returncode == 0, done.stderr
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {role} PASSWORD 'of no use'")  # type: ignore[call-overload]
        host = urlsplit(owner).netloc.rpartition("@")[2]
        try:
            url = urlunsplit(urlsplit(owner)._replace(netloc=f"{role}:of%20no%20use@{host}"))
            yield database | {"DATABASE_URL": url, "MNESIS_APP_ROLE": role}
        finally:
            connection.execute(f"DROP OWNED BY {role}")  # type: ignore[call-overload]
            connection.execute(f"DROP ROLE {role}")  # type: ignore[call-overload]
