"""``manage.py import_session FILE… [--user …] [--json]``."""

from __future__ import annotations

import gzip
import json
import zlib
from argparse import ArgumentParser
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from audit_app.terminal import ProgressLine
from audit_app.transfer.imports import import_sessions, lines_of
from mnesis_core.errors import MnesisError
from sessions_app.management.acting import RecordCommand, find_user


class Command(RecordCommand):
    help = (
        "Import sessions that 'manage.py export' wrote, as they were: same ids, same ledger. Files may be gzipped. "
        "Repeating an import is safe. For conversations of other systems, use import_transcript."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
        parser.add_argument("--user", help="the account that will own the sessions (default: the first administrator)")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        line, reports = ProgressLine(self.stderr), []
        owner_id = find_user(options["user"]).pk
        for path in options["files"]:
            read = partial(lines_of, partial(gzip.open if path.suffix == ".gz" else open, path, "rb"))
            try:
                done = import_sessions(read, owner_id=owner_id, progress=line.show)
            except MnesisError as error:
                words = f"{error.code}: {path.name}: {error.message}"
                raise CommandError(words, returncode=error.exit_status) from error
            except (OSError, EOFError, zlib.error) as error:
                raise CommandError(f"{path} cannot be read: {error}", returncode=2) from error
            finally:
                line.end()
            for session in done:
                what = f"imported, {session.rows:,} rows" if session.imported else "already here, identical"
                self.stderr.write(f"{session.session_id}: {what}")
                reports.append({"file": path.name} | asdict(session))
        if options["json"]:
            self.stdout.write(json.dumps(reports, indent=2))
