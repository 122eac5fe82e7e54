"""System checks of the search.

* ``mnesis.E008`` Python's SQLite was built without FTS5
* ``mnesis.E009`` the database has no search index; asks the database, so it runs with ``--database default`` only
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from django.apps import AppConfig
from django.core.checks import Error, Tags, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from sessions_app.search_engines import ENGINES, engine


def register_checks() -> None:
    """Add these checks to Django's."""
    register(check_fts5)
    register(check_index, Tags.database)


def check_fts5(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[Error]:
    """E008, where SQLite is used."""
    return fts5_errors() if any(connections[alias].vendor == "sqlite" for alias in connections) else []


def check_index(
    app_configs: Sequence[AppConfig] | None, databases: Iterable[str] | None = None, **_: Any
) -> list[Error]:
    """E009, for each database that was asked about."""
    asked = [connections[alias] for alias in databases or () if connections[alias].vendor in ENGINES]
    hint = "Run manage.py migrate, then manage.py rebuild_search."
    return [Error(text, hint=hint, id="mnesis.E009") for connection in asked for text in index_differences(connection)]


def index_differences(connection: BaseDatabaseWrapper) -> list[str]:
    """What of the index is not there."""
    index = engine(connection)
    with connection.cursor() as cursor:
        return [] if index.is_there(cursor) else [f"The search index {index.name} is not there."]


def fts5_errors() -> list[Error]:
    """E008."""
    if "fts5" in modules():
        return []
    return [
        Error(
            "This Python's SQLite has no full-text search (FTS5), which the search index is made of.",
            hint="Use a Python whose sqlite3 module was built with FTS5, or PostgreSQL.",
            id="mnesis.E008",
        )
    ]


def modules() -> set[str]:
    """What virtual tables Python's SQLite can make."""
    with closing(sqlite3.connect(":memory:")) as memory:
        return {name for (name,) in memory.execute("SELECT name FROM pragma_module_list")}
