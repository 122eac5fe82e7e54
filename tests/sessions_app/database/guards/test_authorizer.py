"""What a connection of ours refuses on SQLite before the database is even asked; triggers are in test_guards."""

from __future__ import annotations

import sqlite3

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from sessions_app.database.guards.rights import decide, lifted
from sessions_app.database.guards.rules import AppendOnlyModel
from sessions_app.database.guards.triggers import guarded_models
from sessions_app.models import Message, Session, StreamJournal
from tests.sessions_app.database.guards.record_rows import insert_rows, plain
from tests.support.sites.databases import execute

REFUSED = {
    "frozen_column": "UPDATE messages SET role = 'forged'",
    "frozen_column_among_others": "UPDATE turns SET fence = 2, origin = 'forged'",
    "frozen_column_by_upsert": "INSERT INTO events SELECT * FROM events WHERE true ON CONFLICT DO UPDATE SET body = ''",
    "rowid": "UPDATE messages SET rowid = 9",
    "delete": "DELETE FROM messages",
    "delete_of_migrations": "DELETE FROM django_migrations",
    "counter_of_keys": "UPDATE sqlite_sequence SET seq = 9",
    "drop_trigger": "DROP TRIGGER guard_messages_frozen",
    "drop_table": "DROP TABLE messages",
    "drop_index": "DROP INDEX message_turn",
    "alter_table": "ALTER TABLE messages ADD COLUMN more TEXT",
    "rename": "ALTER TABLE messages RENAME TO others",
    "create_table": "CREATE TABLE others (id INTEGER)",
    "create_trigger": "CREATE TRIGGER more AFTER INSERT ON messages BEGIN SELECT 1; END",
    "create_view": "CREATE VIEW others AS SELECT 1",
    "temporary_table": "CREATE TEMP TABLE messages (id TEXT)",
    "temporary_trigger": "CREATE TEMP TRIGGER more AFTER INSERT ON messages BEGIN SELECT 1; END",
    "temporary_view": "CREATE TEMP VIEW messages AS SELECT 1",
    "virtual_table": "CREATE VIRTUAL TABLE others USING fts5(text)",
    "attach": "ATTACH ':memory:' AS other",
    "reindex": "REINDEX messages",
    **{
        f"pragma {setting}": f"PRAGMA {setting}"
        for setting in (
            *(
                "writable_schema = 1",
                "foreign_keys = OFF",
                "foreign_keys = ''",
                "FOREIGN_KEYS(0)",
                "main.foreign_keys=0",
            ),
            *("recursive_triggers = 0", "ignore_check_constraints = 1", "defer_foreign_keys = 1", "trusted_schema = 1"),
            *("synchronous = OFF", "journal_mode = OFF", "locking_mode = EXCLUSIVE", "user_version = 9"),
        )
    },
}


@pytest.fixture
def rows(db: None) -> None:
    insert_rows()


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
def test_it_is_refused(rows: None, statement: str) -> None:
    with pytest.raises(DatabaseError, match="not authorized"):
        execute(statement)


@pytest.mark.parametrize("model", guarded_models(), ids=lambda model: model.__name__)
def test_no_row_of_the_record_is_saved_again_or_deleted(rows: None, model: type[AppendOnlyModel]) -> None:
    full_save = f"UPDATE {model._meta.db_table} SET " + ", ".join(
        f'"{field.column}" = "{field.column}"' for field in model._meta.concrete_fields
    )
    with pytest.raises(DatabaseError, match="not authorized"):
        execute(full_save)
    if model is not StreamJournal:
        with pytest.raises(DatabaseError, match="not authorized"):
            plain(model)._raw_delete("default")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE messages SET outcome = 'complete'",
        "DELETE FROM stream_journal",
        "DELETE FROM language_models",
        "UPDATE auth_user SET last_login = NULL",
        "PRAGMA foreign_keys",
        "PRAGMA foreign_keys = ON",
        "PRAGMA table_info(messages)",
        "PRAGMA integrity_check(1)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 3) SELECT max(i) FROM n ORDER BY random()",
    ],
)
def test_the_work_of_the_site_is_permitted(rows: None, statement: str) -> None:
    execute(statement)


def test_a_prepared_statement_is_asked_about_again(rows: None) -> None:
    """Python keeps prepared statements; switching the authorizer on again has to end them."""
    statement = "UPDATE messages SET role = role"
    with lifted(connection):
        execute(statement)
    with pytest.raises(DatabaseError, match="not authorized"):
        execute(statement)


def test_a_connection_that_is_opened_again_is_bound_again(transactional_db: None) -> None:
    connection.close()
    with pytest.raises(DatabaseError, match="not authorized"):
        execute("DROP TABLE messages")


def test_it_is_lifted_until_the_outermost_block_ends(db: None) -> None:
    with lifted(connection):
        with lifted(connection):
            pass
        execute("CREATE TEMP TABLE mine (id INTEGER)")
        execute("DROP TABLE mine")
    with pytest.raises(DatabaseError, match="not authorized"):
        execute("CREATE TEMP TABLE mine (id INTEGER)")


def test_migrate_and_flush_act_as_the_owner_and_leave_it_on(transactional_db: None) -> None:
    insert_rows()
    call_command("migrate", verbosity=0)
    call_command("flush", verbosity=0, interactive=False)
    assert not plain(Session).exists()
    with pytest.raises(DatabaseError, match="not authorized"):
        plain(Message)._raw_delete("default")


def test_a_full_text_index_writes_its_own_tables(transactional_db: None) -> None:
    with lifted(connection):
        execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    try:
        with transaction.atomic():
            execute("INSERT INTO words (text) VALUES ('one two'), ('three')")
            execute("UPDATE words SET text = 'four' WHERE rowid = 2")
            execute("DELETE FROM words WHERE rowid = 1")
            execute("INSERT INTO words (words) VALUES ('optimize')")
        with connection.cursor() as cursor:
            cursor.execute("SELECT text FROM words WHERE words MATCH 'four' ORDER BY rank")
            assert cursor.fetchall() == [("four",)]
    finally:
        with lifted(connection):
            execute("DROP TABLE words")


def test_an_unknown_question_is_refused() -> None:
    assert decide(999, None, None) == sqlite3.SQLITE_DENY
