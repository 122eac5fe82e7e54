"""What every command about sessions has: whose they are, JSON on request, and errors with the registry's exit status."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError

from mnesis_core.endings import TurnCancelled
from mnesis_core.errors import InvalidRequest, MnesisError
from mnesis_core.text import printable
from sessions_app.faults import as_error
from sessions_app.rendering import show_invisible
from sessions_app.schemas import JSONEncoder

PIPED = "-"
"""The word of a message, or the path, that stands for what is piped in."""


class DoorCommand(BaseCommand):
    """A command that is a door: parses, makes one call, and says what came of it."""

    def add_common(self, parser: ArgumentParser) -> None:
        """The arguments that each has."""
        parser.add_argument("--user", help="whose sessions (default: the first administrator)")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON, errors too")

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run, and turn whatever goes wrong into an exit status and a line on standard error.

        :raises CommandError: what went wrong.
        """
        try:
            return super().execute(*args, **options)
        except CommandError:
            raise
        except KeyboardInterrupt:
            raise SystemExit(TurnCancelled.exit_status) from None
        except BrokenPipeError:
            # Whoever read the output has enough of it; Python would write the rest at its end, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except Exception as exception:
            error = as_error(exception, asked=f"the command {self.__module__.rpartition('.')[2]}")
            if options.get("as_json"):
                self.print_json({"error": error.as_dict()})
            raise failed(error) from None

    def print_json(self, value: Any) -> None:
        """A value as JSON. Lone surrogates leave escaped."""
        self.stdout.write(json.dumps(value, cls=JSONEncoder, indent=2))

    def print_text(self, text: str) -> None:
        """A piece of text at once, without a line's end."""
        self.stdout.write(self.readable(text), ending="")
        self.stdout.flush()

    def print_note(self, text: str) -> None:
        """A line about what happens, apart from the output."""
        self.stderr.write(show_invisible(text), style_func=str)

    def readable(self, text: str) -> str:
        """What others wrote, for the output: whole for a program, and at a terminal nothing that the terminal obeys."""
        return show_invisible(text) if self.stdout.isatty() else printable(text)


def failed(error: MnesisError) -> CommandError:
    """An error as a command ends with it."""
    return CommandError(show_invisible(f"{error.code}: {error.message}"), returncode=error.exit_status)


def read_message(words: Sequence[str], source: IO[str] | None = None) -> str:
    """What the words of a command say; ``-``, or no word at all, stands for what is piped in.

    :raises InvalidRequest: there is neither a word nor a pipe.
    """
    source = source or sys.stdin
    if words and PIPED not in words:
        return " ".join(words)
    if source.isatty():
        raise InvalidRequest("Say something: as an argument, or piped into this command.", field="message")
    said = [" ".join(word for word in words if word != PIPED), source.read()]
    return "\n\n".join(text for text in said if text.strip())


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file of this machine, or what is piped in, to be read.

    :raises InvalidRequest: it cannot be opened.
    """
    if path == PIPED:
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below; what is done with it may fail otherwise
    except OSError as problem:
        raise InvalidRequest(f"{path} cannot be read: {problem.strerror}", field="path") from None
    with file:
        yield file
