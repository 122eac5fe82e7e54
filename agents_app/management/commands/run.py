"""``manage.py run "prompt"``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents_app import lifecycle
from agents_app.terminal import find_user, run_turn
from mnesis_core.errors import MnesisError
from mnesis_core.record import TurnRecord, TurnState
from mnesis_core.text import printable
from sessions_app.schemas import turn_out


class Command(BaseCommand):
    """A new session with its first turn."""

    help = "Start a session with one message and print the answer as it comes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The message and options."""
        parser.add_argument("prompt")
        parser.add_argument("--model", default="")
        parser.add_argument("--user", help="whose session it is (default: the first administrator)")
        parser.add_argument("--json", action="store_true", help="print the turn as JSON at its end, no text before")

    def handle(self, *args: Any, **options: Any) -> None:
        """Create, run, report."""
        try:
            user = find_user(options["user"])
            session = lifecycle.create_session(owner=user, model=options["model"])
            self.turn(session.id, user.pk, options["prompt"], as_json=options["json"])
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from None

    def turn(self, session_id: str, owner_id: int, prompt: str, *, as_json: bool) -> None:
        """One turn at the terminal; a bad end is the exit status 1."""
        turn = run_turn(
            session_id, owner_id=owner_id, message=prompt, write=(lambda text: None) if as_json else self._write
        )
        if as_json:
            self.stdout.write(json.dumps(turn_out(turn), default=str, indent=2))
        else:
            self.stdout.write("")
        self.stderr.write(_line(turn))
        if turn.state != TurnState.COMPLETED:
            raise CommandError(f"{turn.error_code or turn.state}: {turn.error_message or 'the turn was interrupted'}")

    def _write(self, text: str) -> None:
        self.stdout.write(printable(text), ending="")
        self.stdout.flush()


def _line(turn: TurnRecord) -> str:
    usage = turn.usage
    return (
        f"{turn.session_id}  {turn.state}, {usage.tokens_input or 0:,} + {usage.tokens_output or 0:,} tokens"
        f" ({usage.usage_source or 'unknown'})"
    )
