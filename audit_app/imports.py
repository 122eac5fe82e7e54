"""Files that are to become sessions: what was sent, and how far it is. Two kinds of files of this machine's data directory.

It is no part of the record: that is what comes of it.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from django_q.tasks import async_task

from mnesis_core.attachments import name_of_upload
from mnesis_core.errors import InvalidRequest, RequestTooLarge, UploadNotFound
from mnesis_core.ids import is_id, new_id
from sessions_app.conf import site_config

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
