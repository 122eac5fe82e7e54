"""Databases besides the one of the test run, and a session to tamper with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client

from audit_app.proof import ledger
from mnesis_site.database_url import database
from sessions_app.database.guards.triggers import guarded_models, install_guards, remove_guards
from tests.support.people.cast import make_user
from tests.support.record.sample_record import Sample, make_sample
from tests.support.record.tampered import make_rich_session
from tests.support.sites.databases import migrated_database, on_server
from tests.support.sites.site import migrated_file

OTHER_KIND = {"sqlite": "postgresql", "postgresql": "sqlite"}


class NewDatabase(Protocol):
    """Makes databases that go with the test."""

    def __call__(self, kind: str, *, migrated: bool = False) -> str:
        """The address of an empty one, ``sqlite`` or ``postgresql``; migrated, it has the tables already."""


@pytest.fixture
def reader(db: None) -> User:
    return make_user("ada")


@pytest.fixture
def browser(reader: User) -> Client:
    client = Client()
    client.force_login(reader)
    return client


@pytest.fixture
def sample(db: None) -> Sample:
    return make_sample()


@pytest.fixture(scope="session")
def migrated(postgres_url: str) -> Iterator[dict[str, str]]:
    """A database of each kind with nothing but tables, to be copied: migrating takes seconds."""
    with migrated_database(postgres_url) as name:
        yield {"sqlite": str(migrated_file()), "postgresql": name}


@pytest.fixture
def new_database(tmp_path: Path, postgres_url: str, request: pytest.FixtureRequest) -> Iterator[NewDatabase]:
    """Makes databases."""
    numbers = count()
    with ExitStack() as stack:

        def make(kind: str, *, migrated: bool = False) -> str:
            template = request.getfixturevalue("migrated")[kind] if migrated else ""
            number = next(numbers)
            if kind == "postgresql":
                return stack.enter_context(_on_server(postgres_url, f"move_{os.getpid()}_{number}", template))
            if template:
                shutil.copy(template, tmp_path / f"{number}.sqlite3")
            return f"sqlite:///{tmp_path}/{number}.sqlite3"

        yield make


@contextmanager
def _on_server(url: str, name: str, template: str = "") -> Iterator[str]:
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f'CREATE DATABASE {name} TEMPLATE "{template or "template1"}"')  # type: ignore[call-overload]
        try:
            yield on_server(url, name)
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


@pytest.fixture
def connected(new_database: NewDatabase) -> Iterator[Callable[[str], str]]:
    """Gives an address a name that Django knows it by."""
    numbers = count()
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(_connected(url, f"other_{next(numbers)}"))


@contextmanager
def _connected(url: str, name: str) -> Iterator[str]:
    settings = {"default": dict(connections.settings["default"]), name: database(url, pooled=False)}
    # Known to Django only while it is made: a test may open what Django does not know.
    connections.settings[name] = connections.configure_settings(settings)[name]
    connections[name] = connections[name]
    del connections.settings[name]
    yield name
    connections[name].close()
    del connections[name]


@pytest.fixture
def session_id() -> str:
    """A session with one row or more in every table of the record."""
    return make_rich_session(make_user("alice"))


@pytest.fixture(autouse=True)
def few_entries_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read few entries at a time, so that what is said of one row comes in several batches."""
    monkeypatch.setattr(ledger, "ENTRIES_AT_A_TIME", 2)


@pytest.fixture
def unguarded() -> Iterator[None]:
    """What the owner of the database could do."""
    remove_guards(connection, guarded_models())
    yield
    install_guards(connection, guarded_models())
