"""``manage.py replay SESSION… | --all [--check] [--at SEQ] [--json]``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from audit_app.proof.verify import check_replay, replay_session
from audit_app.terminal import add_session_arguments, chosen_sessions
from mnesis_core.errors import MnesisError
from sessions_app.management.acting import SiteCommand


class Command(SiteCommand):
    help = (
        "Rebuild context items, states and counters from the ledger alone. With --check, compare them with the rows "
        "and exit with 1 if they differ."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_session_arguments(parser)
        parser.add_argument("--check", action="store_true", help="compare with the rows")
        parser.add_argument("--at", type=int, metavar="SEQ", help="rebuild them as of this entry")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["check"] and options["at"] is not None:
            raise CommandError(
                "--check compares with the rows as they are now; do not combine it with --at.", returncode=2
            )
        found: dict[str, Any] = {}
        try:
            for session_id in chosen_sessions(options):
                if options["check"]:
                    found[session_id] = [asdict(difference) for difference in check_replay(session_id)]
                    lines = [f"{session_id} {json.dumps(difference)}" for difference in found[session_id]]
                else:
                    projection = replay_session(session_id, at=options["at"])
                    found[session_id] = asdict(projection)
                    items = list(projection.items.values())
                    present = sum(item.removed_seq is None for item in items)
                    lines = [
                        f"{session_id}: {projection.turn_seq} turns, {projection.message_seq} messages, "
                        f"{len(projection.summaries)} summaries, {present} of {len(items)} items in context, "
                        f"{len(projection.tombstones)} tombstones"
                    ]
                for line in [] if options["json"] else lines:
                    self.stdout.write(line)
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from error
        if options["json"]:
            self.stdout.write(json.dumps(found, indent=2))
        if not options["check"]:
            return
        if different := [session_id for session_id, answer in found.items() if answer]:
            raise CommandError(f"{len(different)} of {len(found)} sessions differ from their ledger.")
        self.stderr.write(f"{len(found):,} sessions match their ledgers.")
