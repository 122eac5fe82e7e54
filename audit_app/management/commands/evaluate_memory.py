"""``manage.py evaluate_memory FILE|SESSION… [--windows …] [--models …] [--policies …] [--plant N] [--out DIR] [--json]``."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from audit_app.evaluation.charts import draw_report
from audit_app.evaluation.estimate import estimate_micros
from audit_app.evaluation.job import AskedModel, AskedSession, Job
from audit_app.evaluation.pictures import write_pictures
from audit_app.evaluation.process import Measuring, measuring
from audit_app.evaluation.reports import keep_report, new_report_id, write_report
from audit_app.terminal import ProgressLine
from audit_app.transfer.export import export_session, parents_first, parents_of, session_ids
from mnesis_core.compaction.evaluation.measures import sum_up
from mnesis_core.compaction.evaluation.planting import MOST_FACTS
from mnesis_core.compaction.evaluation.values import POLICIES, Report, read_measurement, read_told
from mnesis_core.compaction.evaluation.wording import say_measured, table_of, write_markdown
from mnesis_core.errors import MnesisError, ModelNotFoundError, SessionNotFoundError
from mnesis_core.records import is_id
from sessions_app.llm.model_store import find_model_entry
from sessions_app.pages.markdown import format_money

SMALLEST_WINDOW, LARGEST_WINDOW = 512, 10_000_000
MOST = 100_000
INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended."""


class Command(BaseCommand):
    help = (
        "Measure what prompts still show of long conversations: facts are planted in each, it is lived turn by turn in "
        "a database of its own, and the prompts of Mnesis are compared with truncation, a rolling summary and the full "
        "history. Files are LoCoMo, QMSum, LongMemEval, or any transcript that import_transcript reads; or name a session."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("conversations", nargs="+", metavar="FILE|SESSION")
        parser.add_argument("--windows", default="4096,8192,32768", type=_windows, help="tokens (default: %(default)s)")
        parser.add_argument("--models", default="demo", type=_names, help="the models' aliases (default: %(default)s)")
        parser.add_argument(
            "--policies", default=",".join(POLICIES), type=_policies, help="what to compare (default: %(default)s)"
        )
        parser.add_argument(
            "--plant", default=40, type=_number(0, MOST_FACTS), help="facts in each conversation (default: %(default)s)"
        )
        parser.add_argument("--seed", default=1, type=_number(0, 2**63), help="of the facts (default: %(default)s)")
        parser.add_argument(
            "--questions",
            default=100,
            type=_number(0, MOST),
            help="of those that come with a conversation, at most so many are asked (default: %(default)s)",
        )
        parser.add_argument(
            "--conversations",
            dest="most",
            default=10,
            type=_number(1, MOST),
            help="at most so many are read from one file (default: %(default)s)",
        )
        parser.add_argument("--answers", action="store_true", help="have the models answer the questions, too")
        parser.add_argument("--out", type=Path, metavar="DIR", help="write the report there, too, with its pictures")
        parser.add_argument("--yes", action="store_true", help="do not ask whether the models may cost money")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        self._line = ProgressLine(self.stderr)
        at = timezone.now()
        self._report = Report(
            id=new_report_id(at), at=at.isoformat(), seed=options["seed"], plant=options["plant"], is_whole=False
        )
        # To stop the command politely ends it as Ctrl-C does, and the other process and its database with it.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            self._evaluate(options)
        except KeyboardInterrupt:
            self._line.end()
            if self._report.measurements:
                self._tell(options)
            raise CommandError("Interrupted. What was measured until then is kept.", returncode=INTERRUPTED) from None
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from error
        except OSError as error:
            raise CommandError(f"{error.filename or 'The report'}: {error.strerror}", returncode=2) from error
        finally:
            self._line.end()
            signal.signal(signal.SIGTERM, before)

    def _evaluate(self, options: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="mnesis-evaluation-") as folder:
            job = _job(options, Path(folder))
            with measuring(job) as process:
                self._measure(process, job, is_agreed=options["yes"])
        self._tell(options)

    def _measure(self, process: Measuring, job: Job, *, is_agreed: bool) -> None:
        self._add(notes=process.notes)
        for name, value in process.lines():
            self._hear(name, value)
        self._ask_for_money(job, is_agreed=is_agreed)
        process.go()
        for name, value in process.lines():
            self._hear(name, value)
        self._report = replace(self._report, is_whole=True)
        keep_report(self._report)

    def _hear(self, name: str, value: Any) -> None:
        if name == "progress":
            what, unit, done, total = value
            self._line.show("done", what, done, total, unit=unit)
        elif name == "note":
            self._add(notes=(value,))
        elif name == "told":
            self._add(conversations=(read_told(value),))
        elif name == "measured":
            measurement = read_measurement(value)
            self._add(measurements=(measurement,))
            # After each, so that nothing that was paid for is lost.
            keep_report(self._report)
            self._line.end()
            self.stderr.write(say_measured(measurement), style_func=str)

    def _add(self, **more: tuple[Any, ...]) -> None:
        grown: dict[str, Any] = {name: (*getattr(self._report, name), *values) for name, values in more.items()}
        self._report = replace(self._report, **grown)

    def _ask_for_money(self, job: Job, *, is_agreed: bool) -> None:
        """:raises CommandError: models may cost money, and nobody agrees."""
        paid = [model for model in job.models if not model.is_demo]
        if not paid or is_agreed:
            return
        micros = estimate_micros(job, self._report.conversations)
        price = "an unknown sum" if micros is None else f"about {format_money(micros)}"
        words = f"{', '.join(model.spec.alias for model in paid)}: this will cost {price}."
        if not sys.stdin.isatty():
            raise CommandError(f"{words} Agree with --yes.", returncode=2)
        self.stderr.write(f"{words} Go on? [y/N] ", ending="", style_func=str)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was measured.", returncode=1)

    def _tell(self, options: dict[str, Any]) -> None:
        report = self._report
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


def _job(options: dict[str, Any], folder: Path) -> Job:
    sessions = [one for one in options["conversations"] if is_id(one) and one.startswith("sess_")]
    return Job(
        files=tuple(str(Path(one).resolve()) for one in options["conversations"] if one not in sessions),
        sessions=tuple(_export(id, folder) for id in sessions),
        models=tuple(map(_model, options["models"])),
        windows=options["windows"],
        policies=options["policies"],
        plant=options["plant"],
        seed=options["seed"],
        questions=options["questions"],
        conversations=options["most"],
        answers=options["answers"],
    )


def _export(session_id: str, folder: Path) -> AskedSession:
    """:raises SessionNotFoundError: there is no such session."""
    there = session_ids()
    if session_id not in there:
        raise SessionNotFoundError(session_id=session_id)
    needed = parents_of([session_id])
    # It can only be imported where its parents are.
    while missing := [parent for parent in needed.values() if parent is not None and parent not in needed]:
        needed |= parents_of(missing)
    path = folder / f"{session_id}.jsonl"
    with path.open("wb") as file:
        for id in parents_first(needed):
            file.writelines(export_session(id))
    return AskedSession(id=session_id, file=str(path))


def _model(alias: str) -> AskedModel:
    """:raises ModelNotFoundError: there is no such model."""
    entry = find_model_entry(alias)
    if entry is None:
        raise ModelNotFoundError(f"no model is called {alias!r}; 'manage.py model list' shows them", model=alias)
    # In a database of its own there are no other models to fall back on.
    return AskedModel(spec=replace(entry.spec, fallbacks=()), api_key_env=entry.api_key_env)


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
