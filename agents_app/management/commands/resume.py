"""``manage.py resume ID|last|~N "prompt"``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents_app.management.commands.run import Command as RunCommand
from agents_app.terminal import find_session, find_user
from mnesis_core.errors import MnesisError


class Command(RunCommand):
    """One more turn of a session."""

    help = "Go on with a session: its id, 'last', or '~N' for the Nth before the last."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which session, and what ``run`` takes."""
        parser.add_argument("session")
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Find, run, report."""
        try:
            user = find_user(options["user"])
            session = find_session(options["session"], owner_id=user.pk)
            self.turn(session.id, user.pk, options["prompt"], as_json=options["json"])
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from None
