"""``manage.py export SESSION… | --all --out FILE|- [--format jsonl|autobyteus]``."""

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

from audit_app.export import export_session, parents_first, parents_of
from audit_app.memory_layout import memory_files
from audit_app.progress import ProgressLine
from audit_app.sessions import add_session_arguments, chosen_sessions
from mnesis_core.errors import MnesisError


class Command(BaseCommand):
    """Write sessions to a file."""

    help = (
        "Write whole sessions to a file: JSON Lines, which 'manage.py import_session' brings in again as they were. "
        "With --format autobyteus, write their memory to a directory, or to a .zip, in the layout of Autobyteus."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Sessions and a file."""
        add_session_arguments(parser)
        parser.add_argument("--out", required=True, metavar="FILE", help="where to; '-' is standard output")
        parser.add_argument("--format", choices=("jsonl", "autobyteus"), default="jsonl")

    def handle(self, *args: Any, **options: Any) -> None:
        """Export, with progress."""
        self._line = ProgressLine(self.stderr)
        try:
            sessions = self._in_order(chosen_sessions(options))
            write = self._write_memory if options["format"] == "autobyteus" else self._write_lines
            write(sessions, options["out"])
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from error
        finally:
            self._line.end()
        self.stderr.write(f"{len(sessions)} sessions exported")

    def _write_lines(self, sessions: list[str], out: str) -> None:
        with _opened(out) as file:
            for session_id in sessions:
                file.writelines(export_session(session_id, progress=self._line.show))

    def _write_memory(self, sessions: list[str], out: str) -> None:
        if not out.endswith(".zip"):
            _write_directory(sessions, Path(out))
            return
        with _opened(out) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, lines in _memory_of(sessions):
                with archive.open(path, "w", force_zip64=True) as member:
                    member.writelines(lines)

    def _in_order(self, sessions: list[str]) -> list[str]:
        parents = parents_of(sessions)
        for session_id, parent in parents.items():
            if parent is not None and parent not in parents:
                self.stderr.write(f"{session_id} is imported only where its parent is: export {parent} too.")
        return parents_first(parents)


def _memory_of(sessions: list[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
    for session_id in sessions:
        yield from memory_files(session_id)


def _write_directory(sessions: list[str], directory: Path) -> None:
    for path, lines in _memory_of(sessions):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        with _opened(str(directory / path)) as file:
            file.writelines(lines)


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
