"""``manage.py sessions list|read|interrupt|archive|delete``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents_app import lifecycle
from agents_app.terminal import find_session, find_user
from mnesis_core.errors import MnesisError
from mnesis_core.messages import text_of
from mnesis_core.text import printable
from sessions_app.queries import list_sessions, load_messages
from sessions_app.schemas import session_out, turn_out


class Command(BaseCommand):
    """Sessions at the terminal."""

    help = (
        "List, read, interrupt, archive or delete sessions. What is deleted is out of sight, and every row of it stays."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb in ("list", "read", "interrupt", "archive", "delete"):
            sub = verbs.add_parser(verb)
            if verb != "list":
                sub.add_argument("session", help="an id, 'last', or '~N' for the Nth before the last")
            sub.add_argument("--user", help="whose sessions (default: the first administrator)")
            sub.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        """One verb."""
        try:
            self._handle(options)
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from None

    def _handle(self, options: dict[str, Any]) -> None:
        owner_id = find_user(options["user"]).pk
        if options["verb"] == "list":
            self._list(owner_id, as_json=options["json"])
            return
        session_id = find_session(options["session"], owner_id=owner_id).id
        if options["verb"] == "read":
            self._read(session_id)
        elif options["verb"] == "interrupt":
            self._print(turn_out(lifecycle.interrupt(session_id, owner_id=owner_id)), as_json=options["json"])
        elif options["verb"] == "delete":
            lifecycle.delete_session(session_id, owner_id=owner_id)
            self._print({"id": session_id, "state": "deleted"}, as_json=options["json"])
        else:
            self._print(session_out(lifecycle.archive_session(session_id, owner_id=owner_id)), as_json=options["json"])

    def _list(self, owner_id: int, *, as_json: bool) -> None:
        sessions = list_sessions(owner_id=owner_id, archived=None, limit=100)
        if as_json:
            self.stdout.write(json.dumps([session_out(session) for session in sessions], default=str, indent=2))
            return
        for session in sessions:
            self.stdout.write(f"{session.id}  {session.state:11} {session.model:12} {printable(session.title)}")

    def _read(self, session_id: str) -> None:
        after = 0
        while messages := load_messages(session_id, after=after, limit=200):
            for message in messages:
                text = printable(text_of(tuple(stored.part for stored in message.parts)))
                self.stdout.write(f"[{message.seq}] {message.role}: {text}\n")
            after = messages[-1].seq

    def _print(self, values: dict[str, Any], *, as_json: bool) -> None:
        self.stdout.write(
            json.dumps(values, default=str, indent=2) if as_json else f"{values['id']}  {values['state']}"
        )
