"""Writers whose files are recorded: some people of one process who write at the same time."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

from agents_app.turns.lifecycle import create_session
from tests.support.failures.recorded_files import Recording
from tests.support.processes.writers import append_turn

WRITERS = 4
LEASE_SECONDS = 1


def main(before: str, live: str, recorded: str, turns: str, synchronous: str) -> int:
    """Copy a new database to ``before`` and ``live``, and record what happens to the latter during so many turns."""
    owner, sessions = new_site(before)
    shutil.copy(before, live)
    recording = record(live)
    options = connection.settings_dict["OPTIONS"]
    options["init_command"] = options["init_command"].replace("synchronous=FULL", f"synchronous={synchronous}")
    with ThreadPoolExecutor(WRITERS) as people:
        writing = [people.submit(write, session, owner.pk, int(turns) // WRITERS, recording) for session in sessions]
        for one in writing:
            one.result()
    recording.save(Path(recorded))
    return 0


def new_site(copy: str) -> tuple[User, list[str]]:
    """A database with a user and their empty sessions, copied into one file."""
    call_command("migrate", verbosity=0)
    owner = User.objects.create_user("ada")
    config = {"turn": {"lease_seconds": LEASE_SECONDS}}
    sessions = [create_session(owner=owner, config=config).id for _ in range(WRITERS)]
    connection.close()
    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as plain:
        plain.execute("VACUUM INTO ?", [copy])
    return owner, sessions


def record(database: str) -> Recording:
    """From now on this process uses the database of this name, and every connection to it is recorded."""
    recording = Recording()
    recording.start()
    connection.settings_dict["NAME"] = database
    return recording


def write(session_id: str, owner_id: int, turns: int, recording: Recording) -> None:
    """One person's turns, with a word into the recording after each commit."""
    for number in range(turns):
        append_turn(session_id, owner_id, f"{session_id}-{number}", recording.say)
    connection.close()
