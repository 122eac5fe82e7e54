"""``manage.py export SESSION… | --all --out FILE|- [--format jsonl|markdown|html|autobyteus]``."""

from __future__ import annotations

import os
import sys
import zipfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError

from audit_app.terminal import ProgressLine, add_session_arguments, chosen_sessions
from audit_app.transfer.export import export_readable, export_session, not_deleted, parents_first, parents_of
from audit_app.transfer.readable import memory_files
from mnesis_core.errors import MnesisError

ENDINGS = {"markdown": ".md", "html": ".html"}


class Command(BaseCommand):
    """Write sessions to a file."""

    help = (
        "Write whole sessions to a file: JSON Lines, which 'manage.py import_session' brings in again as they were. "
        "With --format markdown or html, what was said, to be read: a file for each session in a directory or a .zip; "
        "one session alone may be a file. With autobyteus, their memory in the layout of Autobyteus."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Sessions and a file."""
        add_session_arguments(parser)
        parser.add_argument("--out", required=True, metavar="FILE", help="where to; '-' is standard output")
        parser.add_argument("--format", choices=("jsonl", "markdown", "html", "autobyteus"), default="jsonl")

    def handle(self, *args: Any, **options: Any) -> None:
        """Export, with progress."""
        self._line = ProgressLine(self.stderr)
        try:
            sessions = self._in_order(chosen_sessions(options))
            self._write(sessions, options["format"], options["out"])
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from error
        finally:
            self._line.end()
        self.stderr.write(f"{len(sessions)} sessions exported")

    def _write(self, sessions: list[str], format: str, out: str) -> None:
        if format in ENDINGS:
            # A session that was deleted can be proven and moved, and nobody reads it any more.
            sessions = not_deleted(sessions)
        if format == "jsonl":
            self._write_lines(sessions, out)
        elif format != "autobyteus" and len(sessions) == 1 and (out == "-" or out.endswith(ENDINGS[format])):
            with _opened(out) as file:
                file.writelines(export_readable(sessions[0], format))  # type: ignore[arg-type]
        else:
            _write_files(_memory_of(sessions) if format == "autobyteus" else _transcripts_of(sessions, format), out)

    def _write_lines(self, sessions: list[str], out: str) -> None:
        with _opened(out) as file:
            for session_id in sessions:
                file.writelines(export_session(session_id, progress=self._line.show))

    def _in_order(self, sessions: list[str]) -> list[str]:
        parents = parents_of(sessions)
        for session_id, parent in parents.items():
            if parent is not None and parent not in parents:
                self.stderr.write(f"{session_id} is imported only where its parent is: export {parent} too.")
        return parents_first(parents)


def _memory_of(sessions: list[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
    for session_id in sessions:
        yield from memory_files(session_id)


def _transcripts_of(sessions: list[str], format: Any) -> Iterator[tuple[str, Iterator[bytes]]]:
    yield from ((f"{session_id}{ENDINGS[format]}", export_readable(session_id, format)) for session_id in sessions)


def _write_files(files: Iterator[tuple[str, Iterator[bytes]]], out: str) -> None:
    """Write files, each by its path, to a directory or a .zip."""
    if not out.endswith(".zip"):
        for path, lines in files:
            (Path(out) / path).parent.mkdir(parents=True, exist_ok=True)
            with _opened(str(Path(out) / path)) as file:
                file.writelines(lines)
        return
    with _opened(out) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, lines in files:
            with archive.open(path, "w", force_zip64=True) as member:
                member.writelines(lines)


@contextmanager
def _opened(out: str) -> Iterator[BinaryIO]:
    """The file to write to: under another name until it is whole."""
    if out == "-":
        with _reader_may_leave():
            yield sys.stdout.buffer
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


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Standard output may be a pipe whose reader, such as ``head``, has seen enough."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Or Python writes what is left when it exits, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CommandError("The export was not read to its end.", returncode=1) from None
