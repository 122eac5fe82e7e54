"""An evaluation from its job over the process that measures to its report, for the command and for the worker that a
page asks.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django.utils.translation import gettext_noop
from django_q.tasks import async_task

from audit_app.evaluation.job import AskedModel, AskedSession, Job, estimate_spent, tell_of
from audit_app.transfer.export import export_session, parents_first, parents_of, session_ids
from mnesis_core.compaction.evaluation.measures import (
    POLICIES,
    Measurement,
    Report,
    Told,
    read_measurement,
    read_report,
    read_told,
)
from mnesis_core.errors import (
    EvaluationBusy,
    EvaluationFailed,
    EvaluationNotFound,
    InvalidRequest,
    MnesisError,
    ModelNotFoundError,
    SessionNotFoundError,
)
from mnesis_core.spending import Spent, highest_of
from mnesis_core.transcripts.reading import UnreadableRecord, load_json
from sessions_app.conf import DEMO, get_spec, site_config
from sessions_app.database.threads import connection_arguments
from sessions_app.llm.limits import reserve_apart, settle_apart
from sessions_app.llm.model_store import find_model_entry
from sessions_app.record.session_queries import load_session

WINDOWS = (4_096, 8_192, 32_768)
PLANTED, SEED, QUESTIONS, CONVERSATIONS = 40, 1, 100, 10
TASK = "audit_app.tasks.evaluate_session"
TASK_SECONDS = 7_200
PACE = 2.0  # seconds between two notes of progress in a report
Show = Callable[[str, str, int, int], None]
"""Called with where it is, a unit, and how many of how many are done."""
_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
LARGEST_BYTES = 64 * 1024 * 1024
MOST_LISTED = 20
OF_THE_SITE = ("REDIS_URL", "MNESIS_FILES_URL", "MNESIS_APP_ROLE", "MNESIS_AUDITOR_ROLE", "MNESIS_ROLE")
"""Settings that would lead the process to what is the site's."""
PATIENCE_SECONDS = 10
NOT_CREATED = (
    "The site's role may not create databases on its PostgreSQL server, so conversations were lived on SQLite."
)


@dataclass(kw_only=True)
class Evaluation:
    """A report that grows. It is kept after each measurement, so that nothing that was paid for is lost."""

    report: Report
    show: Show = lambda where, unit, done, total: None
    is_measured: Callable[[Measurement], None] = lambda measurement: None
    agree: Callable[[Job, tuple[Told, ...]], None] = lambda job, conversations: None
    """Called before any model is asked; raises where nothing is to be measured."""
    _noted: float = 0.0

    def run(self, job: Job) -> None:
        """:raises MnesisError: a file or session cannot be used, or the process has failed."""
        try:
            with measuring(job) as process:
                self._add(notes=process.notes)
                for name, value in process.lines():
                    self._hear(name, value)
                self.agree(job, self.report.conversations)
                process.go()
                for name, value in process.lines():
                    self._hear(name, value)
        except (KeyboardInterrupt, MnesisError) as error:
            if self.report.measurements or self.report.progress:
                self._end(problem="It was interrupted." if isinstance(error, KeyboardInterrupt) else str(error))
            raise
        self._end(is_whole=True)

    def _end(self, **values: Any) -> None:
        self.report = replace(self.report, progress="", **values)
        keep_report(self.report)

    def _hear(self, name: str, value: Any) -> None:
        if name == "progress":
            self._note(*value)
        elif name == "note":
            self._add(notes=(value,))
        elif name == "told":
            self._add(conversations=(read_told(value),))
        elif name == "measured":
            measurement = read_measurement(value)
            self._add(measurements=(measurement,))
            keep_report(self.report)
            self.is_measured(measurement)

    def _note(self, where: str, unit: str, done: int, total: int) -> None:
        self.show(where, unit, done, total)
        if monotonic() - self._noted >= PACE:
            self._noted = monotonic()
            self.report = replace(self.report, progress=f"{where}: {done:,} of {total:,} {unit}")
            keep_report(self.report)

    def _add(self, **more: tuple[Any, ...]) -> None:
        grown: dict[str, Any] = {name: (*getattr(self.report, name), *values) for name, values in more.items()}
        self.report = replace(self.report, **grown)


def new_report(*, plant: int = PLANTED, seed: int = SEED) -> Report:
    at = timezone.now()
    return Report(id=new_report_id(at), at=at.isoformat(), seed=seed, plant=plant, is_whole=False)


def find_asked_model(alias: str) -> AskedModel:
    """:raises ModelNotFoundError: there is no such model."""
    entry = find_model_entry(alias)
    if entry is None:
        raise ModelNotFoundError(f"no model is called {alias!r}; 'manage.py model list' shows them", model=alias)
    # In a database of its own there are no other models to fall back on.
    spec = replace(entry.spec, fallbacks=())
    return AskedModel(spec=spec, api_key_env=entry.api_key_env, sealed_key=entry.sealed_key)


def find_helpers() -> tuple[AskedModel, ...]:
    """Return the models that the site's configuration names beside those of its sessions, as far as they exist."""
    config = site_config()
    aliases = (config.compaction.model, config.search.embedding_model, config.search.rerank_model)
    return tuple(find_asked_model(alias) for alias in dict.fromkeys(aliases) if alias and find_model_entry(alias))


def export_for(session_id: str, directory: Path) -> AskedSession:
    """Write a session to a file, with the ones that it can only be imported with.

    :raises SessionNotFoundError: there is no such session.
    """
    if session_id not in session_ids():
        raise SessionNotFoundError(session_id=session_id)
    needed = parents_of([session_id])
    while missing := [parent for parent in needed.values() if parent is not None and parent not in needed]:
        needed |= parents_of(missing)
    path = directory / f"{session_id}.jsonl"
    with path.open("wb") as file:
        for id in parents_first(needed):
            file.writelines(export_session(id))
    return AskedSession(id=session_id, file=str(path))


# The worker's way


def plan_session(session_id: str, alias: str, *, user_id: int) -> tuple[Job, Spent]:
    """Return what a worker would do with a session, and what that may take at most.

    :raises ModelNotFoundError: there is no such model, or the person or the session's owner may not use it.
    """
    # What was said goes to no provider to which its owner could not send it.
    for reader_id in (user_id, load_session(session_id).owner_id):
        get_spec(alias, user_id=reader_id)
    job = _job_of(AskedSession(id=session_id, file=""), find_asked_model(alias), new_report())
    return job, estimate_spent(job, [tell_of(session_id)])


def ask_worker(session_id: str, alias: str = DEMO.alias, *, user_id: int) -> Report:
    """Queue the evaluation of a session, count what it may take towards the person's limits, and return its empty report.

    :raises EvaluationBusy: a worker has one already.
    :raises ModelNotFoundError: there is no such model, or it may not be used for this.
    :raises BudgetExhausted: it may take more than the person's limits leave.
    """
    _, most = plan_session(session_id, alias, user_id=user_id)
    with _one_at_a_time():
        mark_ids = [] if find_asked_model(alias).is_demo else reserve_apart(user_id, most)
        report = replace(new_report(), progress="Waiting for a worker.")
        keep_report(report)
    asked = {"alias": alias, "user_id": user_id, "reserved": asdict(most), "mark_ids": mark_ids}
    async_task(TASK, report_id=report.id, session_id=session_id, asked=asked, timeout=TASK_SECONDS)
    return report


def evaluate_session(report_id: str, session_id: str, asked: Mapping[str, Any]) -> None:
    """Do what was queued, unless it was begun before: a task may come twice.

    :param asked: what ``ask_worker`` noted; empty for a task of an earlier version, which asked the demo model
    """
    alias = asked.get("alias", DEMO.alias)
    report = load_report(report_id)
    if report.is_whole or report.problem or report.measurements:
        return
    with tempfile.TemporaryDirectory(prefix="mnesis-evaluation-") as directory:
        try:
            with _one_at_a_time():
                if asked:
                    plan_session(session_id, alias, user_id=asked["user_id"])
                evaluation = Evaluation(report=report)
                session = export_for(session_id, Path(directory))
                evaluation.run(_job_of(session, find_asked_model(alias), report))
        except MnesisError as error:
            # What it had taken by then is not known, so it stays counted at its highest.
            keep_report(replace(load_report(report_id), progress="", problem=str(error)))
            return
    if asked.get("mark_ids"):
        taken = evaluation.report.measurements
        spent = sum((highest_of(one.tokens_input + one.tokens_output, one.cost_micros) for one in taken), Spent())
        settle_apart(asked["user_id"], asked["mark_ids"], reserved=Spent(**asked["reserved"]), spent=spent)


def _job_of(session: AskedSession, model: AskedModel, report: Report) -> Job:
    return Job(
        files=(),
        sessions=(session,),
        models=(model,),
        helpers=(),  # They may cost more.
        windows=WINDOWS,
        policies=POLICIES,
        plant=report.plant,
        seed=report.seed,
        questions=QUESTIONS,
        conversations=CONVERSATIONS,
        answers=False,
    )


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """:raises EvaluationBusy: another process of this host is in this block."""
    with (folder() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise EvaluationBusy() from None
        yield


# The reports that were made, as JSON files in the data directory.
#
# They are no part of the record, so no table has them: a file is written under another name first and then renamed, so
# every process of the site reads a whole one or none, whatever the database.


def new_report_id(at: datetime) -> str:
    """Return an id that sorts by time."""
    return f"{at:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def keep_report(report: Report) -> None:
    write_report(report, folder() / f"{report.id}.json")


def write_report(report: Report, path: Path) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(report.as_dict(), separators=(",", ":")))
    unfinished.replace(path)


def load_report(report_id: str) -> Report:
    """:raises EvaluationNotFound: there is none, or it cannot be read."""
    if not _ID.fullmatch(report_id):
        raise EvaluationNotFound()
    path = folder() / f"{report_id}.json"
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise EvaluationNotFound(gettext_noop("This report is too large to be shown."))
        return read_report(load_json(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise EvaluationNotFound() from None
    except (OSError, ValueError, UnreadableRecord) as error:
        raise EvaluationNotFound(
            gettext_noop("The file of this report cannot be read: %(reason)s."), {"reason": str(error)}
        ) from error


def heard_of(report_id: str) -> float:
    """Return when a report was last written, in seconds since 1970; 0 if there is none."""
    with suppress(FileNotFoundError):
        return (folder() / f"{report_id}.json").stat().st_mtime
    return 0.0


def list_reports() -> Iterator[Report]:
    """Yield the newest reports, the newest first; files that cannot be read are left out."""
    ids = sorted((path.stem for path in folder().glob("*.json") if _ID.fullmatch(path.stem)), reverse=True)
    for report_id in ids[:MOST_LISTED]:
        try:
            yield load_report(report_id)
        except EvaluationNotFound:
            continue


def folder() -> Path:
    place = Path(settings.DATA_DIR) / "evaluations"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


# Starts the process that measures, with a database and a data directory of its own, and reads what it says.
#
# On PostgreSQL the database is a new one on the same server, where the site's role may create one; otherwise, and on
# SQLite, it is a file in a temporary directory. Both are gone at the end. Nothing of the site is written.


@dataclass(slots=True, kw_only=True)
class Measuring:
    """The process, after it was given a job and until it was told to go."""

    process: subprocess.Popen[str]
    to_it: IO[str]
    from_it: IO[str]
    notes: tuple[str, ...]

    def go(self) -> None:
        self.to_it.write("go\n")
        self.to_it.flush()

    def lines(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and value of each line that the process says, until one named ``ready`` or ``done``.

        :raises InvalidRequest: a file or a session cannot be used.
        :raises EvaluationFailed: the process ended without having said ``done``.
        """
        for text in self.from_it:
            [(name, value)] = json.loads(text).items()
            if name == "error":
                raise _error_of(value)
            yield name, value
            if name in ("ready", "done"):
                return
        raise EvaluationFailed(status=self.process.wait())


def _error_of(value: dict[str, Any]) -> MnesisError:
    known = {kind.code: kind for kind in _kinds(MnesisError)}
    return known.get(value["code"], InvalidRequest)(value["message"])


def _kinds(of: type[MnesisError]) -> Iterator[type[MnesisError]]:
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)


@contextmanager
def measuring(job: Job) -> Iterator[Measuring]:
    """Start the process for a job; it ends, and its database with it, at the end of the block."""
    with (
        tempfile.TemporaryDirectory(prefix="mnesis-evaluation-") as directory,
        _own_database(directory) as (url, notes),
    ):
        own = {"DATABASE_URL": url, "MNESIS_DATA_DIR": directory, "DJANGO_SETTINGS_MODULE": "mnesis_site.settings"}
        own["SECRET_KEY"] = settings.SECRET_KEY  # by default it is in the site's data directory
        process = subprocess.Popen(
            [sys.executable, "-m", "audit_app.evaluation.child"],
            cwd=settings.BASE_DIR,
            env=os.environ | dict.fromkeys(OF_THE_SITE, "") | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the command alone, which then ends this process and keeps what was measured.
            start_new_session=True,
        )
        if process.stdin is None or process.stdout is None:
            raise EvaluationFailed()
        try:
            with process.stdin as to_it, process.stdout as from_it:
                to_it.write(json.dumps(job.as_dict()) + "\n")
                to_it.flush()
                yield Measuring(process=process, to_it=to_it, from_it=from_it, notes=notes)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _own_database(directory: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the address of a new, empty database, and what there is to say about it."""
    on_disk = f"sqlite:///{Path(directory) / 'evaluation.sqlite3'}"
    if connection.vendor != "postgresql":
        yield on_disk, ()
        return
    import psycopg  # SQLite does without

    name = f"mnesis_evaluation_{os.getpid()}_{secrets.token_hex(4)}"
    with psycopg.connect(**connection_arguments(), autocommit=True) as server:
        try:
            server.execute(f'CREATE DATABASE "{name}"'.encode())
        except psycopg.errors.InsufficientPrivilege:
            yield on_disk, (NOT_CREATED,)
            return
        try:
            yield urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}")), ()
        finally:
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
