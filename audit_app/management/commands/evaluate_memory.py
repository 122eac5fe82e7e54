"""``manage.py evaluate_memory FILE|SESSION… [--windows …] [--models …] [--policies …] [--plant N] [--out DIR] [--json]``."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from audit_app.evaluation.charts import draw_report, write_pictures
from audit_app.evaluation.evaluate import (
    CONVERSATIONS,
    PLANTED,
    QUESTIONS,
    SEED,
    WINDOWS,
    Evaluation,
    export_for,
    find_asked_model,
    find_helpers,
    new_report,
    write_report,
)
from audit_app.evaluation.job import Job, estimate_micros
from audit_app.terminal import ProgressLine
from mnesis_core.compaction.evaluation.datasets import MOST_FACTS
from mnesis_core.compaction.evaluation.measures import (
    LARGEST_NUMBER,
    POLICIES,
    Measurement,
    Report,
    Told,
    say_measured,
    sum_up,
    table_of,
    write_markdown,
)
from mnesis_core.errors import MnesisError
from mnesis_core.records import is_id
from sessions_app.management.acting import SiteCommand
from sessions_app.pages.formats import format_money

SMALLEST_WINDOW, LARGEST_WINDOW = 512, 10_000_000
MOST = 100_000
INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended."""


class Command(SiteCommand):
    help = (
        "Measure how much of long conversations prompts still show. Facts are planted in each conversation, it is "
        "repeated turn by turn in a database of its own, and the prompts of Mnesis are compared with truncation, a rolling "
        "summary and the full history. Takes LoCoMo, QMSum, LongMemEval, any transcript that import_transcript reads, or a session."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("conversations", nargs="+", metavar="FILE|SESSION")
        parser.add_argument(
            "--windows",
            default=",".join(map(str, WINDOWS)),
            type=_windows,
            help="context windows, in tokens (default: %(default)s)",
        )
        parser.add_argument("--models", default="demo", type=_names, help="the models' aliases (default: %(default)s)")
        parser.add_argument(
            "--policies", default=",".join(POLICIES), type=_policies, help="policies to compare (default: %(default)s)"
        )
        parser.add_argument(
            "--plant",
            default=PLANTED,
            type=_number(0, MOST_FACTS),
            help="facts to plant in each conversation (default: %(default)s)",
        )
        parser.add_argument(
            "--seed",
            default=SEED,
            type=_number(0, LARGEST_NUMBER),
            help="seed for planting facts (default: %(default)s)",
        )
        parser.add_argument(
            "--questions",
            default=QUESTIONS,
            type=_number(0, MOST),
            help="the most questions to ask of those that come with a conversation (default: %(default)s)",
        )
        parser.add_argument(
            "--conversations",
            dest="most",
            default=CONVERSATIONS,
            type=_number(1, MOST),
            help="the most conversations to read from one file (default: %(default)s)",
        )
        parser.add_argument("--answers", action="store_true", help="also have the models answer the questions")
        parser.add_argument(
            "--out", type=Path, metavar="DIR", help="also write the report and its charts to this directory"
        )
        parser.add_argument("--yes", action="store_true", help="skip the question about what the models may cost")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        self._line, self._is_agreed = ProgressLine(self.stderr), options["yes"]
        evaluation = Evaluation(
            report=new_report(plant=options["plant"], seed=options["seed"]),
            show=lambda where, unit, done, total: self._line.show("done", where, done, total, unit=unit),
            is_measured=self._say_measured,
            agree=self._ask_for_money,
        )
        # To stop the command politely ends it as Ctrl-C does, and the other process and its database with it.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with tempfile.TemporaryDirectory(prefix="mnesis-evaluation-") as directory:
                evaluation.run(_job(options, Path(directory)))
            self._tell(evaluation.report, options)
        except KeyboardInterrupt:
            self._line.end()
            kept = "Nothing had been measured."
            if evaluation.report.measurements:
                self._tell(evaluation.report, options)
                kept = "What was measured until then is kept."
            raise CommandError(f"Interrupted. {kept}", returncode=INTERRUPTED) from None
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from error
        except OSError as error:
            raise CommandError(f"{error.filename or 'The report'}: {error.strerror}", returncode=2) from error
        finally:
            self._line.end()
            signal.signal(signal.SIGTERM, before)

    def _say_measured(self, measurement: Measurement) -> None:
        self._line.end()
        self.stderr.write(say_measured(measurement), style_func=str)

    def _ask_for_money(self, job: Job, conversations: tuple[Told, ...]) -> None:
        """:raises CommandError: models may cost money, and nobody agrees."""
        paid = [model for model in (*job.models, *job.helpers) if not model.is_demo]
        if not paid or self._is_agreed:
            return
        micros = estimate_micros(job, conversations)
        price = "an unknown sum" if micros is None else f"about {format_money(micros)}"
        words = f"{', '.join(model.spec.alias for model in paid)}: this will cost {price}."
        if not sys.stdin.isatty():
            raise CommandError(f"{words} Agree with --yes.", returncode=2)
        self.stderr.write(f"{words} Go on? [y/N] ", ending="", style_func=str)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was measured.", returncode=1)

    def _tell(self, report: Report, options: dict[str, Any]) -> None:
        if options["out"]:
            options["out"].mkdir(parents=True, exist_ok=True)
            write_report(report, options["out"] / "report.json")
            pictures = write_pictures(draw_report(report), options["out"])
            (options["out"] / "report.md").write_text(write_markdown(report, pictures), encoding="utf-8")
        if options["json"]:
            self.stdout.write(json.dumps(report.as_dict(), indent=2))
            return
        header, rows = table_of(sum_up(report))
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, *rows):
            self.stdout.write("  ".join(map(str.rjust, row, widths)))
        self.stdout.write(f"\nThe report {report.id} is on the page Evaluations, for staff.")


def _job(options: dict[str, Any], directory: Path) -> Job:
    sessions = [one for one in options["conversations"] if is_id(one) and one.startswith("sess_")]
    return Job(
        files=tuple(str(Path(one).resolve()) for one in options["conversations"] if one not in sessions),
        sessions=tuple(export_for(id, directory) for id in sessions),
        models=tuple(map(find_asked_model, options["models"])),
        helpers=find_helpers(),
        windows=options["windows"],
        policies=options["policies"],
        plant=options["plant"],
        seed=options["seed"],
        questions=options["questions"],
        conversations=options["most"],
        answers=options["answers"],
    )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ArgumentTypeError("name at least one")
    return names


def _windows(text: str) -> tuple[int, ...]:
    return tuple(map(_number(SMALLEST_WINDOW, LARGEST_WINDOW), _names(text)))


def _policies(text: str) -> tuple[str, ...]:
    names = _names(text)
    if unknown := [name for name in names if name not in POLICIES]:
        raise ArgumentTypeError(f"there is no policy {unknown[0]!r}; there are: {', '.join(POLICIES)}")
    return names


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with suppress(ValueError):
            if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
                return int(text)
        raise ArgumentTypeError(f"{text!r} is not a number from {least:,} to {most:,}")

    return read
