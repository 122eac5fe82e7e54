"""No command takes the record away: each one of every installed app is decided upon here, and those that could are tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command, get_commands
from django.db import DatabaseError, connection
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor

from sessions_app.database.guards.migrating import record_apps, unapplied
from sessions_app.management.commands.flush import Command as Flush
from tests.sessions_app.database.guards.record_rows import everything, insert_rows
from tests.support.sites.databases import site_database
from tests.support.sites.site import environment_for, lay_database, manage

POSTGRESQL = connection.vendor == "postgresql"
# Commands are run by the owner of the tables. On SQLite it is the authorizer that tells one command from another.
pytestmark = [pytest.mark.both_databases, *([pytest.mark.owner] if POSTGRESQL else [])]

READS = {
    *("check", "diffsettings", "dumpdata", "inspectdb", "showmigrations", "sqlflush", "sqlmigrate", "sqlsequencereset"),
    *("findstatic", "export_openapi_schema", "qinfo", "qmemory", "qmonitor", "export", "replay", "verify"),
}
"""They print."""
WRITES_FILES = {
    *("compilemessages", "makemessages", "makemigrations", "optimizemigration", "squashmigrations", "startapp"),
    *("startproject", "collectstatic", "evaluate_memory"),
}
"""They write files: of the code, copies of static files, and reports made in a database of their own."""
WORKS = {
    *("run", "resume", "map", "mcp_server", "rpc", "sessions", "files", "import_session", "import_transcript", "up"),
    *("runserver", "runworker", "qcluster", "resummarise", "summaries", "organisation"),
}
"""They write as the site does, by the store: rows are added, and change as their rules permit."""
ADMINISTERS = {
    *("changepassword", "createsuperuser", "apikey", "limit", "model", "mcp", "roles", "sendtestemail"),
    *("createcachetable", "clearsessions", "remove_stale_contenttypes", "rebuild_search", "fill_vectors"),
    "reencrypt_keys",
}
"""They write tables that are not of the record."""
REFUSES = {"flush", "loaddata", "migrate", "test", "testserver", "move_database"}
"""They refuse what would take rows away. ``move_database`` onto a filled target: tests/audit_app/transfer/test_move.py."""
OUT_OF_OUR_HANDS = {"dbshell", "shell"}
"""They run as typed: with the rights of the site's role, on SQLite within the authorizer or with the file itself."""


def test_every_command_is_decided_upon() -> None:
    decided = [READS, WRITES_FILES, WORKS, ADMINISTERS, REFUSES, OUT_OF_OUR_HANDS]
    assert sum(map(len, decided)) == len(set().union(*decided))
    assert set(get_commands()) == set().union(*decided)


def test_the_apps_of_the_record_are_those_with_its_tables_and_the_accounts() -> None:
    assert record_apps() == {"agents_app", "auth", "compaction_app", "files_app", "sessions_app"}


def test_only_steps_backwards_over_the_record_are_refused() -> None:
    plan = [
        (Migration("0002_a", "kept"), True),
        (Migration("0001_b", "other"), True),
        (Migration("0003_c", "kept"), False),
    ]
    assert unapplied(plan, {"kept"}) == ["kept.0002_a"]


UNDO: dict[str, tuple[list[str], dict[str, bool]]] = {
    **{f"{app} zero": ([app, "zero"], {}) for app in sorted(record_apps())},
    "contenttypes 0001": (["contenttypes", "0001"], {}),
    "auth 0011": (["auth", "0011"], {}),
    "--fake": (["sessions_app", "zero"], {"fake": True}),
    "--fake-initial": (["sessions_app", "zero"], {"fake_initial": True}),
}


@pytest.mark.parametrize(("target", "options"), UNDO.values(), ids=UNDO)
def test_a_backward_plan_over_the_record_is_refused(db: None, target: list[str], options: dict[str, bool]) -> None:
    insert_rows()
    before = everything()
    with pytest.raises(CommandError, match=r"This would undo .*drop the database with the database's own tools\."):
        call_command("migrate", *target, verbosity=0, interactive=False, **options)
    assert everything() == before
    call_command("migrate", verbosity=0, check_unapplied=True)


@pytest.mark.parametrize("command", ["loaddata", "test", "testserver"])
def test_a_command_that_would_overwrite_or_delete_is_refused(db: None, command: str, tmp_path: Path) -> None:
    insert_rows()
    before = everything()
    fixture = tmp_path / "fixture.json"
    with fixture.open("w") as file:
        call_command("dumpdata", "sessions_app.Session", stdout=file)
    fixture.write_text(fixture.read_text().replace('"title": ""', '"title": "forged"'))
    with pytest.raises(CommandError, match=r"Fixtures would write past the ledger|Run the tests with 'make test'"):
        call_command(command, str(fixture), verbosity=0)
    assert everything() == before


HARMLESS: dict[str, Callable[[], Any]] = {
    "migrate": lambda: call_command("migrate", verbosity=0),
    "migrate --plan": lambda: call_command("migrate", "sessions_app", "zero", plan=True, verbosity=0),
    "migrate --prune": lambda: call_command("migrate", "sessions_app", prune=True, verbosity=0),
    "migrate zero --prune": lambda: call_command("migrate", "sessions_app", "zero", prune=True, verbosity=0),
    "migrate --fake": lambda: call_command("migrate", fake=True, verbosity=0),
    "migrate --fake-initial": lambda: call_command("migrate", fake_initial=True, verbosity=0),
    "sqlflush": lambda: call_command("sqlflush"),
    "sqlsequencereset": lambda: call_command("sqlsequencereset", "sessions_app"),
    "createcachetable": lambda: call_command("createcachetable", verbosity=0),
    "clearsessions": lambda: call_command("clearsessions"),
    "rebuild_search": lambda: call_command("rebuild_search"),
    "fill_vectors": lambda: call_command("fill_vectors"),
    "remove_stale_contenttypes": lambda: call_command(
        "remove_stale_contenttypes", interactive=False, include_stale_apps=True, verbosity=0
    ),
}


@pytest.mark.parametrize("command", HARMLESS.values(), ids=HARMLESS)
def test_a_command_that_could_be_thought_to_delete_does_not(
    db: None, capsys: pytest.CaptureFixture[str], command: Callable[[], Any]
) -> None:
    insert_rows()
    ContentType.objects.create(app_label="sessions_app", model="gone")
    ContentType.objects.create(app_label="gone_app", model="gone")
    before = everything()
    command()
    assert everything() == before


def test_flush_is_overridden_by_ours() -> None:
    assert get_commands()["flush"] == "sessions_app"
    assert Flush.__module__ == "sessions_app.management.commands.flush"


@pytest.mark.slow
def test_the_whole_command_leaves_the_record_and_exits_with_1(tmp_path: Path) -> None:
    lay_database(tmp_path)
    with site_database("undo", is_prepared=True) as database:
        environment = environment_for(tmp_path, **database)
        done = manage("migrate", "sessions_app", "zero", "--noinput", environment=environment)
        assert (done.returncode, done.stderr[:30]) == (1, "CommandError: This would undo ")
        assert manage("migrate", "--run-syncdb", environment=environment).returncode == 0


if not POSTGRESQL:

    @pytest.mark.slow
    @pytest.mark.django_db(transaction=True)
    def test_a_program_that_migrates_backwards_is_refused_by_the_authorizer() -> None:
        insert_rows()
        before = everything()
        executor = MigrationExecutor(connection)
        with pytest.raises(DatabaseError, match="not authorized"):
            executor.migrate([("sessions_app", None)])
        assert everything() == before
