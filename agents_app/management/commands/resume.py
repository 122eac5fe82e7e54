"""``manage.py resume ID|last|~N "message"``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from agents_app.endpoints.terminal import keep_attached, read_message, starting
from agents_app.management.commands.run import Command as RunCommand
from sessions_app.management.acting import find_user
from sessions_app.record.session_queries import find_session


class Command(RunCommand):
    help = "Go on with a session: its id, 'last', or '~N' for the Nth before the last."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("session", help="an id, 'last', or '~N' for the Nth before the last")
        parser.add_argument("message", nargs="*", help="the message; '-' or nothing reads standard input")
        self.add_files(parser)
        self.add_common(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        owner_id = find_user(options["user"]).pk
        session_id = find_session(options["session"], owner_id=owner_id).id
        message = read_message(options["message"], may_be_silent=bool(options["files"]))
        files = keep_attached(session_id, options["files"], owner_id=owner_id)
        self.turn(session_id, owner_id, starting(session_id, owner_id, message, files), as_json=options["as_json"])
