"""Guards through migrations, flushes and tampering; the suite runs once on each database."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.core.management import call_command
from django.core.management.sql import emit_post_migrate_signal, emit_pre_migrate_signal
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, models, transaction
from django.db.migrations import Migration
from django.db.utils import ConnectionHandler
from django.test.utils import CaptureQueriesContext, isolate_apps

from sessions_app.database.guards.rules import AppendOnlyModel, Rules
from sessions_app.database.guards.triggers import (
    expected_guards,
    guard_differences,
    guarded_models,
    install_guards,
    remove_guards,
)
from sessions_app.management.commands.flush import is_test_database
from sessions_app.models import Event, Session, Turn
from tests.sessions_app.database.guards.record_rows import insert_rows, plain
from tests.support.sites.databases import execute, unmigrate

pytestmark = [pytest.mark.both_databases, pytest.mark.owner]

POSTGRESQL = connection.vendor == "postgresql"
DROP = "DROP TRIGGER guard_events_frozen" + (" ON events" if POSTGRESQL else "")


@pytest.fixture
def restored() -> Iterator[None]:
    """Guards and tables as they were, whatever a test without a transaction did to them."""
    yield
    call_command("migrate", verbosity=0)
    install_guards(connection, guarded_models())


def test_a_migrated_database_is_guarded_as_declared(db: None) -> None:
    assert guard_differences(connection) == []
    assert {model._meta.db_table for model in guarded_models()} >= {"sessions", "events", "summary_nodes"}


def test_a_dropped_guard_is_named_with_its_table_and_put_back(db: None) -> None:
    execute(DROP)
    assert guard_differences(connection) == ["events is not guarded: guard_events_frozen is missing."]
    install_guards(connection, [Event])
    assert guard_differences(connection) == []


TAMPERED_ON: dict[str, dict[str, tuple[str, ...]]] = {
    "sqlite": {
        "weakened": (
            "DROP TRIGGER guard_events_frozen",
            "CREATE TRIGGER guard_events_frozen BEFORE UPDATE ON events WHEN OLD.id IS NOT NEW.id"
            " BEGIN SELECT RAISE(ABORT, 'events'); END",
        ),
    },
    "postgresql": {
        "weakened": (
            "CREATE OR REPLACE TRIGGER guard_events_frozen BEFORE UPDATE ON events FOR EACH ROW"
            " WHEN (OLD.id <> NEW.id) EXECUTE FUNCTION guard_refuse('events')",
            "ALTER TABLE events ENABLE ALWAYS TRIGGER guard_events_frozen",
        ),
        "switched_off": ("ALTER TABLE events DISABLE TRIGGER guard_events_frozen",),
        "not_always": ("ALTER TABLE events ENABLE TRIGGER guard_events_frozen",),
        "on_replicas_only": ("ALTER TABLE events ENABLE REPLICA TRIGGER guard_events_frozen",),
        "with_a_function_that_lets_pass": (
            "CREATE OR REPLACE FUNCTION guard_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        ),
    },
}
TAMPERED = TAMPERED_ON[connection.vendor]


@pytest.mark.parametrize("statements", TAMPERED.values(), ids=TAMPERED)
def test_a_guard_that_was_tampered_with_is_named_and_put_right(db: None, statements: tuple[str, ...]) -> None:
    execute(*statements)
    named = "events is not guarded as declared: guard_events_frozen differs or is switched off."
    assert named in guard_differences(connection)
    install_guards(connection, guarded_models())
    assert guard_differences(connection) == []
    event = insert_rows()[Event]
    with pytest.raises(IntegrityError):
        plain(Event).filter(pk=event.pk).update(body="forged")


def test_a_guard_that_no_rule_declares_is_named_and_removed(db: None) -> None:
    event = "INSERT" if POSTGRESQL else "INSERT ON events BEGIN SELECT RAISE(IGNORE); END"
    tail = " ON events FOR EACH ROW EXECUTE FUNCTION guard_refuse('no')" if POSTGRESQL else ""
    execute(f"CREATE TRIGGER guard_events_extra BEFORE {event}{tail}")
    assert [sentence for sentence in guard_differences(connection) if "guard_events_extra" in sentence]
    install_guards(connection, [Event])
    assert guard_differences(connection) == []


def test_guards_that_are_right_are_not_touched(db: None) -> None:
    with CaptureQueriesContext(connection) as queries:
        install_guards(connection, guarded_models())
    assert not [query["sql"] for query in queries if query["sql"].startswith(("CREATE", "DROP", "ALTER"))]


def test_only_the_named_models_lose_their_guards(db: None) -> None:
    remove_guards(connection, [Event])
    assert {sentence.split()[0] for sentence in guard_differences(connection)} == {"events"}


@isolate_apps("sessions_app")
def test_a_table_that_is_not_there_yet_or_half_migrated_is_left_alone(db: None) -> None:
    class Later(AppendOnlyModel):
        class Meta:
            app_label, db_table = "sessions_app", "later"

    class Wider(AppendOnlyModel):
        colour = models.CharField(max_length=8)

        class Meta:
            app_label, db_table = "sessions_app", "events"

    install_guards(connection, [Later, Wider])
    assert guard_differences(connection) == []


@isolate_apps("sessions_app")
def test_a_rule_for_a_column_that_does_not_exist_is_an_error() -> None:
    class Misspelt(AppendOnlyModel):
        rules = Rules(free=("titel",))

        class Meta:
            app_label = "sessions_app"

    with pytest.raises(FieldDoesNotExist, match="titel"):
        expected_guards(connection, Misspelt)


def test_a_database_that_nothing_would_guard_is_refused() -> None:
    unknown = ConnectionHandler({"default": {"ENGINE": "django.db.backends.dummy"}})["default"]
    with pytest.raises(ImproperlyConfigured, match="SQLite and PostgreSQL"):
        install_guards(unknown, guarded_models())


# ---- Migrations --------------------------------------------------------------------------------------------


def alter_origin(*, length: int) -> None:
    """What an ``AlterField`` migration does; on SQLite Django rebuilds the whole table for it."""
    old, new = (models.CharField(max_length=size) for size in (96 - length, length))
    for field in (old, new):
        field.set_attributes_from_name("origin")
        field.model = Turn
    with connection.schema_editor() as editor:
        editor.alter_field(Turn, old, new)


@pytest.mark.django_db(transaction=True)
def test_guards_come_back_after_a_migration_that_alters_a_guarded_column(restored: None) -> None:
    plan = [(Migration("0002_wider", "sessions_app"), False)]
    emit_pre_migrate_signal(0, False, DEFAULT_DB_ALIAS, plan=plan)
    assert {sentence.split()[0] for sentence in guard_differences(connection)} >= {"turns", "events"}
    alter_origin(length=64)
    alter_origin(length=32)
    emit_post_migrate_signal(0, False, DEFAULT_DB_ALIAS, plan=plan)
    assert guard_differences(connection) == []
    turn = insert_rows()[Turn]
    with pytest.raises(IntegrityError, match=r"^turns: "), transaction.atomic():
        plain(Turn).filter(pk=turn.pk).update(origin="forged")
    assert plain(Turn).get().origin == "chat"


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_guards_follow_a_real_migration_backwards_and_forwards(restored: None) -> None:
    unmigrate("compaction_app")
    named = {sentence.split()[0] for sentence in guard_differences(connection)}
    assert "summary_nodes" in named
    assert not named & {"sessions", "events"}
    call_command("migrate", verbosity=0)
    assert guard_differences(connection) == []


def test_migrate_is_not_stopped_by_a_missing_guard_and_tells_of_it(db: None, caplog: pytest.LogCaptureFixture) -> None:
    execute(DROP)
    with caplog.at_level(logging.WARNING, "sessions_app.database.guards.triggers"):
        call_command("migrate", verbosity=0, skip_checks=False)
    assert caplog.messages == ["events is not guarded: guard_events_frozen is missing. It is put right now."]
    assert guard_differences(connection) == []


if not POSTGRESQL:

    @pytest.mark.django_db(transaction=True)
    def test_a_table_that_sqlite_rebuilt_has_lost_its_guards_and_is_named(restored: None) -> None:
        alter_origin(length=64)
        assert {sentence.split()[0] for sentence in guard_differences(connection)} == {"turns"}
        alter_origin(length=32)


# ---- Flush -------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("inhibit_post_migrate", [True, False])
def test_flush_empties_a_test_database_and_leaves_it_guarded(inhibit_post_migrate: bool) -> None:
    insert_rows()
    call_command("flush", verbosity=0, interactive=False, inhibit_post_migrate=inhibit_post_migrate)
    assert not plain(Session).exists()
    assert guard_differences(connection) == []


@pytest.mark.parametrize(
    ("name", "is_test"),
    [
        ("test_mnesis", True),
        ("/data/test.sqlite3", True),
        ("/data/test.sqlite3_gw1", True),
        (":memory:", True),
        ("file:memorydb_default?mode=memory&cache=shared", True),
        ("test", False),
        ("mnesis", False),
        ("latest_mnesis", False),
        ("/data/mnesis.sqlite3", False),
        ("/test_data/mnesis.sqlite3", False),
        ("/data/test.d/mnesis.sqlite3", False),
    ],
)
def test_only_names_of_test_databases_are_taken_for_one(name: str, is_test: bool) -> None:
    assert is_test_database(name) is is_test


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite:///{directory}/mnesis.sqlite3", "postgresql://nobody@127.0.0.1:1/mnesis"])
def test_flush_refuses_a_record_before_it_even_connects(tmp_path: Path, url: str) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "mnesis_site.settings",
        "DATABASE_URL": url.format(directory=tmp_path),
        "MNESIS_DATA_DIR": str(tmp_path),
    }
    run = subprocess.run(
        [sys.executable, "manage.py", "flush", "--noinput"],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith("CommandError: ")
    assert "a record, which is never emptied" in run.stderr
    assert not list(tmp_path.glob("*.sqlite3"))
