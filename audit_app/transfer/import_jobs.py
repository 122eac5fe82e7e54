"""Imports of files that become sessions: exports of this program, or transcripts of other systems.

The files and the progress of an import are kept in the data directory. Only the sessions become part of the record.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import IO, Any, Literal

from django.conf import settings
from django.contrib.auth.models import User
from django_q.tasks import async_task

from audit_app.transfer.import_session import import_sessions
from mnesis_core.errors import InvalidRequest, MnesisError, RequestTooLarge, UploadNotFound
from mnesis_core.files.footers import name_of_upload
from mnesis_core.transcripts import FORMATS, NamedSource, detect_format, is_companion
from mnesis_core.transcripts.session_file import FORMAT, MAX_LINE_BYTES
from mnesis_core.values import is_id, new_id
from sessions_app.conf import site_config
from sessions_app.database.outages import to_error
from sessions_app.record.histories import store_transcripts

TASK = "audit_app.tasks.run_import"
# The cluster kills a worker that takes longer: it hangs.
TASK_SECONDS = 3_600
MOST_FILES = 50
# An import and its outcome are forgotten after a day.
KEPT_SECONDS = 86_400.0

FIRST_BYTES = 65_536
# Seconds between two notes of progress.
PACE = 0.5
MOST_NOTES = 50
MOST_ATTEMPTS = 3
_GZIP = b"\x1f\x8b"
_OURS = f'{{"format":"{FORMAT}"'.encode()

State = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    id: str
    owner_id: int
    # The names of the files, in the order in which they were sent.
    names: tuple[str, ...]
    # Alias of the model that the sessions continue with.
    model: str
    state: State = "waiting"
    # Workers that have begun it.
    attempts: int = 0
    # The current step: read or stored.
    verb: str = ""
    unit: str = ""
    done: int = 0
    # In units; 0 while it is unknown.
    total: int = 0
    session_ids: tuple[str, ...] = ()
    # What was skipped, or is kept in another form.
    notes: tuple[str, ...] = ()
    # code, message and details.
    error: dict[str, Any] | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ("done", "failed")

    @property
    def paths(self) -> list[Path]:
        return [_folder(self.id) / str(number) for number in range(len(self.names))]


def begin_import(files: Iterable[tuple[str, Iterable[bytes]]], *, owner_id: int, model: str) -> Import:
    """Keep files, each a name and its bytes, and queue their import.

    :raises InvalidRequest: there are none, or too many.
    :raises RequestTooLarge: together they are larger than an import may be.
    """
    oldest = time.time() - KEPT_SECONDS
    for folder in _folder().iterdir():
        with suppress(FileNotFoundError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder)
    id = new_id("import")
    _folder(id).mkdir(mode=0o700, parents=True)
    try:
        names = _keep(files, _folder(id))
    except BaseException:
        shutil.rmtree(_folder(id))
        raise
    begun = note_progress(Import(id=id, owner_id=owner_id, names=names, model=model))
    async_task(TASK, id, timeout=TASK_SECONDS)
    return begun


def load_import(import_id: str, *, owner_id: int | None = None) -> Import:
    """Return an import; with ``owner_id``, only if it belongs to that account.

    :raises UploadNotFound: there is none, or it has been forgotten.
    """
    if not is_id(import_id) or not import_id.startswith("import_"):
        raise UploadNotFound(import_id=import_id)
    try:
        values = json.loads((_folder(import_id) / "about.json").read_text())
    except (OSError, ValueError):
        raise UploadNotFound(import_id=import_id) from None
    lists = {name: tuple(values[name]) for name in ("names", "session_ids", "notes")}
    found = Import(**values | lists)
    if owner_id not in (None, found.owner_id):
        raise UploadNotFound(import_id=import_id)
    return found


def follow_import(import_id: str, *, owner_id: int) -> Import:
    """Return the state of an import; if its worker was lost, it waits again and is queued again.

    :raises UploadNotFound: there is none, or it has been forgotten.
    """
    found = load_import(import_id, owner_id=owner_id)
    if found.state != "running":
        return found
    with held(import_id) as lost:
        # A lock is released when its worker dies, so an import that can be locked has no worker.
        if lost is None or lost.state != "running":
            return load_import(import_id, owner_id=owner_id)
        waiting = note_progress(lost, state="waiting")
    # Queued after the lock is released: a worker that finds it locked leaves the import alone.
    async_task(TASK, import_id, timeout=TASK_SECONDS)
    return waiting


@contextmanager
def held(import_id: str) -> Iterator[Import | None]:
    """Lock an import and return it, or ``None`` if another worker holds it or it has ended."""
    with (_folder(import_id) / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        found = load_import(import_id)
        yield None if found.has_ended else found


def note_progress(about: Import, **changes: Any) -> Import:
    """Change an import's values, write them down and return them."""
    changed = replace(about, **changes)
    # Written under another name first, since a page may be reading it.
    place = _folder(about.id) / "about.json"
    unfinished = place.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(asdict(changed)))
    unfinished.replace(place)
    return changed


def end_import(about: Import, **changes: Any) -> None:
    note_progress(about, **changes)
    for path in about.paths:
        path.unlink(missing_ok=True)


def _keep(files: Iterable[tuple[str, Iterable[bytes]]], folder: Path) -> tuple[str, ...]:
    names, room = [], site_config().files.import_bytes
    for number, (name, chunks) in enumerate(files):
        if number == MOST_FILES:
            raise InvalidRequest(f"send at most {MOST_FILES} files at once", field="file")
        names.append(name_of_upload(name)[:200])
        with (folder / str(number)).open("wb") as file:
            for chunk in chunks:
                room -= len(chunk)
                if room < 0:
                    raise RequestTooLarge(
                        f"An import may have {site_config().files.import_bytes:,} bytes.", field="file"
                    )
                file.write(chunk)
    if not names:
        raise InvalidRequest("send a file", field="file")
    return tuple(names)


def _folder(import_id: str = "") -> Path:
    """Return the folder of an import, or that of all imports."""
    folder = Path(settings.MNESIS["UPLOAD_FOLDER"]) / "imports"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / import_id


def run_import(import_id: str) -> None:
    """Run an import, unless it has ended or another worker runs it. Sessions stored before a failure stay.

    An import that has lost ``MOST_ATTEMPTS`` workers is given up, as its files may have killed them.
    """
    with held(import_id) as about:
        if about is None:
            return
        if about.attempts >= MOST_ATTEMPTS:
            error = MnesisError(f"{MOST_ATTEMPTS} workers were lost over these files. What came in is kept.")
            end_import(about, state="failed", error=error.as_dict())
            return
        job = _ImportJob(note_progress(about, state="running", attempts=about.attempts + 1))
        try:
            job.run()
        except Exception as exception:
            if isinstance(exception, EOFError | zlib.error | gzip.BadGzipFile):
                exception = InvalidRequest(f"A packed file is damaged or was cut off: {exception}.")
            error = to_error(exception, asked=f"import {import_id}")
            end_import(job.about, state="failed", error=error.as_dict(), session_ids=tuple(job.session_ids))
            return
        end_import(job.about, state="done", session_ids=tuple(job.session_ids), notes=tuple(job.notes[:MOST_NOTES]))


class _ImportJob:
    def __init__(self, about: Import) -> None:
        self.about = about
        self.session_ids: list[str] = []
        self.notes: list[str] = []
        self._noted_at = 0.0

    def run(self) -> None:
        files = list(zip(self.about.names, self.about.paths, strict=True))
        companions = [file for file in files if is_companion(file[0])]
        for name, path in [file for file in files if file not in companions] or files:
            with _open(path) as file:
                first = file.read(FIRST_BYTES)
            if first.lstrip().startswith(_OURS):
                self._import_export(path)
            else:
                format = detect_format(name, first)
                beside = [other for other in companions if other[1] != path] if format == "claude_code" else []
                self._import_transcript(name, path, format, beside)

    def _import_export(self, path: Path) -> None:

        def read_lines() -> Iterator[bytes]:
            with _open(path) as file:
                while line := file.readline(MAX_LINE_BYTES + 1):
                    yield line

        done = import_sessions(
            read_lines,
            owner_id=self.about.owner_id,
            progress=lambda verb, session_id, done, total: self._note(verb, "rows", done, total),
        )
        self._add_sessions(session.session_id for session in done)
        known = sum(not session.imported for session in done)
        self.notes += [f"{known} of the sessions were here already, the very same."] if known else []

    def _import_transcript(self, name: str, path: Path, format: Any, companions: list[tuple[str, Path]]) -> None:
        with ExitStack() as stack:
            result = FORMATS[format](
                stack.enter_context(_open(path)),
                name=name,
                companions=[NamedSource(name=name, source=stack.enter_context(_open(at))) for name, at in companions],
                progress=lambda done: self._note("read", "bytes", done, 0),
            )
        stored = store_transcripts(
            result,
            owner=User.objects.get(pk=self.about.owner_id),
            model=self.about.model,
            progress=lambda done, total: self._note("stored", "turns", done, total),
        )
        self._add_sessions(stored.sessions.values())
        self.notes += [f"Skipped {one.count} {one.kind}: {one.reason}" for one in result.report.skipped]
        self.notes += [f"{note.count} x {note.text}" for note in result.report.notes]
        if stored.turns_known:
            self.notes.append(f"{stored.turns_known:,} turns were here already, from an earlier import.")

    def _add_sessions(self, session_ids: Iterable[str]) -> None:
        self.session_ids += [id for id in session_ids if id not in self.session_ids]

    def _note(self, verb: str, unit: str, done: int, total: int) -> None:
        if monotonic() - self._noted_at < PACE:
            return
        self._noted_at = monotonic()
        self.about = note_progress(self.about, verb=verb, unit=unit, done=done, total=total)


class _Unpacked(io.RawIOBase):
    # A few kilobytes may unpack to terabytes, so the size is limited while reading.

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


def _open(path: Path) -> io.BufferedReader:
    file = path.open("rb")
    return io.BufferedReader(_Unpacked(file), FIRST_BYTES) if file.peek(2)[:2] == _GZIP else file
