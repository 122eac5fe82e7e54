"""``manage.py verify SESSION… | --all [--json] [--jobs N]``."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from time import monotonic
from typing import Any

from django.core.management.base import CommandError

from audit_app.proof.verify import DAMAGED, Report, reason_of, verify_all, verify_sessions
from audit_app.terminal import ProgressLine, add_session_arguments, chosen_sessions
from sessions_app.management.acting import SiteCommand


class Command(SiteCommand):
    help = (
        "Prove that ledgers are whole and that the rows match them: every entry's hash, every commitment, nothing "
        "missing, nothing added. Exits with 1 if anything is not as it was written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_session_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print {ok, checked, problems} as JSON")
        parser.add_argument(
            "--jobs", type=int, default=os.cpu_count() or 1, help="number of processes (default: one for each core)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        line, started, jobs = ProgressLine(self.stderr), monotonic(), max(1, options["jobs"])

        def show(done: int) -> None:
            line.show("verified", "Entries", done, 0)

        try:
            if options["all"] and not options["sessions"]:
                report = verify_all(jobs=jobs, progress=show)
            else:
                report = verify_sessions(chosen_sessions(options), jobs=jobs, progress=show)
        except DAMAGED as error:
            raise CommandError(f"The database does not answer: {reason_of(error)}.") from error
        line.end()
        if options["json"]:
            self.stdout.write(json.dumps(report.as_dict(), indent=2))
        else:
            self._tell(report, monotonic() - started)
        if not report.ok:
            raise CommandError(f"{len(report.problems)} problems: the record is not as it was written.")

    def _tell(self, report: Report, seconds: float) -> None:
        for problem in report.problems:
            where = f"{problem.session} " + (f"entry {problem.seq} " if problem.seq else "")
            self.stdout.write(f"{where if problem.session else ''}{problem.kind}: {problem.detail}")
        self.stdout.write(
            f"{report.sessions:,} sessions, {report.entries:,} entries, {report.commitments:,} commitments to rows "
            f"in {seconds:.1f} s ({report.entries / max(seconds, 0.001):,.0f} entries/s)"
        )
        if report.first_form_entries:
            self.stdout.write(f"{report.first_form_entries:,} of the entries are of the first form.")
        if report.unbound_sessions:
            self.stdout.write(
                f"{report.unbound_sessions:,} of them began before rows were bound to the ledger: of their older rows, "
                "context, states and counters are proven, but not the texts."
            )
        for session_id in report.moved:
            self.stdout.write(
                f"{session_id} belongs to another account than the one that began it (an import does that)."
            )
        if report.ok:
            self.stdout.write("Everything is as it was written.")
