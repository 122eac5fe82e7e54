"""``manage.py loaddata``: refused, since a fixture writes and rewrites rows that no event tells of."""

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import loaddata


class Command(loaddata.Command):
    def handle(self, *fixture_labels: str, **options: Any) -> None:
        raise CommandError(
            "Fixtures would write past the ledger. Bring sessions in with 'manage.py import_session' or "
            "'import_transcript', and a whole site with 'manage.py move_database'."
        )
