"""Imports of files that become sessions: exports of this program, or transcripts of other systems.

An export becomes the same sessions again, with the same ids, the same ledger and the same head. It is read twice: first
all of it is checked and nothing written, then each session is one transaction. What the lines alone cannot show is
checked before the commit: every row belongs to this session, none names what belongs to another account, the rows are
what the ledger says, and all of it can be read. The session then belongs to the importer. Its ledger stays as it was, so
its first entry still names the account that it belonged to on its old site.

Files sent by a person, and the progress of their import, are kept in the data directory until a worker is done. Only
the sessions become part of the record.
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
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import IO, Any, Literal, get_args

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, models, transaction
from django.db.models.query import QuerySet
from django.utils.translation import gettext_noop
from django_q.tasks import async_task

from agents_app.queries import count_waiting, list_items, list_runs, live_runs_of, load_attempts
from audit_app.proof.verify import verify_session
from audit_app.tables import Owners, batches, insert_rows, owners_of, row_characters, session_tables
from audit_app.transfer.export import CONTENTS, ContentsTaken, Progress, export_session, piece_in
from compaction_app.queries import ends_of_summaries
from mnesis_core.actor import read_actor
from mnesis_core.errors import (
    DuplicateIDError,
    InvalidRequest,
    MnesisError,
    Phrase,
    RequestTooLarge,
    UploadNotFound,
    Values,
    fill,
    reason_of,
)
from mnesis_core.events import FORMAT_VERSION
from mnesis_core.files.kinds.archive import ZipMembers
from mnesis_core.files.references import name_of_upload
from mnesis_core.messages import Role
from mnesis_core.records import is_id, new_id
from mnesis_core.transcripts import FORMATS, detect_format
from mnesis_core.transcripts.autobyteus import by_agent, is_of_layout
from mnesis_core.transcripts.claude_code import is_companion
from mnesis_core.transcripts.session_file import FORMAT, MAX_LINE_BYTES, End, Header, RowLine, read_sessions
from mnesis_core.transcripts.values import NamedSource, ParseResult
from sessions_app.conf import site_config
from sessions_app.database.outages import to_error
from sessions_app.record import session_store
from sessions_app.record.actor import acting_as, current_actor
from sessions_app.record.context_queries import load_events
from sessions_app.record.histories import store_transcripts
from sessions_app.record.message_queries import load_messages
from sessions_app.record.message_store import complete_context_items
from sessions_app.search import index as search_index

PAGE = 200
TASK = "audit_app.tasks.run_import"
TASK_SECONDS = 3_600  # the cluster kills a worker that takes longer: it hangs
MOST_FILES = 50
KEPT_SECONDS = 86_400.0  # an import and its outcome are forgotten after a day
FIRST_BYTES = 65_536
KNOWN_SESSIONS = gettext_noop("%(count)s of the sessions were here already, the very same.")
SKIPPED = gettext_noop("Skipped %(count)s %(kind)s: %(reason)s")
NOTED = gettext_noop("%(count)s x %(reason)s")
FACTS_STORED = gettext_noop("%(count)s facts are in the session's memory.")
TURNS_KNOWN = gettext_noop("%(count)s turns were here already, from an earlier import.")
PACE = 0.5  # seconds between two notes of progress
MOST_NOTES = 50
MOST_ATTEMPTS = 3
_OF_OTHERS = {"of_fact_id", "of_session_id"}
_GZIP = b"\x1f\x8b"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # with files, and empty
_OURS = f'{{"format":"{FORMAT}"'.encode()

_File = tuple[str, Path]
State = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    session_id: str
    rows: int
    imported: bool  # False when the very same session was there already


def import_sessions(
    read: Callable[[], Iterable[bytes]],
    *,
    owner_id: int,
    progress: Progress = lambda verb, what, done, total: None,
) -> list[ImportedSession]:
    """Import every session of a file; each call of ``read`` gives its lines from the start.

    :raises InvalidRequest: the file is damaged or was not made by an export; nothing of it was written.
    :raises DuplicateIDError: an id is taken by something that is not the same. Sessions before that one in the file are
        stored; repeating the import is safe.
    """
    session_id, owners = "", owners_of(owner_id)
    for item in read_sessions(read()):
        if isinstance(item, Header):
            session_id = item.session_id
        elif isinstance(item, RowLine):
            piece_in(item) if item.table == CONTENTS else _row_of(item, owners, session_id)
    items: Iterator[Any] = read_sessions(read())

    def rows_of(session_id: str, total: int) -> Iterator[RowLine]:
        for number, item in enumerate(items, 1):
            if isinstance(item, End):
                return
            yield item
            progress("imported", session_id, number, total)

    done = []
    for header in items:
        total = sum(header.rows.values())
        rows, there = rows_of(header.session_id, total), _rows("Session").filter(pk=header.session_id).first()
        if there is None:
            _store(header, rows, owners)
        else:
            _compare(header, rows, there, owners)
        done.append(ImportedSession(session_id=header.session_id, rows=total, imported=there is None))
    return done


def lines_of(open_file: Callable[[], Any]) -> Iterator[bytes]:
    with open_file() as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            yield line


def _compare(header: Header, rows: Iterator[RowLine], there: Any, owners: Owners) -> None:
    if [there.owner_id, there.organisation_id] != [*owners.values()]:
        raise DuplicateIDError(
            gettext_noop("There is a session %(session_id)s already."),
            {"session_id": header.session_id},
            id=header.session_id,
        )
    # Closed here, so that no cursor of the server is left to a later transaction.
    with closing(export_session(header.session_id)) as ours:
        same = json.loads(next(ours)) == replace(header, version=FORMAT_VERSION).as_dict()
        # The file is read to its end, whose lines are checked with it.
        for row in rows:
            same = same and _is_same_row(row, json.loads(next(ours)))
    if not same:
        raise DuplicateIDError(
            gettext_noop(
                "There is a session %(session_id)s already, and it is not the same: it has %(here)s ledger entries, the file %(there)s."
            ),
            {"session_id": header.session_id, "here": str(there.event_seq), "there": str(header.event_seq)},
            id=header.session_id,
        )


def _is_same_row(row: RowLine, ours: dict[str, Any]) -> bool:
    # As values: PostgreSQL does not keep the order of keys that JSON of another database came with.
    table = session_tables().get(row.table)
    if table is None or ours["table"] != row.table:
        return ours == {"table": row.table, "row": row.values}
    if table.is_bound:
        return bool(ours["row"] == table.complete(row.values))
    # Columns that follow from other rows may have come after the file was made.
    return {name: value for name, value in ours["row"].items() if name in row.values} == row.values


def _store(header: Header, rows: Iterator[RowLine], owners: Owners) -> None:
    contents = ContentsTaken(header.session_id)
    with transaction.atomic():
        for table, group in groupby(rows, key=attrgetter("table")):
            for batch in batches(group, lambda row: row_characters(tuple(row.values.values()))):
                if table == CONTENTS:
                    contents.take(batch)
                    continue
                _refuse_foreign_ids(batch, owners)
                _refuse_loose(batch, header.session_id)
                _insert(batch, owners, header.session_id)
        contents.finish()
        complete_context_items(header.session_id, ends_of_summaries(header.session_id))
        _refuse_awake(header.session_id)
        _check_stored(header)
        # A deleted session is not searchable.
        if _rows("Session").filter(pk=header.session_id, deleted_at__isnull=True).exists():
            with connection.cursor() as cursor:
                search_index.rebuild_session(cursor, header.session_id)
        session_store.enter_imported(header.session_id)


def _insert(batch: list[RowLine], owners: Owners, session_id: str) -> None:
    table = session_tables()[batch[0].table]
    lines = _lines(batch)
    keys = [row.values.get(table.fields[table.key].attname) for row in batch]
    if QuerySet(table.model).filter(pk__in=[key for key in keys if key is not None]).exists():
        raise DuplicateIDError(
            gettext_noop("%(lines)s: a row with one of these ids is there already."),
            {"lines": lines},
            line=batch[0].line,
        )
    rows = [_row_of(row, owners, session_id) for row in batch]
    try:
        with transaction.atomic():
            insert_rows(table.name, table.stored, rows, using="default")
    except (DatabaseError, ValueError) as error:
        raise InvalidRequest(
            gettext_noop("%(lines)s cannot be stored: %(reason)s"),
            {"lines": lines, "reason": reason_of(error)},
            line=batch[0].line,
        ) from error


def _row_of(row: RowLine, owners: Owners, session_id: str) -> tuple[Any, ...]:
    table = session_tables().get(row.table)
    if table is None:
        raise InvalidRequest(
            gettext_noop("Line %(line)s: this site has no table %(table)s."),
            {"line": str(row.line), "table": repr(row.table[:80])},
            line=row.line,
        )
    try:
        return table.row_of(row.values, owners=owners, session_id=session_id)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRequest(
            gettext_noop("Line %(line)s: %(reason)s."),
            {"line": str(row.line), "reason": reason_of(error)},
            line=row.line,
        ) from error


def _lines(batch: list[RowLine]) -> str:
    return Phrase(
        gettext_noop("Lines %(first)s to %(last)s"), {"first": str(batch[0].line), "last": str(batch[-1].line)}
    )


def _refuse_foreign_ids(batch: list[RowLine], owners: Owners) -> None:
    """:raises InvalidRequest: a row names what belongs to another account or organisation."""
    table = session_tables()[batch[0].table]
    # Ids are how rows find each other, so none may lead to anybody else's rows.
    # What a fact is a copy of may be another person's: only what is held for the organisation ever comes of it.
    long = {field.attname for field in table.exported if isinstance(field, models.TextField)} | _OF_OTHERS
    named = {id for row in batch for name, value in row.values.items() if name not in long for id in _ids_in(value)}
    for other in session_tables().values():
        if not isinstance(other.model._meta.pk, models.CharField):
            continue
        path = "" if other.path == "pk" else f"{other.path}__"
        own = dict(zip((f"{path}owner", f"{path}organisation"), owners.values(), strict=True))
        for chunk in batches(sorted(named), len):
            if QuerySet(other.model).filter(pk__in=chunk).exclude(**own).exists():
                raise InvalidRequest(
                    gettext_noop("%(lines)s name rows that are not yours."),
                    {"lines": _lines(batch)},
                    line=batch[0].line,
                )


def _refuse_loose(batch: list[RowLine], session_id: str) -> None:
    """:raises InvalidRequest: a row needs one that is not in its session."""
    tables = {table.model: table for table in session_tables().values()}
    table = session_tables()[batch[0].table]
    # Databases check foreign keys at the commit, too late to name a line, and do not know what a session is.
    for index, model in table.foreign_keys:
        if model not in tables:
            continue
        name = table.fields[index].attname
        own = {row.values.get("id") for row in batch} if model is table.model else set()
        needed: set[Any] = {row.values.get(name) for row in batch} - {None} - own
        found: QuerySet[Any, Any] = QuerySet(model).filter(pk__in=needed)
        if table.path != "pk":
            found = found.filter(**{tables[model].path: session_id})
        if found.count() < len(needed):
            reason = Phrase(gettext_noop("%(name)s names what is not in this session"), {"name": name})
            if table.path == "pk":
                reason = Phrase(
                    gettext_noop("its parent %(id)s is not here, export and import both"), {"id": min(needed)}
                )
            raise InvalidRequest(
                gettext_noop("%(lines)s: %(reason)s."),
                {"lines": _lines(batch), "reason": reason},
                line=batch[0].line,
            )


def _ids_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and is_id(value):
        yield value
    elif isinstance(value, dict):
        yield from (id for item in (*value, *value.values()) for id in _ids_in(item))
    elif isinstance(value, list):
        yield from (id for item in value for id in _ids_in(item))


def _refuse_awake(session_id: str) -> None:
    """Refuse what would run at once, since a file may come from anyone and its new owner has not looked at it.

    :raises InvalidRequest: the session is in host mode with waiting messages, or an operator's run would continue.
    """
    for run_id in live_runs_of(session_id):
        raise InvalidRequest(
            gettext_noop(
                "The run %(run_id)s of session %(session_id)s would go on here at once. Pause or cancel it, and export the session again."
            ),
            {"run_id": run_id, "session_id": session_id},
            session=session_id,
        )
    awake = _rows("Session").filter(pk=session_id, host_mode=True, archived_at__isnull=True, deleted_at__isnull=True)
    if awake.exists() and count_waiting(session_id):
        raise InvalidRequest(
            gettext_noop(
                "Session %(session_id)s is in host mode, and the messages that wait for it would begin a turn here at once. End its host mode, or archive it, and export it again."
            ),
            {"session_id": session_id},
            session=session_id,
        )


def _check_stored(header: Header) -> None:
    """:raises InvalidRequest: rows are missing or cannot be read, or the ledger does not prove them."""
    session_id = header.session_id
    for name, table in session_tables().items():
        if table.rows(session_id).count() != header.rows.get(name, 0):
            raise InvalidRequest(
                gettext_noop("Not every row of %(name)s belongs to session %(session_id)s."),
                {"name": name, "session_id": session_id},
                table=name,
            )
    try:
        _read_all(session_id)
        session: Any = _rows("Session").get(pk=session_id)
        if (session.event_seq, session.head_hash) != (header.event_seq, header.head_hash):
            raise InvalidRequest(
                gettext_noop("The header of %(session_id)s names another head than its session."),
                {"session_id": session_id},
            )
        for problem in verify_session(session_id, alone=True).problems:
            raise InvalidRequest(
                gettext_noop("The ledger of %(session_id)s does not hold: entry %(seq)s: %(kind)s, %(detail)s."),
                {"session_id": session_id, "seq": str(problem.seq), "kind": problem.kind, "detail": problem.detail},
                session=session_id,
            )
    except MnesisError:
        raise
    except Exception as error:
        # Columns that hold JSON or names of kinds may hold anything in a forged file.
        raise InvalidRequest(f"Session {session_id} cannot be read: {error!r}"[:300]) from error


def _read_all(session_id: str) -> None:
    after = 0
    while messages := load_messages(session_id, after=after, limit=PAGE):
        if strange := {message.role for message in messages} - set(get_args(Role)):
            raise InvalidRequest(gettext_noop("unknown role %(role)s"), {"role": repr(min(strange)[:80])})
        after = messages[-1].seq
    after = 0
    while events := load_events(session_id, after=after, limit=PAGE):
        after = events[-1].seq
    for run in list_runs(session_id=session_id, limit=None):
        after = 0
        while items := list_items(run.id, after=after, limit=PAGE):
            load_attempts(run.id, [item.number for item in items])
            after = items[-1].number


def _rows(name: str) -> QuerySet[Any, Any]:
    return QuerySet(apps.get_model("sessions_app", name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    id: str
    owner_id: int
    names: tuple[str, ...]  # the names of the files, in the order in which they were sent
    model: str  # alias of the model that the sessions continue with
    actor: str = ""  # who asked for it (``mnesis_core.actor``)
    state: State = "waiting"
    attempts: int = 0
    verb: str = ""  # the current step: read or stored
    unit: str = ""
    done: int = 0
    total: int = 0  # in units; 0 while it is unknown
    session_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was skipped, or is kept in another form
    error: dict[str, Any] | None = None  # code, message and details
    error_text: str = ""  # of the message, in which a page puts the values once it has translated it
    error_values: Values = field(default_factory=dict)

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
    begun = note_progress(Import(id=id, owner_id=owner_id, actor=current_actor().text, names=names, model=model))
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


def _failure(error: MnesisError) -> dict[str, Any]:
    return {"error": error.as_dict(), "error_text": error.text, "error_values": dict(error.values)}


def _keep(files: Iterable[tuple[str, Iterable[bytes]]], folder: Path) -> tuple[str, ...]:
    names, room = [], site_config().files.import_bytes
    for number, (name, chunks) in enumerate(files):
        if number == MOST_FILES:
            raise InvalidRequest(
                gettext_noop("send at most %(most)s files at once"), {"most": MOST_FILES}, field="file"
            )
        names.append(name_of_upload(name)[:200])
        with (folder / str(number)).open("wb") as file:
            for chunk in chunks:
                room -= len(chunk)
                if room < 0:
                    raise RequestTooLarge(
                        gettext_noop("An import may have %(most)s bytes."),
                        {"most": site_config().files.import_bytes},
                        field="file",
                    )
                file.write(chunk)
    if not names:
        raise InvalidRequest(gettext_noop("send a file"), field="file")
    return tuple(names)


def _folder(import_id: str = "") -> Path:
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
            error = MnesisError(
                gettext_noop("%(most)s workers were lost over these files. What came in is kept."),
                {"most": MOST_ATTEMPTS},
            )
            end_import(about, state="failed", **_failure(error))
            return
        job = _ImportJob(note_progress(about, state="running", attempts=about.attempts + 1))
        try:
            with acting_as(read_actor(about.actor).later("import")):
                job.run()
        except Exception as exception:
            if isinstance(exception, EOFError | zlib.error | gzip.BadGzipFile):
                exception = InvalidRequest(
                    gettext_noop("A packed file is damaged or was cut off: %(reason)s."), {"reason": str(exception)}
                )
            error = to_error(exception, asked=f"import {import_id}")
            end_import(job.about, state="failed", **_failure(error), session_ids=tuple(job.session_ids))
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
        # The memory of one agent in Autobyteus' layout.
        layout = [file for file in files if is_of_layout(file[0])]
        if len({name.removesuffix(".gz") for name, _ in layout}) < len(layout):
            raise InvalidRequest(
                gettext_noop("Several files have the same name. Import the memory of one agent at a time."),
                field="file",
            )
        if layout:
            self._import_transcript(*layout[0], "autobyteus", layout[1:])
            files = [file for file in files if file not in layout]
        companions = [file for file in files if is_companion(file[0])]
        for name, path in [file for file in files if file not in companions] or files:
            with _open(path) as file:
                first = file.read(FIRST_BYTES)
            if first.startswith(_ZIP):
                self._import_zip(path)
                continue
            if not first.lstrip().startswith(_OURS):
                format = detect_format(name, first)
                beside = [other for other in companions if other[1] != path] if format == "claude_code" else []
                self._import_transcript(name, path, format, beside)
                continue
            done = import_sessions(
                partial(lines_of, partial(_open, path)),
                owner_id=self.about.owner_id,
                progress=lambda verb, session_id, done, total: self._note(verb, "rows", done, total),
            )
            self._add_sessions(session.session_id for session in done)
            known = sum(not session.imported for session in done)
            self.notes += [fill(KNOWN_SESSIONS, {"count": str(known)})] if known else []

    def _import_zip(self, path: Path) -> None:
        archive = ZipMembers(path, most_bytes=site_config().files.import_unpacked_bytes)
        for names in by_agent(archive.names):
            with ExitStack() as stack:
                first, *others = [
                    NamedSource(name=name.rpartition("/")[2], source=stack.enter_context(archive.open(name)))
                    for name in names
                ]
                progress = partial(self._note, "read", "bytes", total=0)
                result = FORMATS["autobyteus"](first.source, name=first.name, companions=others, progress=progress)
            self._store(result)

    def _import_transcript(self, name: str, path: Path, format: Any, companions: list[tuple[str, Path]]) -> None:
        with ExitStack() as stack:
            result = FORMATS[format](
                stack.enter_context(_open(path)),
                name=name,
                companions=[NamedSource(name=name, source=stack.enter_context(_open(at))) for name, at in companions],
                progress=lambda done: self._note("read", "bytes", done, 0),
            )
        self._store(result)

    def _store(self, result: ParseResult) -> None:
        stored = store_transcripts(
            result,
            owner=User.objects.get(pk=self.about.owner_id),
            model=self.about.model,
            progress=lambda done, total: self._note("stored", "turns", done, total),
        )
        self._add_sessions(stored.sessions.values())
        self.notes += [
            fill(SKIPPED, {"count": str(one.count), "kind": one.kind, "reason": one.reason})
            for one in result.report.skipped
        ]
        self.notes += [fill(NOTED, {"count": str(note.count), "reason": note.text}) for note in result.report.notes]
        if stored.facts_stored:
            self.notes.append(fill(FACTS_STORED, {"count": stored.facts_stored}))
        if stored.turns_known:
            self.notes.append(fill(TURNS_KNOWN, {"count": stored.turns_known}))

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
            raise RequestTooLarge(
                gettext_noop("A packed file holds more than the %(most)s bytes that an import may have."),
                {"most": most},
            )
        return count


def _open(path: Path) -> io.BufferedReader:
    file = path.open("rb")
    return io.BufferedReader(_Unpacked(file), FIRST_BYTES) if file.peek(2)[:2] == _GZIP else file
