"""Which sessions a command is about."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from audit_app.export import session_ids
from mnesis_core.errors import SessionNotFoundError


def add_session_arguments(parser: ArgumentParser) -> None:
    """``SESSION… | --all``."""
    parser.add_argument("sessions", nargs="*", metavar="SESSION")
    parser.add_argument("--all", action="store_true", help="every session there is, also deleted ones")


def chosen_sessions(options: dict[str, Any]) -> list[str]:
    """The ids of the sessions that were asked for.

    :raises CommandError: none were, or one of them does not exist.
    """
    if bool(options["sessions"]) == options["all"]:
        raise CommandError("Name the sessions, or say --all.", returncode=2)
    there = session_ids()
    if options["all"]:
        return there
    if missing := [session_id for session_id in options["sessions"] if session_id not in there]:
        error = SessionNotFoundError(session_id=missing[0])
        raise CommandError(f"{error.code}: there is no session {missing[0]!r}", returncode=error.exit_status)
    return list(dict.fromkeys(options["sessions"]))
