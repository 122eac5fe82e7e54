"""A database of its own for a site that a test starts: on the kind of database that this run is about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from django.db import connections


@contextmanager
def site_database(name: str) -> Iterator[dict[str, str]]:
    """The environment that gives a site a new, empty database; with SQLite it makes one in its directory."""
    url = os.environ.get("DATABASE_URL", "")
    redis_url = os.environ.get("REDIS_URL", "")
    if not url.startswith("postgres"):
        yield {"REDIS_URL": redis_url} if redis_url else {}
        return
    database = f"{name}_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")  # type: ignore[call-overload]
        try:
            yield {"DATABASE_URL": urlunsplit(urlsplit(url)._replace(path=f"/{database}")), "REDIS_URL": redis_url}
        finally:
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")  # type: ignore[call-overload]


def ask(sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query without parameters, from the database of the test."""
    with connections["default"].cursor() as cursor:
        cursor.execute(sql)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
