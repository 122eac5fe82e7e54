"""Writers whose files are recorded: a small site of its own in which some people write at the same time."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

from agents_app.lifecycle import create_session
from tests.support.recorded_files import Recording
from tests.support.writers import append_turn

WRITERS = 3
LEASE_SECONDS = 1


def main(before: str, recorded: str, turns: str, synchronous: str) -> int:
    """Make a database, copy it to ``before``, and record what happens to it while so many turns are appended."""
    options = connection.settings_dict["OPTIONS"]
    options["init_command"] = options["init_command"].replace("synchronous=FULL", f"synchronous={synchronous}")
    owner, sessions = new_site()
    shutil.copy(connection.settings_dict["NAME"], before)
    recording = Recording()
    recording.start()
    threads = [
        threading.Thread(target=write, args=(session, owner.pk, int(turns) // WRITERS, recording))
        for session in sessions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recording.save(Path(recorded))
    return 0


def new_site() -> tuple[User, list[str]]:
    """A database with somebody and their empty sessions, closed; the last one to close it makes it one file."""
    call_command("migrate", verbosity=0)
    owner = User.objects.create_user("ada")
    config = {"turn": {"lease_seconds": LEASE_SECONDS}}
    sessions = [create_session(owner=owner, config=config).id for _ in range(WRITERS)]
    connection.close()
    return owner, sessions


def write(session_id: str, owner_id: int, turns: int, recording: Recording) -> None:
    """One person's turns, with a word into the recording after each commit."""
    for number in range(turns):
        append_turn(session_id, owner_id, f"{session_id}-{number}", recording.say)
    connection.close()
