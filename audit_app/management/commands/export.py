"""``manage.py export SESSION… | --all --out FILE|- [--format jsonl|markdown|html|autobyteus]``."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import CommandError

from audit_app.terminal import ProgressLine, add_session_arguments, chosen_sessions
from audit_app.transfer.export import (
    ENDINGS,
    export_readable,
    export_session,
    not_deleted,
    parents_first,
    parents_of,
    zip_pieces,
)
from audit_app.transfer.readable import memory_files
from mnesis_core.errors import MnesisError
from sessions_app.management.acting import SiteCommand


class Command(SiteCommand):
    help = (
        "Write whole sessions to a file of JSON Lines, which 'manage.py import_session' imports again as they were. "
        "With --format markdown or html, write transcripts to read: a file for each session in a directory or a .zip; "
        "a single session may be a file. With --format autobyteus, write their memory in the layout of Autobyteus."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_session_arguments(parser)
        parser.add_argument("--out", required=True, metavar="FILE", help="the file to write; '-' is standard output")
        parser.add_argument("--format", choices=("jsonl", "markdown", "html", "autobyteus"), default="jsonl")

    def handle(self, *args: Any, **options: Any) -> None:
        self._line = ProgressLine(self.stderr)
        try:
            parents = parents_of(chosen_sessions(options))
            for session_id, parent in parents.items():
                if parent is not None and parent not in parents:
                    words = f"{session_id} can only be imported where its parent is: export {parent} too."
                    self.stderr.write(words)
            sessions = parents_first(parents)
            self._write(sessions, options["format"], options["out"])
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from error
        finally:
            self._line.end()
        self.stderr.write(f"{len(sessions)} sessions exported")

    def _write(self, sessions: list[str], format: str, out: str) -> None:
        if format in ("markdown", "html"):
            # A deleted session can still be proven and moved, but not read.
            sessions = not_deleted(sessions)
        ending = ENDINGS.get(format, "")
        if format == "jsonl":
            with _opened(out) as file:
                for session_id in sessions:
                    file.writelines(export_session(session_id, progress=self._line.show))
        elif format == "autobyteus":
            _write_files(chain.from_iterable(map(memory_files, sessions)), out)
        elif len(sessions) == 1 and (out == "-" or out.endswith(ending)):
            with _opened(out) as file:
                file.writelines(export_readable(sessions[0], format))  # type: ignore[arg-type]
        else:
            _write_files(((f"{id}{ending}", export_readable(id, format)) for id in sessions), out)  # type: ignore[arg-type]


def _write_files(files: Iterator[tuple[str, Iterator[bytes]]], out: str) -> None:
    if not out.endswith(".zip"):
        for path, lines in files:
            (Path(out) / path).parent.mkdir(parents=True, exist_ok=True)
            with _opened(str(Path(out) / path)) as file:
                file.writelines(lines)
        return
    with _opened(out) as file:
        file.writelines(zip_pieces(files))


@contextmanager
def _opened(out: str) -> Iterator[BinaryIO]:
    """Open the file to write to, which has another name until it is whole."""
    if out == "-":
        try:
            yield sys.stdout.buffer
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of a pipe, such as head, has seen enough. Otherwise Python would write what is left when it exits, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise CommandError("The export was not read to its end.", returncode=1) from None
        return
    path = Path(out)
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", returncode=2) from error
    finally:
        unfinished.unlink(missing_ok=True)
