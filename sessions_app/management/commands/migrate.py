"""``manage.py migrate``, which puts missing guards back."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections

from sessions_app.database.guards.migrating import damage_told, known, one_at_a_time
from sessions_app.database.guards.rights import lifted


class Command(migrate.Command):
    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        """Every check but those of the database: a missing guard is an error, and must not stop its own cure."""
        return super(migrate.Command, self).get_check_kwargs(options)

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate as the owner of the database, one process at a time."""
        connection = connections[options["database"]]
        alone = one_at_a_time(connection, self.stderr.write)
        with alone, damage_told(connection), known(connection), lifted(connection):
            super().handle(*args, **options)
