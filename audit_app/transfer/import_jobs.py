"""Files that are to become sessions: what was sent, and how far it is. Two kinds of files of this machine's data directory.

It is no part of the record: that is what comes of it.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
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
from mnesis_core.files.references import name_of_upload
from mnesis_core.transcripts import FORMATS, NamedSource, ParseResult, detect_format, is_companion
from mnesis_core.transcripts.session_file import FORMAT, MAX_LINE_BYTES
from mnesis_core.values import is_id, new_id
from sessions_app.conf import site_config
from sessions_app.database.outages import to_error
from sessions_app.record.import_transcript import store_transcripts

TASK = "audit_app.tasks.bring_in"
TASK_SECONDS = 3_600
"""A worker that takes longer is killed by the cluster: it hangs."""
MOST_FILES = 50
KEPT_SECONDS = 86_400.0
"""How long is told what became of an import."""

State = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """Files of one person that become sessions."""

    id: str
    owner_id: int
    names: tuple[str, ...]
    """Of the files, in the order in which they were sent."""
    model: str
    """Alias of the model to go on with."""
    state: State = "waiting"
    attempts: int = 0
    """How many workers have begun it."""
    verb: str = ""
    """What is done now: ``read``, ``stored``."""
    unit: str = ""
    done: int = 0
    total: int = 0
    """Units; 0 while it is not known."""
    session_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What was skipped, or is kept in another form."""
    error: dict[str, Any] | None = None
    """``code``, ``message`` and ``details``."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing follows."""
        return self.state in ("done", "failed")

    @property
    def paths(self) -> list[Path]:
        """Where the files are, in the order of their names; until it has ended."""
        return [_folder(self.id) / str(number) for number in range(len(self.names))]


def begin_import(files: Iterable[tuple[str, Iterable[bytes]]], *, owner_id: int, model: str) -> Import:
    """Keep files, each a name and its bytes, and ask a worker to bring them in.

    :raises InvalidRequest: there are none, or too many.
    :raises RequestTooLarge: together they are larger than an import may be.
    """
    _forget_old()
    id = new_id("import")
    _folder(id).mkdir(mode=0o700, parents=True)
    try:
        names = _keep(files, _folder(id))
    except BaseException:
        shutil.rmtree(_folder(id))
        raise
    begun = Import(id=id, owner_id=owner_id, names=names, model=model)
    _write(begun)
    async_task(TASK, id, timeout=TASK_SECONDS)
    return begun


def load_import(import_id: str, *, owner_id: int | None = None) -> Import:
    """An import; with ``owner_id``, only if it is theirs.

    :raises UploadNotFound: there is none, or it was forgotten since.
    """
    if not is_id(import_id) or not import_id.startswith("import_"):
        raise UploadNotFound(import_id=import_id)
    try:
        told = json.loads((_folder(import_id) / "about.json").read_text())
    except (OSError, ValueError):
        raise UploadNotFound(import_id=import_id) from None
    lists = {name: tuple(told[name]) for name in ("names", "session_ids", "notes")}
    found = Import(**told | lists)
    if owner_id not in (None, found.owner_id):
        raise UploadNotFound(import_id=import_id)
    return found


def follow_import(import_id: str, *, owner_id: int) -> Import:
    """How far an import of theirs is; if the worker at it was lost, it waits again, and another one is asked for.

    :raises UploadNotFound: there is none, or it was forgotten since.
    """
    found = load_import(import_id, owner_id=owner_id)
    if found.state != "running":
        return found
    with held(import_id) as lost:
        # A worker's lock goes with it: what can be held now, nobody is at.
        if lost is None or lost.state != "running":
            return load_import(import_id, owner_id=owner_id)
        waiting = note_progress(lost, state="waiting")
    # A worker that came while this was looked at went away again, so not before it is let go.
    async_task(TASK, import_id, timeout=TASK_SECONDS)
    return waiting


@contextmanager
def held(import_id: str) -> Iterator[Import | None]:
    """An import to work on, and nobody else meanwhile; ``None`` where somebody is at it, or it has ended."""
    with (_folder(import_id) / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        found = load_import(import_id)
        yield None if found.has_ended else found


def note_progress(about: Import, **changes: Any) -> Import:
    """Write how far an import is."""
    changed = replace(about, **changes)
    _write(changed)
    return changed


def end_import(about: Import, **changes: Any) -> Import:
    """Write what became of an import, and forget its files."""
    ended = note_progress(about, **changes)
    for path in about.paths:
        path.unlink(missing_ok=True)
    return ended


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


def _write(about: Import) -> None:
    # Under another name until it is whole: somebody may be reading.
    place = _folder(about.id) / "about.json"
    unfinished = place.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(asdict(about)))
    unfinished.replace(place)


def _forget_old() -> None:
    oldest = time.time() - KEPT_SECONDS
    for folder in _all().iterdir():
        with suppress(FileNotFoundError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder)


def _folder(import_id: str) -> Path:
    return _all() / import_id


def _all() -> Path:
    folder = Path(settings.MNESIS["UPLOAD_FOLDER"]) / "imports"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


# Story: files that somebody sent become their sessions: an export of ours as it was, what other systems wrote as a transcript.

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
            error = to_error(_in_words(exception), asked=f"import {import_id}")
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
