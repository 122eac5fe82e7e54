"""``manage.py test``: refused, since it deletes the database that has its test database's name, record or not."""

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import test


class Command(test.Command):
    def handle(self, *labels: str, **options: Any) -> None:
        raise CommandError(
            "This would delete the database that is named like the test database. Run the tests with 'make test'."
        )
