"""``manage.py import_session FILE… [--user …] [--json]``."""

from __future__ import annotations

import gzip
import json
import zlib
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents_app.endpoints.terminal import find_user
from audit_app.terminal import ProgressLine
from audit_app.transfer.imports import ImportedSession, import_sessions
from mnesis_core.errors import MnesisError
from mnesis_core.transcripts.session_file import MAX_LINE_BYTES


class Command(BaseCommand):
    help = (
        "Import sessions that 'manage.py export' wrote, as they were: same ids, same ledger. Files may be gzipped. "
        "Repeating an import is safe. For conversations of other systems, use import_transcript."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
        parser.add_argument("--user", help="the account that will own the sessions (default: the first administrator)")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        self._line = ProgressLine(self.stderr)
        reports = []
        try:
            owner_id = find_user(options["user"]).pk
            for path in options["files"]:
                done = self._import(path, owner_id)
                reports += [{"file": path.name} | asdict(session) for session in done]
        finally:
            self._line.end()
        if options["json"]:
            self.stdout.write(json.dumps(reports, indent=2))

    def _import(self, path: Path, owner_id: int) -> list[ImportedSession]:
        try:
            done = import_sessions(lambda: _lines(path), owner_id=owner_id, progress=self._line.show)
        except MnesisError as error:
            raise CommandError(f"{error.code}: {path.name}: {error.message}", returncode=error.exit_status) from error
        except (OSError, EOFError, zlib.error) as error:
            raise CommandError(f"{path} cannot be read: {error}", returncode=2) from error
        self._line.end()
        for session in done:
            what = f"imported, {session.rows:,} rows" if session.imported else "already here, identical"
            self.stderr.write(f"{session.session_id}: {what}")
        return done


def _lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            yield line
