"""Everything goes from one database to another and back, and is the same."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction

from audit_app.tables import LEFT_BEHIND, carried_tables, dealt_by_migrate, is_carried, renumbered
from audit_app.transfer import move
from audit_app.transfer.move import MoveReport, move_database, name_of
from mnesis_core.errors import Conflict, InvalidRequest, MnesisError, NotReady, SessionBusy
from mnesis_site.management.commands.move_database import summary
from sessions_app.database.guards.rights import lifted
from sessions_app.database.guards.triggers import guard_differences, guarded_models, remove_guards
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from tests.audit_app.conftest import OTHER_KIND, NewDatabase
from tests.support.record.inspected import add_session
from tests.support.record.sample_record import Sample
from tests.support.sites.site import ROOT, environment_for, manage

Connect = Callable[[str], str]
pytestmark = pytest.mark.owner


def rows_of(alias: str, like: str = "") -> dict[str, list[str]]:
    """Every row of every table that is carried, as text; permissions and content types as ``like`` numbers them."""
    dealt = dealt_by_migrate(alias, like or alias)
    return {
        table.name: sorted(
            repr([in_order(value) for value in renumbered(table, row, dealt)]) for row in table.read(table.query(alias))
        )
        for table in carried_tables()
    }


@pytest.mark.slow
def test_everything_goes_there_and_back_and_is_the_same(sample: Sample, new_database: NewDatabase, connected: Connect):
    there = connected(new_database(OTHER_KIND[connection.vendor]))
    back = connected(new_database(connection.vendor, migrated=True))
    first = move_database("default", there)
    again = move_database("default", there)
    returned = move_database(there, back)
    assert (first.ok, again.ok, returned.ok) == (True, True, True)
    assert (first.sessions, first.entries) == (3, sum(head for _, head in heads("default")))
    assert (again.copied, returned.copied) == (0, first.copied)
    here = rows_of("default")
    filled = [name for name, rows in here.items() if rows]
    assert {"message_parts", "summary_edges", "file_references", "api_keys", "auth_group_permissions"} < set(filled)
    assert {"projects", "project_members", "project_files"} < set(filled)
    assert rows_of(there, "default") == here == rows_of(back, "default")
    entries = apps.get_model("sessions_app", "SearchEntry")._base_manager
    assert entries.using(there).count() == entries.using(back).count() > 0
    assert [guard_differences(connections[alias]) for alias in (there, back)] == [[], []]
    for alias in (there, back):
        highest = Group.objects.using(alias).order_by("-pk").values_list("pk", flat=True)[0]
        assert Group.objects.using(alias).create(name="new").pk == highest + 1


def in_order(value: Any) -> Any:
    """A JSON object with its keys in order, which PostgreSQL does not keep."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def heads(alias: str) -> list[tuple[str, int]]:
    sessions = apps.get_model("sessions_app", "Session")
    return list(sessions._base_manager.using(alias).values_list("id", "event_seq"))


def test_where_the_contents_of_files_stay_is_said_if_there_are_any():
    report = MoveReport(source="here", target="there", tables={"file_references": {"rows": 0, "copied": 0}})
    assert "MNESIS_DATA_DIR" not in summary(report, 1)
    report.tables["file_references"]["rows"] = 1
    assert "keep MNESIS_DATA_DIR, or move that folder too" in summary(report, 1)


def test_every_table_is_carried_or_said_to_be_left_behind():
    carried = {table.model for table in carried_tables()}
    for model in apps.get_models(include_auto_created=True):
        assert (model in carried) == is_carried(model)
        assert model in carried or model._meta.proxy or model._meta.label in LEFT_BEHIND
    assert set(guarded_models()) <= carried


def test_a_foreign_key_never_points_at_a_table_that_comes_later():
    seen: set[type] = set()
    for table in carried_tables():
        seen.add(table.model)
        assert all(model in seen or not is_carried(model) for _, model in table.foreign_keys), table.name


KILLED_AFTER = """
import os, signal, sys
import django; django.setup()
from audit_app import tables
from audit_app.transfer import move
from mnesis_site.management.commands.move_database import SOURCE, TARGET, connect
tables.BATCH_ROWS = 3
connect(sys.argv[1])
steps = 0
def progress(verb, table, done, total):
    global steps
    steps += 1
    if steps == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
move.move_database(SOURCE, TARGET, progress=progress)
"""


@pytest.mark.slow
def test_a_move_that_is_killed_goes_on_where_it_was(
    sample: Sample, new_database: NewDatabase, connected: Connect, tmp_path: Path
):
    source, target = new_database("sqlite", migrated=True), new_database(OTHER_KIND[connection.vendor], migrated=True)
    move_database("default", connected(source))
    environment = environment_for(tmp_path, DATABASE_URL=source)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER, target, "12"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    half = connected(target)
    counts = {table.name: table.count(half) for table in carried_tables()}
    assert 0 < sum(counts.values()) < sum(map(len, rows_of("default").values()))
    done = manage("move_database", "--to", target, "--json", environment=environment)
    assert done.returncode == 0, done.stderr
    assert '"ok": true' in done.stdout
    assert rows_of(half, "default") == rows_of("default")


def test_it_waits_for_nobody_whose_turn_is_running(sample: Sample, new_database: NewDatabase, connected: Connect):
    target = connected(new_database("sqlite"))
    with change(add_session(sample.ada)) as record:
        turn_store.start_turn(record, model="demo")
    with pytest.raises(SessionBusy, match=r"1 turns are running\. Stop the site"):
        move_database("default", target)
    assert connections[target].introspection.table_names() == []


@pytest.mark.slow
def test_who_writes_to_the_source_is_waited_for_then_told(
    sample: Sample, new_database: NewDatabase, connected: Connect, monkeypatch: pytest.MonkeyPatch
):
    url = new_database("postgresql", migrated=True)
    monkeypatch.setattr(move, "LOCK_SECONDS", 0.2)
    with psycopg.connect(url) as writer:
        writer.execute("INSERT INTO auth_group (name) VALUES ('half way')")
        with pytest.raises(Conflict, match=r"Another process is writing to postgresql://.*Stop the site"):
            move_database(connected(url), connected(new_database("sqlite")))


@pytest.mark.slow
def test_nobody_writes_to_the_source_while_it_is_copied(sample: Sample, new_database: NewDatabase, connected: Connect):
    url = new_database("sqlite", migrated=True)
    source = connected(url)
    move_database("default", source)
    tries: list[str] = []

    def write(verb: str, *_: object) -> None:
        if verb == "indexed":
            return
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0)) as writer:
            try:
                writer.execute("INSERT INTO auth_group (name) VALUES ('late')")
            except sqlite3.OperationalError as error:
                tries.append(str(error))

    move_database(source, connected(new_database("sqlite", migrated=True)), progress=write)
    copying = [table for table in carried_tables() if table.count(source)]
    assert tries == ["database is locked"] * 2 * len(copying)


@pytest.mark.slow
def test_permissions_keep_their_meaning_where_they_have_other_numbers(
    sample: Sample, new_database: NewDatabase, connected: Connect
):
    target = connected(new_database("sqlite", migrated=True))
    for model in (Permission, ContentType):
        model.objects.using(target).all().delete()  # migrate makes them again
    move_database("default", target)
    here, there = (set(Permission.objects.using(alias).filter(group__name="harbour")) for alias in ("default", target))
    assert {permission.natural_key() for permission in here} == {permission.natural_key() for permission in there}
    assert {permission.pk for permission in here}.isdisjoint(permission.pk for permission in there)


@pytest.mark.slow
def test_a_target_with_another_record_is_not_touched(sample: Sample, new_database: NewDatabase, connected: Connect):
    """Whether it was moved there (its sessions are not ours) or grew after an earlier move (its rows are not equal)."""
    target = connected(new_database("sqlite", migrated=True))
    with suppress(Undone), transaction.atomic():
        add_session(sample.ada)
        move_database("default", target)
        raise Undone
    before = rows_of(target)
    with pytest.raises(Conflict, match="holds another record"):
        move_database("default", target)
    assert rows_of(target) == before


class Undone(Exception):
    """Takes a change back."""


@pytest.mark.slow
def test_a_source_that_was_used_since_an_earlier_move_begins_again(
    sample: Sample, new_database: NewDatabase, connected: Connect
):
    target = connected(new_database("sqlite", migrated=True))
    move_database("default", target)
    with change(sample.talk) as record:
        session_store.update_session(record, title="Used again")
    with pytest.raises(Conflict, match=rf"sessions '{sample.talk}' is not what the source has"):
        move_database("default", target)


def test_a_database_is_not_moved_into_itself(db: None, connected: Connect, new_database: NewDatabase):
    values = connection.settings_dict
    url = f"sqlite:///{values['NAME']}"
    if connection.vendor == "postgresql":
        url = f"postgresql://{values['USER']}@{values['HOST']}:{values['PORT']}/{values['NAME']}"
    with pytest.raises(MnesisError, match=r"database that is in use|are one database"):
        move_database("default", connected(url))


@pytest.mark.slow
def test_text_that_the_target_cannot_hold_is_named(sample: Sample, new_database: NewDatabase, connected: Connect):
    """SQLite holds any length and NUL; PostgreSQL does not."""
    source, target = (connected(new_database(kind, migrated=True)) for kind in ("sqlite", "postgresql"))
    move_database("default", source)
    with connections[source].cursor() as cursor:
        cursor.execute("UPDATE auth_group SET name = %s", ["n" * 200])
    with pytest.raises(InvalidRequest, match=r"refuses a row of auth_group between (\d+) and \1: .*too long"):
        move_database(source, target)


@pytest.mark.slow
def test_a_broken_chain_is_carried_and_told(sample: Sample, new_database: NewDatabase, connected: Connect):
    kinds = ("sqlite", OTHER_KIND[connection.vendor])
    source, target = (connected(new_database(kind, migrated=True)) for kind in kinds)
    move_database("default", source)
    with lifted(connections[source]), connections[source].cursor() as cursor:
        remove_guards(connections[source], guarded_models())
        cursor.execute("UPDATE events SET body = '{}' WHERE session_id = %s AND seq = 3", [sample.talk])
        cursor.execute("UPDATE sessions SET head_hash = %s WHERE id = %s", ["0" * 64, sample.child])
    report = move_database(source, target)
    assert not report.ok
    told = {(problem["session"], problem["detail"]) for problem in report.problems}
    assert (sample.talk, "source: entry 3 is not what was hashed") in told
    assert (sample.talk, "target: entry 3 is not what was hashed") in told
    assert (sample.child, "target: the session's row names another head than its last entry") in told


def test_a_source_that_lacks_migrations_is_refused(new_database: NewDatabase, connected: Connect, db: None):
    with pytest.raises(NotReady, match=r"The source lacks migrations\. Run 'manage.py migrate'"):
        move_database(connected(new_database("sqlite")), connected(new_database("sqlite")))


def test_an_address_that_is_none_is_refused():
    with pytest.raises(CommandError, match="must start with sqlite:/// or postgresql://") as refusal:
        call_command("move_database", to="mysql://me:hush@somewhere/x")
    assert refusal.value.returncode == 2
    assert "hush" not in str(refusal.value)


def test_a_database_is_named_without_its_password(connected: Connect):
    assert name_of(connected("postgresql://me:hush@somewhere:99/record")) == "postgresql://somewhere:99/record"
