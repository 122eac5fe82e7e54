"""What the site's role may not do on PostgreSQL, whatever the triggers say, and how roles are made and compared."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import DatabaseError, ProgrammingError, connection, models, transaction

from sessions_app.database.guards.rights import (
    apply_role,
    auditor_role,
    connection_differences,
    grant_differences,
    restore_grants,
    role_differences,
    site_role,
)
from sessions_app.database.guards.rules import AppendOnlyModel
from sessions_app.database.guards.triggers import guarded_models
from sessions_app.models import Event, Message, Session, StreamJournal, Turn
from tests.sessions_app.database.guards.record_rows import insert_rows, plain
from tests.support.sites.commands import printed
from tests.support.sites.databases import execute
from tests.support.sites.site_role import acting_as

pytestmark = pytest.mark.both_databases

REFUSED = {
    "frozen_column": "UPDATE messages SET role = 'forged'",
    "frozen_column_among_others": "UPDATE turns SET fence = 2, origin = 'forged'",
    "frozen_column_by_upsert": "INSERT INTO events SELECT * FROM events ON CONFLICT (id) DO UPDATE SET body = ''",
    "delete": "DELETE FROM messages",
    "delete_of_migrations": "DELETE FROM django_migrations",
    "truncate": "TRUNCATE stream_journal",
    "disable_trigger": "ALTER TABLE messages DISABLE TRIGGER ALL",
    "drop_trigger": "DROP TRIGGER guard_messages_frozen ON messages",
    "create_trigger": "CREATE TRIGGER more BEFORE INSERT ON messages EXECUTE FUNCTION guard_refuse('no')",
    "replace_function": "CREATE OR REPLACE FUNCTION guard_refuse() RETURNS trigger LANGUAGE plpgsql"
    " AS 'BEGIN RETURN NEW; END'",
    "replica": "SET session_replication_role = replica",
    "alter_type": "ALTER TABLE messages ALTER COLUMN role TYPE text USING 'forged'",
    "drop_table": "DROP TABLE stream_journal",
    "create_table": "CREATE TABLE others (id integer)",
    "create_schema": "CREATE SCHEMA others",
    "temporary_table": "CREATE TEMP TABLE messages (id text)",
    "set_counter": "SELECT setval('events_id_seq', 9)",
    "rule": "CREATE RULE nothing AS ON UPDATE TO turns DO INSTEAD NOTHING",
    "become_owner": "SET ROLE pg_database_owner",
    "program": "COPY messages TO PROGRAM 'cat'",
    "lock_out_everybody": "LOCK TABLE messages IN ACCESS EXCLUSIVE MODE",
}


@pytest.fixture
def rows(db: None) -> None:
    insert_rows()
    connection.check_constraints()


@pytest.fixture
def a_role(db: None, site_role_name: str) -> str:
    """A role that goes with the test's transaction."""
    return f"{site_role_name}_2"


said = partial(printed, "roles")


# ---- What the site's role may do ---------------------------------------------------------------------------


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
def test_it_is_refused_to_the_site(rows: None, statement: str) -> None:
    with pytest.raises(ProgrammingError, match=r"permission denied|must be owner|must be superuser|must have"):
        execute(statement)


@pytest.mark.parametrize("model", guarded_models(), ids=lambda model: model.__name__)
def test_no_row_of_the_record_is_saved_again_or_deleted(rows: None, model: type[AppendOnlyModel]) -> None:
    full_save = f"UPDATE {model._meta.db_table} SET " + ", ".join(
        f'"{field.column}" = "{field.column}"' for field in model._meta.concrete_fields
    )
    with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
        execute(full_save)
    if model is not StreamJournal:
        with pytest.raises(ProgrammingError, match="permission denied"):
            plain(model)._raw_delete("default")


def test_the_site_does_its_work(rows: None) -> None:
    row = Turn.objects.select_for_update().get()
    Turn.objects.filter(pk=row.pk).update(fence=2)
    models.Model.save(plain(Message).get(), update_fields=["outcome"])
    Session.objects.select_for_update().update(title="T")
    StreamJournal.objects.all().delete()


# ---- Compared ----------------------------------------------------------------------------------------------


def test_the_role_that_the_suite_acts_as_has_the_declared_rights(db: None) -> None:
    assert grant_differences(connection) == []
    assert connection_differences(connection) == []


def test_a_connection_that_is_opened_again_has_them_too(transactional_db: None) -> None:
    assert connection_differences(connection) == []
    connection.close()
    assert connection_differences(connection) == []


@pytest.mark.owner
@pytest.mark.parametrize(
    ("tampering", "named", "is_put_right"),
    [
        ("GRANT UPDATE (role) ON messages TO {}", "may UPDATE messages (role), which is not declared", True),
        ("GRANT UPDATE ON events TO PUBLIC", "may UPDATE events (id, seq, type, body, ", True),
        ("GRANT DELETE ON turns TO {}", "may DELETE turns, which is not declared", True),
        ("GRANT TRUNCATE ON stream_journal TO {}", "may TRUNCATE stream_journal", True),
        ("GRANT TRIGGER ON messages TO {}", "may TRIGGER messages", True),
        ("GRANT UPDATE ON SEQUENCE events_id_seq TO PUBLIC", "may set the counter events_id_seq", True),
        ("GRANT CREATE ON SCHEMA public TO PUBLIC", "may create tables", True),
        ("REVOKE UPDATE (fence) ON turns FROM {}", "may not UPDATE turns (fence), which it needs", True),
        ("REVOKE INSERT ON auth_user FROM {}", "may not INSERT auth_user (id, ", True),
        ("GRANT pg_write_all_data TO {}", "may DELETE events, which is not declared", False),
        ('GRANT "{owner}" TO {}', "No grant binds", False),
        ("ALTER ROLE {} SUPERUSER", "No grant binds", False),
        ("ALTER ROLE {} CREATEROLE", "No grant binds", False),
        ("ALTER TABLE events OWNER TO {}", "No grant binds", False),
    ],
)
def test_a_right_that_is_not_as_declared_is_named(a_role: str, tampering: str, named: str, is_put_right: bool) -> None:
    role = site_role(a_role)
    apply_role(connection, role)
    assert role_differences(connection, role) == []
    execute(tampering.format(a_role, owner=connection.settings_dict["USER"]))
    assert any(named in sentence for sentence in role_differences(connection, role))
    if is_put_right:
        assert said("--app", a_role) == f"{a_role} has its rights.\n"
    else:
        with pytest.raises(CommandError):
            said("--app", a_role)


@pytest.mark.owner
def test_the_database_checks_fail_on_a_right_that_is_not_declared(db: None, site_role_name: str) -> None:
    execute(f"GRANT UPDATE (body) ON events TO {site_role_name}")
    with pytest.raises(SystemCheckError, match=r"mnesis\.E007"):
        call_command("check", databases=["default"], verbosity=0)


@pytest.mark.owner
def test_a_temporary_table_could_hide_the_record_and_is_named(a_role: str) -> None:
    role = site_role(a_role)
    apply_role(connection, role)
    execute(f"GRANT TEMPORARY ON DATABASE {connection.settings_dict['NAME']} TO {a_role}")
    assert role_differences(connection, role) == [
        f"{a_role} may create temporary tables, which hide those of the record."
    ]


@pytest.mark.owner
def test_a_new_column_may_not_be_updated_and_a_new_table_is_granted_by_migrate(site_role_name: str, db: None) -> None:
    execute("ALTER TABLE messages ADD COLUMN mood text", "CREATE TABLE more (id integer)")
    assert [sentence.split(" ", 1)[1] for sentence in grant_differences(connection)] == [
        "may not INSERT more (id), which it needs.",
        "may not SELECT more (id), which it needs.",
        "may not UPDATE more (id), which it needs.",
        "may not DELETE more, which it needs.",
    ]
    restore_grants(using="default")
    assert grant_differences(connection) == []
    with pytest.raises(ProgrammingError, match="permission denied"), acting_as(site_role_name):
        execute("UPDATE messages SET mood = 'good'")


@pytest.mark.owner
def test_a_role_that_is_not_there_is_named_and_made(a_role: str, settings: Any) -> None:
    settings.MNESIS = {**settings.MNESIS, "APP_ROLE": a_role}
    assert grant_differences(connection) == [f"There is no role {a_role}: 'manage.py roles' makes it."]
    said()
    assert grant_differences(connection) == []


@pytest.mark.owner
def test_a_server_that_connects_as_the_owner_is_named(db: None, site_role_name: str) -> None:
    [sentence] = connection_differences(connection)
    assert sentence.endswith(f"not as {site_role_name}: correct DATABASE_URL.")


@pytest.mark.owner
def test_without_a_setting_the_connected_role_is_compared_unless_it_owns_the_tables(a_role: str, settings: Any) -> None:
    settings.MNESIS = {**settings.MNESIS, "APP_ROLE": ""}
    assert grant_differences(connection) == []
    execute(f"CREATE ROLE {a_role}")
    with acting_as(a_role):
        assert f"{a_role} may not INSERT messages" in " ".join(grant_differences(connection))


# ---- The command -------------------------------------------------------------------------------------------


@pytest.mark.owner
def test_print_shows_the_sql_and_does_nothing(a_role: str) -> None:
    statements = said("--app", a_role, "--print").splitlines()
    assert f'CREATE ROLE "{a_role}" LOGIN;' in statements
    assert f'GRANT SELECT, INSERT, UPDATE ("removed_seq", "until") ON "context_items" TO "{a_role}";' in statements
    assert not [line for line in statements if '"events"' in line and ("UPDATE" in line or "DELETE" in line)]
    with pytest.raises(CommandError, match="Name a role"):
        said("--app", "")


@pytest.mark.owner
def test_the_printed_sql_is_what_the_command_does(a_role: str) -> None:
    execute(*said("--app", a_role, "--print").splitlines())
    assert role_differences(connection, site_role(a_role)) == []


@pytest.mark.owner
@pytest.mark.parametrize("name", ['x"; DROP TABLE events; --', "UPPER", "1st", "a" * 64])
def test_a_name_that_would_need_quotes_is_refused(name: str) -> None:
    with pytest.raises(CommandError, match="a role's name has small letters"):
        call_command("roles", f"--app={name}")


def test_the_site_itself_cannot_make_roles(a_role: str) -> None:
    with pytest.raises(CommandError, match=r"permission denied .*Run this as the owner of the tables"):
        said("--app", a_role)


# ---- The auditor -------------------------------------------------------------------------------------------


@pytest.fixture
def auditor(rows: None, a_role: str) -> Iterator[str]:
    """A connection that acts as an auditor; rows are the owner's."""
    apply_role(connection, auditor_role(a_role))
    with acting_as(a_role):
        yield a_role


@pytest.mark.owner
def test_an_auditor_reads_the_record_and_checks_it(auditor: str) -> None:
    assert Event.objects.count() == 1
    call_command("check", databases=["default"], verbosity=0)


@pytest.mark.owner
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO summary_edges (position, source_type, source_id, node_id) VALUES (1, 'message', 'm', 'n')",
        "UPDATE turns SET fence = 2",
        "DELETE FROM stream_journal",
        "SELECT password FROM auth_user",
        "SELECT * FROM django_session",
        "SELECT nextval('events_id_seq')",
    ],
)
def test_an_auditor_writes_nothing_and_sees_no_passwords(auditor: str, statement: str) -> None:
    with pytest.raises(DatabaseError, match="permission denied"):
        execute(statement)


@pytest.mark.owner
def test_an_auditor_who_may_write_is_named(a_role: str) -> None:
    role = auditor_role(a_role)
    apply_role(connection, role)
    assert role_differences(connection, role) == []
    execute(f"GRANT UPDATE (fence) ON turns TO {a_role}")
    assert role_differences(connection, role) == [f"{a_role} may UPDATE turns (fence), which is not declared."]
