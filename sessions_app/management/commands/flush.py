"""``manage.py flush``, for test databases only."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import flush
from django.db import connections, transaction

from sessions_app.guards import guarded_models, install_guards, remove_guards

TEST_NAMES = re.compile(r"(.*/)?test[_.][^/]*|:memory:|file:memorydb_.*")


def is_test_database(name: str) -> bool:
    """Whether Django's test runner gives a database this name: ``test_…``, ``test.sqlite3``, or one in memory."""
    return TEST_NAMES.fullmatch(name) is not None


class Command(flush.Command):
    """Empties a test database between two tests; a record is never emptied."""

    def handle(self, **options: Any) -> None:
        """:raises CommandError: the database is not a test's."""
        connection = connections[options["database"]]
        name = str(connection.settings_dict["NAME"])
        if not is_test_database(name):
            raise CommandError(f"{name} holds a record, which is never emptied. Only a test database can be flushed.")
        # One transaction: the guards are never seen to be off.
        with transaction.atomic(using=connection.alias):
            remove_guards(connection, guarded_models())
            super().handle(**options)
            install_guards(connection, guarded_models())
