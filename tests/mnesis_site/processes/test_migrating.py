"""One process migrates at a time, and a database that is lost or damaged is not taken for a new one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection

from agents_app.turns import lifecycle
from mnesis_core.errors import NotReady
from sessions_app.database.guards.known_databases import emptied, is_known, missing_file, name_of, remember
from sessions_app.database.guards.migrating import one_at_a_time
from tests.support.sites.databases import site_database
from tests.support.sites.site import DATABASE, ROOT, environment_for, free_port, lay_database, manage, stop, wait_until
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.both_databases

POSTGRESQL = connection.vendor == "postgresql"
HOLD = """
import time
from django.db import connection
from sessions_app.database.guards.migrating import one_at_a_time
with one_at_a_time(connection, print):
    print("held", flush=True)
    time.sleep(600)
"""

AT_ONCE = """
import os, pathlib, time
import django
from django.core.management import call_command
django.setup()
ready = pathlib.Path(os.environ["MNESIS_DATA_DIR"])
(ready / f"ready{os.getpid()}").touch()
while len(list(ready.glob("ready*"))) < 3:
    time.sleep(0.02)
call_command("migrate", verbosity=0)
"""


@contextmanager
def started(*arguments: str, environment: dict[str, str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in the background, ended with the block."""
    with output.open("wb") as file:
        command = [sys.executable, "manage.py", *arguments]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        stop(process)


@pytest.mark.slow
def test_three_processes_migrate_a_new_database_at_once_and_all_succeed(tmp_path: Path) -> None:
    with site_database("at_once") as database:
        environment = environment_for(tmp_path, **database)
        command = [sys.executable, "-c", AT_ONCE]
        processes = [subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE) for _ in range(3)]
        said = [process.communicate(timeout=300)[1].decode() for process in processes]
        assert [process.returncode for process in processes] == [0] * 3, said
        assert not [line for text in said for line in text.splitlines() if not line.startswith("Waiting for another")]
        assert manage("migrate", "--check", environment=environment).returncode == 0


@pytest.mark.slow
def test_every_command_says_that_migrations_are_missing(tmp_path: Path, subtests: pytest.Subtests) -> None:
    talk = tmp_path / "talk.json"
    talk.write_text('{"messages": [{"role": "user", "content": "Ahoy"}, {"role": "assistant", "content": "Hello"}]}')
    commands = [
        ("evaluate_memory", str(talk)),
        ("sessions", "list"),
        ("model", "list"),
        ("summaries", "align", "--all"),
        ("export", "--all", "--out", str(tmp_path / "all.jsonl")),
    ]
    with site_database("not_migrated") as database:
        for command in commands:
            with subtests.test(command[0]):
                done = manage(*command, environment=environment_for(tmp_path / "data", **database))
                assert "MIGRATIONS_MISSING: The database lacks migrations. Run 'manage.py migrate'" in done.stderr
                assert (done.returncode, "Traceback" in done.stderr) == (NotReady.exit_status, False)


@pytest.mark.slow
def test_two_sites_start_at_once_on_a_new_database(tmp_path: Path) -> None:
    with site_database("two_ups") as database:
        environment = environment_for(tmp_path / "data", **database)
        outputs = [tmp_path / "one", tmp_path / "two"]
        ups = [["up", "--port", str(free_port()), "--workers", "1"] for _ in outputs]
        with (
            started(*ups[0], environment=environment, output=outputs[0]) as one,
            started(*ups[1], environment=environment, output=outputs[1]) as two,
        ):
            wait_until(lambda: all("Mnesis runs at" in output.read_text() for output in outputs))
            assert (one.poll(), two.poll()) == (None, None)


@pytest.mark.slow
def test_who_waits_says_so_and_goes_on_when_the_other_is_killed(tmp_path: Path) -> None:
    with site_database("waiting") as database:
        environment = environment_for(tmp_path, **database)
        holder, waiter = tmp_path / "holder", tmp_path / "waiter"
        with started("shell", "-v0", "-c", HOLD, environment=environment, output=holder) as killed:
            wait_until(lambda: "held" in holder.read_text())
            with started("migrate", "-v0", environment=environment, output=waiter) as process:
                wait_until(lambda: "Waiting for another process that migrates" in waiter.read_text())
                assert process.poll() is None
                killed.kill()
                assert process.wait(timeout=PATIENCE_SECONDS) == 0


def test_a_database_is_named_by_its_place_in_the_data_directory_or_by_its_server(tmp_path: Path) -> None:
    inside = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "a.sqlite3")}
    outside = {"ENGINE": "django.db.backends.sqlite3", "NAME": "/elsewhere/a.sqlite3"}
    server = {"ENGINE": "django.db.backends.postgresql", "HOST": "", "PORT": "", "NAME": "record", "PASSWORD": "secret"}
    named = [name_of(entry, tmp_path) for entry in (inside, outside, server)]
    assert named == ["a.sqlite3", "/elsewhere/a.sqlite3", "postgresql://localhost:5432/record"]


def test_only_a_database_that_was_there_is_missed(tmp_path: Path) -> None:
    entry = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "a.sqlite3")}
    assert (missing_file(entry, tmp_path), emptied(entry, tmp_path)) == ("", "")
    remember(entry, tmp_path)
    remember(entry, tmp_path)
    assert (tmp_path / ".databases").read_text() == "a.sqlite3\n"
    assert missing_file(entry, tmp_path).startswith(f"{tmp_path}/a.sqlite3 held a record, and the file is not there.")
    assert emptied(entry, tmp_path).startswith("The database a.sqlite3 held a record, and it is empty now.")
    (tmp_path / "a.sqlite3").touch()
    assert missing_file(entry, tmp_path) == ""
    assert is_known(entry, tmp_path)


def test_a_data_directory_is_made_where_there_is_none(tmp_path: Path) -> None:
    entry = {"ENGINE": "django.db.backends.postgresql", "HOST": "here", "PORT": "1", "NAME": "record"}
    remember(entry, tmp_path / "new")
    assert is_known(entry, tmp_path / "new")


if POSTGRESQL:

    def test_sessions_come_and_go_while_another_process_migrates(transactional_db: None) -> None:
        ada = User.objects.create_user("ada")
        with one_at_a_time(connection, print), connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '3s'")
            try:
                session = lifecycle.create_session(owner=ada)
                lifecycle.delete_session(session.id, owner_id=ada.pk)
            finally:
                cursor.execute("RESET lock_timeout")

    @pytest.mark.slow
    def test_an_empty_database_that_held_a_record_is_not_filled_anew(tmp_path: Path) -> None:
        with site_database("emptied") as database:
            environment = environment_for(tmp_path, **database)
            assert manage("migrate", "-v0", environment=environment).returncode == 0
            with psycopg.connect(database["DATABASE_URL"], autocommit=True) as server:
                server.execute("DROP SCHEMA public CASCADE")
                server.execute("CREATE SCHEMA public")
            done = manage("up", "--port", str(free_port()), environment=environment)
            assert done.returncode == 1
            assert f"{urlsplit(database['DATABASE_URL']).path} held a record, and it is empty now." in done.stderr
            assert str(tmp_path / ".databases") in done.stderr

else:

    def laid(directory: Path) -> dict[str, str]:
        lay_database(directory)
        environment = environment_for(directory)
        assert manage("migrate", "-v0", environment=environment).returncode == 0
        return environment

    @pytest.mark.slow
    @pytest.mark.parametrize("command", [("up", "--port", "1"), ("verify", "--all")], ids=" ".join)
    def test_a_file_that_is_missing_is_named_and_none_is_made(tmp_path: Path, command: tuple[str, ...]) -> None:
        environment = laid(tmp_path)
        (tmp_path / DATABASE).unlink()
        done = manage(*command, environment=environment)
        assert done.returncode == 1
        assert f"Mnesis cannot start: {tmp_path / DATABASE} held a record, and the file is not there." in done.stderr
        assert not (tmp_path / DATABASE).exists()

    @pytest.mark.slow
    def test_a_file_that_is_empty_is_not_filled_anew(tmp_path: Path) -> None:
        environment = laid(tmp_path)
        (tmp_path / DATABASE).write_bytes(b"")
        done = manage("up", "--port", str(free_port()), environment=environment)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert f"The database {DATABASE} held a record, and it is empty now." in done.stderr

    @pytest.mark.slow
    @pytest.mark.parametrize("command", ["up", "migrate"])
    @pytest.mark.parametrize("whole", [0, 4096 * 20], ids=["garbage", "damaged"])
    def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path, command: str, whole: int) -> None:
        lay_database(tmp_path)
        content = (tmp_path / DATABASE).read_bytes()
        (tmp_path / DATABASE).write_bytes(content[:whole] + b"garbage." * ((len(content) - whole) // 8))
        done = manage(command, environment=environment_for(tmp_path))
        assert done.returncode == 1
        assert f"CommandError: {tmp_path / DATABASE} is not a whole SQLite database" in done.stderr
        assert "Traceback" not in done.stderr
