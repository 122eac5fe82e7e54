"""Story: files that somebody sent become their sessions: an export of ours as it was, what other systems wrote as a transcript."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import IO, Any

from django.contrib.auth.models import User

from audit_app.importing import import_sessions
from audit_app.imports import Import, end_import, held, note_progress
from mnesis_core.errors import InvalidRequest, MnesisError, RequestTooLarge
from mnesis_core.session_file import FORMAT, MAX_LINE_BYTES
from mnesis_core.transcripts import FORMATS, NamedSource, ParseResult, detect_format, is_companion
from sessions_app.conf import site_config
from sessions_app.faults import as_error
from sessions_app.importing import store_transcripts

FIRST_BYTES = 65_536
PACE = 0.5
"""Seconds between two notes of how far it is."""
MOST_NOTES = 50
MOST_ATTEMPTS = 3
_GZIP = b"\x1f\x8b"
_OURS = f'{{"format":"{FORMAT}"'.encode()

Told = Callable[[str, str, int, int], None]
"""What is done, its unit, how many of them, of how many."""


def bring_in(import_id: str) -> None:
    """Do the work of one import, unless somebody has done it or is at it. What came in before it failed stays.

    One that has lost ``MOST_ATTEMPTS`` workers is given up: perhaps whoever takes it up dies of it.
    """
    with held(import_id) as about:
        if about is None:
            return
        if about.attempts >= MOST_ATTEMPTS:
            error = MnesisError(f"{MOST_ATTEMPTS} workers were lost over these files. What came in is kept.")
            end_import(about, state="failed", error=error.as_dict())
            return
        work = _Work(note_progress(about, state="running", attempts=about.attempts + 1))
        try:
            work.run()
        except Exception as exception:
            error = as_error(_in_words(exception), asked=f"import {import_id}")
            end_import(work.about, state="failed", error=error.as_dict(), session_ids=tuple(work.session_ids))
            return
        end_import(work.about, state="done", session_ids=tuple(work.session_ids), notes=tuple(work.notes[:MOST_NOTES]))


def _in_words(exception: Exception) -> Exception:
    if isinstance(exception, EOFError | zlib.error | gzip.BadGzipFile):
        return InvalidRequest(f"A packed file is damaged or was cut off: {exception}.")
    return exception


class _Work:
    """One import under way."""

    def __init__(self, about: Import) -> None:
        self.about = about
        self.session_ids: list[str] = []
        self.notes: list[str] = []
        self._told = 0.0

    def run(self) -> None:
        """:raises MnesisError: a file cannot be brought in."""
        files = list(zip(self.about.names, self.about.paths, strict=True))
        companions = [file for file in files if is_companion(file[0])]
        for name, path in [file for file in files if file not in companions] or files:
            if _first_bytes(path).lstrip().startswith(_OURS):
                self._take_export(path)
            else:
                self._take_transcript(name, path, [other for other in companions if other[1] != path])

    def _take_export(self, path: Path) -> None:
        done = import_sessions(
            lambda: _lines(path),
            owner_id=self.about.owner_id,
            progress=lambda verb, session_id, done, total: self._tell(verb, "rows", done, total),
        )
        self._found([session.session_id for session in done])
        known = sum(not session.imported for session in done)
        self.notes += [f"{known} of the sessions were here already, the very same."] if known else []

    def _take_transcript(self, name: str, path: Path, companions: list[tuple[str, Path]]) -> None:
        result = self._read(name, path, companions)
        owner = User.objects.get(pk=self.about.owner_id)
        stored = store_transcripts(
            result,
            owner=owner,
            model=self.about.model,
            progress=lambda done, total: self._tell("stored", "turns", done, total),
        )
        self._found(list(stored.sessions.values()))
        self.notes += [f"Skipped {one.count} {one.kind}: {one.reason}" for one in result.report.skipped]
        self.notes += [f"{note.count} x {note.text}" for note in result.report.notes]
        if stored.turns_known:
            self.notes.append(f"{stored.turns_known:,} turns were here already, from an earlier import.")

    def _read(self, name: str, path: Path, companions: list[tuple[str, Path]]) -> ParseResult:
        format = detect_format(name, _first_bytes(path))
        with ExitStack() as stack:
            beside = [
                NamedSource(name=other, source=stack.enter_context(_opened(place)))
                for other, place in (companions if format == "claude_code" else [])
            ]
            return FORMATS[format](
                stack.enter_context(_opened(path)),
                name=name,
                companions=beside,
                progress=lambda done: self._tell("read", "bytes", done, 0),
            )

    def _found(self, session_ids: list[str]) -> None:
        self.session_ids += [id for id in session_ids if id not in self.session_ids]

    def _tell(self, verb: str, unit: str, done: int, total: int) -> None:
        if monotonic() - self._told < PACE:
            return
        self._told = monotonic()
        self.about = note_progress(self.about, verb=verb, unit=unit, done=done, total=total)


class _Unpacked(io.RawIOBase):
    """What a packed file holds, and no more than may be: a few kilobytes may unpack to terabytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._packed, self._file = file, gzip.GzipFile(fileobj=file)
        self._room = site_config().files.import_unpacked_bytes

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._packed.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self._room -= count
        if self._room < 0:
            most = site_config().files.import_unpacked_bytes
            raise RequestTooLarge(f"A packed file holds more than the {most:,} bytes that an import may have.")
        return count


def _opened(path: Path) -> io.BufferedReader:
    file = path.open("rb")
    return io.BufferedReader(_Unpacked(file), FIRST_BYTES) if file.peek(2)[:2] == _GZIP else file


def _first_bytes(path: Path) -> bytes:
    with _opened(path) as file:
        return file.read(FIRST_BYTES)


def _lines(path: Path) -> Iterator[bytes]:
    with _opened(path) as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            yield line
