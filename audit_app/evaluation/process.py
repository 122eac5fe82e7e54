"""Starts the process that measures, with a database and a data directory of its own, and reads what it says.

On PostgreSQL the database is a new one on the same server, where the site's role may create one; otherwise, and on
SQLite, it is a file in a temporary directory. Both are gone at the end. Nothing of the site is written.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.db import connection

from audit_app.evaluation.job import Job
from mnesis_core.errors import EvaluationFailed, InvalidRequest, MnesisError
from sessions_app.database.threads import connection_arguments

OF_THE_SITE = ("REDIS_URL", "MNESIS_FILES_URL", "MNESIS_APP_ROLE", "MNESIS_AUDITOR_ROLE", "MNESIS_ROLE")
"""Settings that would lead the process to what is the site's."""
PATIENCE_SECONDS = 10
NOT_CREATED = (
    "The site's role may not create databases on its PostgreSQL server, so conversations were lived on SQLite."
)


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
