"""On PostgreSQL tests do their work as a role that has the site's rights and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.signals import connection_created

from sessions_app.database.guards.rights import apply_role, authorize, decide, site_role


def make_site_role() -> str:
    """Make the site's role for the test database, named after it: roles belong to the whole server."""
    name = f"site_of_{connection.settings_dict['NAME']}"
    apply_role(connection, site_role(name))
    return name


def drop_role(name: str) -> None:
    """Drop a role with its grants; none has no name."""
    with connection.cursor() as cursor:
        for statement in (f'DROP OWNED BY "{name}"', f'DROP ROLE "{name}"') if name else ():
            cursor.execute(statement)


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Let this thread's connection, and every one that is opened meanwhile, have a role's rights and no others."""

    def become(connection: Any, **_: object) -> None:
        if connection.vendor == "postgresql":
            connection.connection.execute(f'SET SESSION AUTHORIZATION "{name}"')

    connection_created.connect(become)
    if connection.connection is not None:
        become(connection)
    try:
        yield
    finally:
        connection_created.disconnect(become)
        if connection.connection is not None and not connection.connection.closed:
            # In a transaction that has failed nothing can be set, and its end will set it back.
            with suppress(psycopg.errors.InFailedSqlTransaction):
                connection.connection.execute("RESET SESSION AUTHORIZATION")


@contextmanager
def with_the_sites_rights(name: str) -> Iterator[None]:
    """For a test that is the owner's: do something as the site on this thread's connection."""
    if connection.vendor == "postgresql":
        with acting_as(name):
            yield
        return
    connection.connection.set_authorizer(decide)
    try:
        yield
    finally:
        authorize(connection)
