"""``manage.py move_database --to URL [--json]``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from time import monotonic
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from audit_app.tables import LEFT_BEHIND
from audit_app.terminal import ProgressLine
from audit_app.transfer.move import MoveReport, move_database
from mnesis_core.errors import MnesisError
from mnesis_site.database_url import database

SOURCE, TARGET = "default", "move_target"


class Command(BaseCommand):
    help = (
        "Copy everything from the database in use (DATABASE_URL) to an empty one, SQLite or PostgreSQL, and compare "
        "both at the end. Stop the site first. A move that was interrupted continues when it is run again."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--to", required=True, metavar="URL", help="sqlite:///PATH or postgresql://user@host/NAME")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        self._line = ProgressLine(self.stderr)
        started = monotonic()
        try:
            connect(options["to"])
            report = move_database(SOURCE, TARGET, progress=self._line.show)
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from error
        except (DatabaseError, ImproperlyConfigured) as error:
            raise CommandError(f"The databases cannot be used: {error}", returncode=2) from error
        finally:
            self._line.end()
        self._tell(report, monotonic() - started, as_json=options["json"])
        if not report.ok:
            raise CommandError("Everything was copied, but the record was not whole: see above.", returncode=1)

    def _tell(self, report: MoveReport, seconds: float, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(report.as_dict() | {"seconds": round(seconds, 1)}, indent=2))
            return
        for name, table in report.tables.items():
            if table["rows"]:
                self.stdout.write(f"  {name:28} {table['rows']:>12,} rows, {table['copied']:,} copied now")
        for problem in report.problems:
            self.stdout.write(f"  {problem['session']} entry {problem['seq']}: {problem['detail']}")
        self.stdout.write(summary(report, seconds))


def summary(report: MoveReport, seconds: float) -> str:
    done = f"{report.copied:,} rows copied" if report.copied else "Everything is there already: nothing copied"
    has_files = report.tables.get("file_references", {}).get("rows")
    files = (
        f"The contents of files stay in {settings.DATA_DIR / 'files'}: keep MNESIS_DATA_DIR, or move that folder too.\n"
    )
    return (
        f"{done}, every row compared, in {seconds:,.1f} s. {report.sessions:,} sessions with {report.entries:,} "
        f"ledger entries: {len(report.problems)} problems.\n"
        f"Not copied: {', '.join(LEFT_BEHIND)}. The search index was rebuilt; people have to sign in again.\n"
        f"{files if has_files else ''}"
        f"Now start the site with the new DATABASE_URL ({report.target}) and the same SECRET_KEY, never with the old one."
    )


def connect(url: str) -> None:
    """Make the target known to Django, beside the database in use.

    :raises ImproperlyConfigured: the address is neither SQLite nor PostgreSQL.
    """
    both = {SOURCE: dict(connections.settings[SOURCE]), TARGET: database(url, pooled=False)}
    connections.settings[TARGET] = connections.configure_settings(both)[TARGET]
