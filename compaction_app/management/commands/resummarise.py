"""``manage.py resummarise SUMMARY [--subtree] [--stale] [--model ALIAS] [--prompt FILE] | --apply PREVIEW | --show PREVIEW | --undo SUMMARY``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from compaction_app import queries, revise
from mnesis_core.compaction.requests import parse_prompt
from mnesis_core.errors import MnesisError
from mnesis_core.text import printable
from sessions_app.management.acting import RecordCommand
from sessions_app.pages.formats import format_money


class Command(RecordCommand):
    help = (
        "Ask for a summary again, with another model or prompt if you like. This makes a preview and shows what would "
        "change; the summary, its context and its session stay as they are until --apply. Every revision can be undone."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("summary", nargs="?", metavar="SUMMARY", help="make a preview of this one")
        what.add_argument("--show", metavar="PREVIEW", help="show a preview's difference once more")
        what.add_argument("--apply", metavar="PREVIEW", help="put exactly this preview in place")
        what.add_argument(
            "--undo", metavar="SUMMARY", help="restore the earlier text of a summary, as one more revision"
        )
        parser.add_argument(
            "--subtree", action="store_true", help="with everything below it (--undo: everything applied with it)"
        )
        parser.add_argument("--stale", action="store_true", help="only stale summaries")
        parser.add_argument(
            "--model", default="", metavar="ALIAS", help="the model to ask (default: the one that summarises here)"
        )
        parser.add_argument(
            "--prompt", type=Path, metavar="FILE", help="a prompt file; see mnesis_core/compaction/prompts/level1.md"
        )
        parser.add_argument("--to", metavar="SUMMARY", help="with --undo: the revision whose text comes back")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["apply"]:
                self._list("applied", revise.apply(options["apply"]), options)
            elif options["undo"]:
                undone = revise.undo(options["undo"], to=options["to"], subtree=options["subtree"])
                self._list("undone", undone, options)
            elif options["show"]:
                self._show(options["show"], options)
            else:
                path = options["prompt"]
                try:
                    prompt = parse_prompt("custom", path.read_text(encoding="utf-8")) if path else None
                except (OSError, ValueError) as error:
                    raise CommandError(f"{path}: {error}", returncode=2) from error
                chosen = {"subtree": options["subtree"], "only_stale": options["stale"]}
                made = revise.preview(options["summary"], **chosen, model=options["model"], prompt=prompt)
                self._show(made, options)
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from None

    def _show(self, preview_id: str, options: dict[str, Any]) -> None:
        found = queries.compare_previews(preview_id)
        if options["json"]:
            values = {"preview_id": preview_id, "items": [asdict(comparison) for comparison in found]}
            self.stdout.write(json.dumps(values, default=str, indent=2))
            return
        for comparison in found:
            preview, before = comparison.preview, comparison.before
            heading = (
                f"{before.kind} {before.id}, messages {before.first_seq} to {before.last_seq}, "
                f"would become {preview.id}\n"
                f"level {before.level} → {preview.level}, {before.token_count:,} → {preview.token_count:,} tokens, "
                f"{before.model or 'no model'} → {preview.model or 'no model'}, "
                f"asking cost {format_money(preview.cost_micros)}{'' if comparison.lines else ', the same text'}"
            )
            self.stdout.write("\n".join([heading, *map(printable, comparison.lines), ""]))
        self.stdout.write(f"Nothing has changed yet. To apply it: manage.py resummarise --apply {preview_id}")

    def _list(self, word: str, ids: list[str], options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps({word: ids}) if options["json"] else "\n".join(f"{word} {id}" for id in ids))
