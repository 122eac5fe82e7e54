"""What commands share: a line that shows progress, and the sessions that a command is about."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from time import monotonic
from typing import Any

from django.core.management.base import CommandError

from audit_app.transfer.export import session_ids
from mnesis_core.errors import SessionNotFoundError

SECONDS_ON_A_TERMINAL = 0.1
SECONDS_ELSEWHERE = 5.0


class ProgressLine:
    """Progress on standard error: one line that is written over on a terminal, a line now and then anywhere else."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._terminal = sys.stderr.isatty()
        self._every = SECONDS_ON_A_TERMINAL if self._terminal else SECONDS_ELSEWHERE
        self._told = monotonic()
        self._open = False

    def show(self, verb: str, what: str, done: int, total: int, *, unit: str = "rows") -> None:
        """Show that ``done`` of ``total`` rows of something are done; a ``total`` of 0 is unknown."""
        is_last = done == total and self._terminal
        if not is_last and monotonic() - self._told < self._every:
            return
        self._told = monotonic()
        of = f" of {total:,}" if total else ""
        line = f"{what}: {done:,}{of} {unit} {verb}"
        # str: not in the colour of errors.
        if self._terminal:
            self._stream.write(f"\r{line:<78}", style_func=str, ending="")
        else:
            self._stream.write(line, style_func=str)
        self._open = self._terminal

    def end(self) -> None:
        if self._open:
            self._stream.write("")
            self._open = False


def add_session_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="*", metavar="SESSION")
    parser.add_argument("--all", action="store_true", help="every session, including deleted ones")


def chosen_sessions(options: dict[str, Any]) -> list[str]:
    """Return the ids of the sessions that were asked for.

    :raises CommandError: none were, or one of them does not exist.
    """
    if bool(options["sessions"]) == options["all"]:
        raise CommandError("Name the sessions, or use --all.", returncode=2)
    there = session_ids()
    if options["all"]:
        return there
    if missing := [session_id for session_id in options["sessions"] if session_id not in there]:
        error = SessionNotFoundError(session_id=missing[0])
        raise CommandError(f"{error.code}: there is no session {missing[0]!r}", returncode=error.exit_status)
    return list(dict.fromkeys(options["sessions"]))
