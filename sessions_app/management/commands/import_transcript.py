"""``manage.py import_transcript FILE… [--format …] [--user …] [--model …] [--json]``."""

from __future__ import annotations

import gzip
import io
import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.management.base import CommandError

from mnesis_core.errors import MnesisError
from mnesis_core.files.kinds.archive import ZipMembers
from mnesis_core.transcripts import FORMATS, detect_format
from mnesis_core.transcripts.autobyteus import by_agent, is_of_layout
from mnesis_core.transcripts.claude_code import is_companion
from mnesis_core.transcripts.values import NamedSource, ParseResult
from sessions_app.conf import default_model, get_spec, site_config
from sessions_app.management.acting import RecordCommand, find_user
from sessions_app.record.histories import store_transcripts

FIRST_BYTES = 65_536


class Command(RecordCommand):
    help = (
        "Import conversations: Claude Code JSONL (with its sub-agents' files beside it), LoCoMo JSON, "
        "OpenAI chat JSON or JSONL, the ChatGPT export, Autobyteus' memory (a folder, or a zip of one). Files may be gzipped. Repeating an import adds only what is new."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
        parser.add_argument("--format", choices=sorted(FORMATS), help="the format of the files (default: detect each)")
        parser.add_argument("--user", help="the owner of the sessions (default: the first administrator)")
        parser.add_argument("--model", default="", help="the model to continue with (default: MNESIS_DEFAULT_MODEL)")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        reports: list[dict[str, Any]] = []
        try:
            owner = find_user(options["user"])
            model = get_spec(options["model"] or default_model(), user_id=owner.pk).alias
            for path in chain.from_iterable(map(_files_of, options["files"])):
                if path.suffix == ".zip":
                    reports += self._import_zip(path, owner, model)
                else:
                    reports.append(self._import(path, options["format"], owner, model))
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from None
        if options["json"]:
            self.stdout.write(json.dumps(reports, indent=2))

    def _import(self, path: Path, format: str | None, owner: AbstractBaseUser, model: str) -> dict[str, Any]:
        with ExitStack() as stack:
            source = stack.enter_context(_open(path))
            if format is None and is_of_layout(path.name):
                format = "autobyteus"
            if format is None:
                with _open(path) as beginning:
                    format = detect_format(path.name, beginning.read(FIRST_BYTES))
            companions = []
            if format == "autobyteus":
                for file in sorted(path.parent.iterdir()):
                    if file != path and is_of_layout(file.name):
                        companions.append(NamedSource(name=file.name, source=stack.enter_context(_open(file))))
            if format == "claude_code":
                # The files of its sub-agents are beside it, or in a folder named after it.
                stem = path.name.split(".")[0]
                inner = (stem, f"{stem}_subagents", f"{stem}/subagents")
                folders = [path.parent, *(path.parent / name for name in inner)]
                beside = [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir())]
                for file in beside:
                    if file.is_file() and file != path and is_companion(file.name):
                        companions.append(NamedSource(name=file.name, source=stack.enter_context(_open(file))))
            result = self._read(format, NamedSource(name=path.name, source=source), companions)
        return self._store(path.name, result, owner, model)

    def _import_zip(self, path: Path, owner: AbstractBaseUser, model: str) -> Iterator[dict[str, Any]]:
        try:
            archive = ZipMembers(path, most_bytes=site_config().files.import_unpacked_bytes)
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}", returncode=2) from None
        for names in by_agent(archive.names):
            with ExitStack() as stack:
                sources = [
                    NamedSource(name=name.rpartition("/")[2], source=stack.enter_context(archive.open(name)))
                    for name in names
                ]
                result = self._read("autobyteus", sources[0], sources[1:])
            yield self._store(path.name, result, owner, model)

    def _read(self, format: str, file: NamedSource, companions: list[NamedSource]) -> ParseResult:
        read = self._progress("read", "bytes")
        result = FORMATS[format](
            file.source, name=file.name, companions=companions, progress=lambda done: read(done, 0)
        )
        self._end_line()
        return result

    def _store(self, name: str, result: ParseResult, owner: AbstractBaseUser, model: str) -> dict[str, Any]:
        stored = store_transcripts(result, owner=owner, model=model, progress=self._progress("stored", "turns"))
        self._end_line()
        report = {"file": name} | result.report.as_dict() | asdict(stored)
        self._tell(report)
        return report

    def _progress(self, verb: str, unit: str) -> Any:
        def show(done: int, total: int) -> None:
            if sys.stderr.isatty():
                of = f" of {total:,}" if total else ""
                self.stderr.write(f"\r{verb} {done:,}{of} {unit} ", ending="")

        return show

    def _end_line(self) -> None:
        if sys.stderr.isatty():
            self.stderr.write("")

    def _tell(self, report: dict[str, Any]) -> None:
        read, stored = sum(report["read"].values()), sum(report["stored"].values())
        self.stderr.write(f"{report['file']} ({report['format']}): {read} records read, {stored} stored")
        for skipped in report["skipped"]:
            self.stderr.write(f"  skipped {skipped['count']} {skipped['kind']}: {skipped['reason']}")
        for note in report["notes"]:
            self.stderr.write(f"  {note['count']} x {note['text']}")
        self.stderr.write(
            f"  {report['sessions_created']} sessions created, {report['turns_stored']} turns with "
            f"{report['messages_stored']} messages and {report['facts_stored']} facts stored, "
            f"{report['turns_known']} turns known already"
        )
        for session_id in report["sessions"].values():
            self.stderr.write(f"  {session_id}")


def _files_of(path: Path) -> list[Path]:
    """Return what to import of a path: of a folder, the active file of each agent of Autobyteus below it."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("raw_traces.jsonl*") if is_of_layout(file.name))
    if not found:
        raise CommandError(
            f"{path} holds no raw_traces.jsonl, and only Autobyteus' folders are imported whole", returncode=2
        )
    return found


def _open(path: Path) -> io.BufferedIOBase:
    try:
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", returncode=2) from None
