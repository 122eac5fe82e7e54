"""What a user with the owner's rights puts on the record's tables, or in their place, is named on both databases."""

from __future__ import annotations

import logging

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from mnesis_site.readiness import missing_parts
from sessions_app.database.guards.triggers import foreign_triggers, guard_differences
from tests.support.sites.databases import execute

pytestmark = [pytest.mark.both_databases, pytest.mark.owner]

REWRITES = "CREATE FUNCTION rewrites() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.body = 1; RETURN NEW; END'"
FIRES = "CREATE FUNCTION fires() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'"

FOREIGN_ON: dict[str, dict[str, tuple[tuple[str, ...], str]]] = {
    "sqlite": {
        "one that ignores": (
            ("CREATE TRIGGER mine BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END",),
            "events has a trigger that is not declared: mine.",
        ),
        "in capitals": (
            ("CREATE TRIGGER GUARD_mine AFTER INSERT ON EVENTS BEGIN UPDATE sessions SET title = ''; END",),
            "events has a trigger that is not declared: GUARD_mine.",
        ),
        "temporary": (
            ("CREATE TEMP TRIGGER guard_mine BEFORE INSERT ON main.events BEGIN SELECT RAISE(IGNORE); END",),
            "events has a temporary trigger that is not declared: guard_mine.",
        ),
        "temporary table": (("CREATE TEMP TABLE Events (id INTEGER)",), "events is hidden by a temporary table."),
        "temporary view": (("CREATE TEMP VIEW events AS SELECT 1",), "events is hidden by a temporary view."),
        "view instead": (
            (
                "ALTER TABLE stream_journal RENAME TO others",
                "CREATE VIEW stream_journal AS SELECT * FROM others",
                "CREATE TRIGGER guard_mine INSTEAD OF INSERT ON stream_journal BEGIN SELECT 1; END",
            ),
            "stream_journal is not the table that was made: it is a view or a virtual table.",
        ),
        "virtual table instead": (
            ("ALTER TABLE stream_journal RENAME TO others", "CREATE VIRTUAL TABLE stream_journal USING fts5(text)"),
            "stream_journal is not the table that was made: it is a view or a virtual table.",
        ),
        "generated column": (
            ("ALTER TABLE events ADD COLUMN more TEXT GENERATED ALWAYS AS (body || '') VIRTUAL",),
            "events.more is a generated column, which is not declared.",
        ),
    },
    "postgresql": {
        "one that rewrites": (
            (REWRITES, "CREATE TRIGGER mine BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION rewrites()"),
            "events has a trigger that is not declared: mine.",
        ),
        "one that is switched off": (
            (
                REWRITES,
                'CREATE TRIGGER "GUARD_mine" BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION rewrites()',
                'ALTER TABLE events DISABLE TRIGGER "GUARD_mine"',
            ),
            "events has a trigger that is not declared: GUARD_mine.",
        ),
        "one on replicas": (
            (
                REWRITES,
                "CREATE TRIGGER mine BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION rewrites()",
                "ALTER TABLE events ENABLE REPLICA TRIGGER mine",
            ),
            "events has a trigger that is not declared: mine.",
        ),
        "foreign keys switched off": (
            ("ALTER TABLE stream_journal DISABLE TRIGGER ALL",),
            "stream_journal does not enforce ",
        ),
        "rule": (
            ("CREATE RULE mine AS ON INSERT TO events DO INSTEAD NOTHING",),
            "events has a rule that is not declared: mine.",
        ),
        "row-level security": (
            ("ALTER TABLE events ENABLE ROW LEVEL SECURITY",),
            "events has row-level security, which may hide rows or refuse them.",
        ),
        "forced row-level security": (
            ("ALTER TABLE events FORCE ROW LEVEL SECURITY",),
            "events has row-level security, which may hide rows or refuse them.",
        ),
        "policy": (
            ("CREATE POLICY mine ON events USING (false)",),
            "events has a policy that is not declared: mine.",
        ),
        "event trigger": (
            (FIRES, "CREATE EVENT TRIGGER mine ON ddl_command_end EXECUTE FUNCTION fires()"),
            "The database has an event trigger that is not declared: mine.",
        ),
        "child table": (
            ("CREATE TABLE mine () INHERITS (events)",),
            "events shows the rows of another table as its own: mine.",
        ),
        "parent table": (
            ("CREATE TABLE mine (body text NOT NULL)", "ALTER TABLE events INHERIT mine"),
            "events shows its rows in another table: mine.",
        ),
        "partitions instead": (
            (
                "ALTER TABLE stream_journal RENAME TO others",
                "CREATE TABLE stream_journal (LIKE others) PARTITION BY LIST (id)",
            ),
            "stream_journal is not the table that was made: it is a view, or a table of another kind.",
        ),
        "view instead": (
            ("ALTER TABLE stream_journal RENAME TO others", "CREATE VIEW stream_journal AS SELECT * FROM others"),
            "stream_journal is not the table that was made: it is a view, or a table of another kind.",
        ),
        "temporary table": (
            ("CREATE TEMP TABLE events (id text)",),
            "events is hidden by a temporary table or view.",
        ),
        "generated column": (
            ("ALTER TABLE events ADD COLUMN more text GENERATED ALWAYS AS (body || '') STORED",),
            "events.more is a generated column, which is not declared.",
        ),
    },
}
FOREIGN = FOREIGN_ON[connection.vendor]
STATEMENTS = next(iter(FOREIGN.values()))[0]
NAMED = next(iter(FOREIGN.values()))[1]


@pytest.mark.parametrize(("statements", "named"), FOREIGN.values(), ids=FOREIGN)
def test_what_nobody_declared_is_named(db: None, statements: tuple[str, ...], named: str) -> None:
    assert foreign_triggers(connection) == []
    execute(*statements)
    assert [sentence for sentence in foreign_triggers(connection) if sentence.startswith(named)]
    assert set(foreign_triggers(connection)) <= set(guard_differences(connection))


def test_checks_and_readyz_name_it(db: None) -> None:
    execute(*STATEMENTS)
    with pytest.raises(CommandError, match=rf"(?s)\(mnesis\.E001\) {NAMED}.*the owner of the tables drops"):
        call_command("check", databases=["default"])
    assert NAMED in missing_parts()["guards"]


def test_migrate_leaves_it_alone_and_says_so(db: None, caplog: pytest.LogCaptureFixture) -> None:
    execute(*STATEMENTS)
    with caplog.at_level(logging.WARNING, "sessions_app.database.guards.triggers"):
        call_command("migrate", verbosity=0)
    assert caplog.messages == [NAMED]
    assert guard_differences(connection) == [NAMED]
