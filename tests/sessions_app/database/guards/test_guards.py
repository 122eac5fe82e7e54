"""The record's rows against everything that could change them; the suite runs once on each database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DEFAULT_DB_ALIAS, IntegrityError, NotSupportedError, connection, models, transaction
from django.test.utils import isolate_apps

from compaction_app.models import CompactionRun
from mnesis_core.errors import ImmutableFieldError
from mnesis_core.records import TurnState
from sessions_app.database.guards.rules import AppendOnlyModel, Rules
from sessions_app.database.guards.triggers import Column, Model, expected_guards, guarded_models, remove_guards
from sessions_app.models import (
    TOOL_STEPS,
    TURN_STEPS,
    ContextItem,
    Event,
    Message,
    MessagePart,
    ModelCall,
    Session,
    StreamJournal,
    Turn,
)
from tests.sessions_app.database.guards.record_rows import (
    MAIN_MODELS,
    NOW,
    Rows,
    insert_rows,
    other_value,
    plain,
    stored,
)
from tests.support.record.tampered import undone

# So that what refuses here is a trigger.
pytestmark = [pytest.mark.both_databases, pytest.mark.owner]

TARGET: dict[type[models.Model], str] = {
    Session: "model",
    Turn: "origin",
    Message: "role",
    MessagePart: "content",
    ContextItem: "item_id",
    Event: "body",
}
"""The frozen column that each attack goes for."""

Attack = Callable[[models.Model], object]


@pytest.fixture
def rows(db: None) -> Rows:
    inserted = insert_rows()
    connection.check_constraints()  # PostgreSQL alters no table that still has foreign keys to check
    return inserted


def sql(statement: str) -> Attack:
    """An attack in SQL, with the row's table, key, key of its own choice and target column filled in."""

    def attack(row: models.Model) -> None:
        columns = {field.column: f'"{field.column}"' for field in row._meta.concrete_fields}
        names = {
            "table": row._meta.db_table,
            "column": f'"{TARGET[type(row)]}"',
            "columns": ", ".join(columns.values()),
            "same": ", ".join((columns | {TARGET[type(row)]: "'forged'"}).values()),
            "new_key": ", ".join((columns | {"id": other_key(row)}).values()),
            "minus_one": ", ".join((columns | {"id": "-1", "seq": "99"}).values()),
            "key": f"'{row.pk}'",
            "other_key": other_key(row),
        }
        with connection.cursor() as cursor:
            for single in statement.format(**names).split(";"):
                cursor.execute(single)

    return attack


def other_key(row: models.Model) -> str:
    return "4711" if isinstance(row.pk, int) else "'forged'"


SQL: dict[str, dict[str, Attack]] = {
    "both": {
        "update": sql("UPDATE {table} SET {column} = 'forged' WHERE id = {key}"),
        "delete": sql("DELETE FROM {table} WHERE id = {key}"),
        "another_key": sql("UPDATE {table} SET id = {other_key} WHERE id = {key}"),
        "upsert": sql(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE id = {key}"
            " ON CONFLICT (id) DO UPDATE SET {column} = 'forged'"
        ),
    },
    "sqlite": {
        "insert_or_replace": sql(
            "INSERT OR REPLACE INTO {table} ({columns}) SELECT {same} FROM {table} WHERE id = {key}"
        ),
        "insert_or_replace_by_rowid": sql(
            "INSERT OR REPLACE INTO {table} (rowid, {columns}) SELECT rowid, {new_key} FROM {table} WHERE id = {key}"
        ),
        "update_or_replace": sql("UPDATE OR REPLACE {table} SET {column} = 'forged' WHERE id = {key}"),
        "update_or_ignore": sql("UPDATE OR IGNORE {table} SET {column} = 'forged' WHERE id = {key}"),
        "as_a_blob": sql("UPDATE {table} SET {column} = CAST({column} AS BLOB) WHERE id = {key}"),
    },
    "postgresql": {
        "truncate": sql("TRUNCATE {table} CASCADE"),
        "replica_update": sql(
            "SET LOCAL session_replication_role = replica; UPDATE {table} SET {column} = 'forged' WHERE id = {key}"
        ),
        "replica_delete": sql("SET LOCAL session_replication_role = replica; DELETE FROM {table} WHERE id = {key}"),
        "replica_truncate": sql("SET LOCAL session_replication_role = replica; TRUNCATE {table} CASCADE"),
        "merge": sql(
            "MERGE INTO {table} USING (SELECT {key} AS mine) AS source ON {table}.id::text = mine"
            " WHEN MATCHED THEN UPDATE SET {column} = 'forged'"
        ),
    },
}


def forged(row: models.Model) -> models.Model:
    """A new instance with the row's key and every value but one."""
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    return type(row)(**values | {TARGET[type(row)]: "forged"})


def upsert(row: models.Model) -> None:
    target = [TARGET[type(row)]]
    plain(type(row)).bulk_create([forged(row)], update_conflicts=True, unique_fields=["id"], update_fields=target)


def keyed(row: models.Model) -> Any:
    return plain(type(row)).filter(pk=row.pk)


PAST_OVERRIDES: dict[str, Attack] = {
    "save_of_a_new_instance_past_the_override": lambda row: models.Model.save(forged(row)),
    "save_base_raw": lambda row: forged(row).save_base(raw=True),
    "query_set_update": lambda row: keyed(row).update(**{TARGET[type(row)]: "forged"}),
    "base_manager_update": lambda row: (
        type(row)._base_manager.filter(pk=row.pk).update(**{TARGET[type(row)]: "forged"})
    ),
    "bulk_update": lambda row: plain(type(row)).bulk_update([forged(row)], [TARGET[type(row)]]),
    "bulk_create_with_update_conflicts": upsert,
    "raw_delete": lambda row: keyed(row)._raw_delete(DEFAULT_DB_ALIAS),
}
FRIENDLY: dict[str, Attack] = {
    "save": lambda row: row.save(),
    "save_of_a_new_instance_with_the_old_key": lambda row: forged(row).save(),
    "delete": lambda row: row.delete(),
    "delete_past_the_override": lambda row: models.Model.delete(row),
    "manager_update": lambda row: type(row).objects.filter(pk=row.pk).update(**{TARGET[type(row)]: "forged"}),  # type: ignore[attr-defined]
    "manager_bulk_update": lambda row: type(row).objects.bulk_update([forged(row)], [TARGET[type(row)]]),  # type: ignore[attr-defined]
    "manager_delete": lambda row: type(row).objects.filter(pk=row.pk).delete(),  # type: ignore[attr-defined]
    "query_set_delete": lambda row: keyed(row).delete(),
    "delete_of_the_owner": lambda row: User.objects.get().delete(),
    "delete_of_the_session": lambda row: plain(Session).all().delete(),
}
IN_SQL = SQL["both"] | SQL[connection.vendor]
REAL = IN_SQL | PAST_OVERRIDES

every_model = pytest.mark.parametrize("model", MAIN_MODELS, ids=lambda model: model.__name__)


def everything() -> dict[str, list[dict[str, Any]]]:
    return {model.__name__: list(plain(model).order_by("pk").values()) for model in guarded_models()}


@every_model
def test_the_database_refuses_and_names_the_table(rows: Rows, model: Model, subtests: pytest.Subtests) -> None:
    before = everything()
    for name, attack in IN_SQL.items():
        with subtests.test(name):
            with pytest.raises(IntegrityError, match=rf"^{model._meta.db_table}: .*never"), undone():
                attack(rows[model])
            assert everything() == before


@every_model
def test_no_way_through_django_changes_a_row(rows: Rows, model: Model, subtests: pytest.Subtests) -> None:
    before = everything()
    for name, attack in (PAST_OVERRIDES | FRIENDLY).items():
        with subtests.test(name):
            with pytest.raises((IntegrityError, ImmutableFieldError)), undone():
                attack(rows[model])
            assert everything() == before


@every_model
def test_without_the_guards_the_same_attack_succeeds(rows: Rows, model: Model, subtests: pytest.Subtests) -> None:
    before = stored(rows[model])
    with undone():
        remove_guards(connection, guarded_models())
        for name, attack in REAL.items():
            with subtests.test(name):
                with undone():
                    attack(rows[model])
                    after = stored(rows[model])
                assert after != before


@pytest.mark.parametrize("model", [*MAIN_MODELS, StreamJournal], ids=lambda model: model.__name__)
def test_a_frozen_column_is_refused_by_name(rows: Rows, model: Model, subtests: pytest.Subtests) -> None:
    for field in model._meta.concrete_fields:
        if field.name not in model.rules.changeable:
            words = rf"^{model._meta.db_table}: .*\b{field.column}\b.* never change"
            with subtests.test(field.name), pytest.raises(IntegrityError, match=words), undone():
                keyed(rows[model]).update(**{field.name: other_value(field)})


@pytest.mark.parametrize("model", [*MAIN_MODELS, ModelCall, CompactionRun], ids=lambda model: model.__name__)
def test_a_column_is_set_once(rows: Rows, model: Model, subtests: pytest.Subtests) -> None:
    for field in model._meta.concrete_fields:
        if field.name in model.rules.once:
            with subtests.test(field.name), undone():
                check_is_set_once(keyed(rows[model]), field)


def check_is_set_once(row: Any, field: Column) -> None:
    first, second = other_value(field, 1), other_value(field, 2)
    assert row.update(**{field.name: first}) == 1
    assert row.update(**{field.name: first}) == 1
    for wrong in (second, None):
        refused = pytest.raises(IntegrityError, match=rf"^{row.model._meta.db_table}: .*\b{field.column}\b.* set once")
        with refused, transaction.atomic():
            row.update(**{field.name: wrong})
    assert row.values_list(field.name, flat=True).get() == first


STATES = (*(state.value for state in TurnState), None)
TOOL_STATES = ("pending", "approved", "running", "completed", "error", None)


def insert_turn(state: str) -> Any:
    Turn(id="turn_2", session_id="sess_1", seq=2, state=state, model="demo", created_at=NOW).save()
    return plain(Turn).filter(pk="turn_2")


def insert_part(state: str | None) -> Any:
    row = {"id": "part_2", "message_id": "msg_1", "session_id": "sess_1", "part_type": "tool", "part_index": 1}
    MessagePart(**row, tool_state=state).save()
    return plain(MessagePart).filter(pk="part_2")


@pytest.mark.parametrize(
    ("insert", "column", "steps", "states", "old"),
    [
        pytest.param(insert, column, steps, states, old, id=f"{column}-{old}")
        for insert, column, steps, states in (
            (insert_turn, "state", TURN_STEPS, STATES),
            (insert_part, "tool_state", TOOL_STEPS, TOOL_STATES),
        )
        for old in states
        if old is not None or column == "tool_state"
    ],
)
def test_a_state_takes_only_the_listed_steps(
    rows: Rows,
    insert: Callable[[Any], Any],
    column: str,
    steps: Any,
    states: Sequence[str | None],
    old: str | None,
    subtests: pytest.Subtests,
) -> None:
    keyed(rows[Turn]).update(state="completed", ended_at=NOW)  # only one turn may be open
    row = insert(old)
    for new in states:
        with subtests.test(f"{old} to {new}"), undone():
            if (old, new) in steps or old == new:
                assert row.update(**{column: new}) == 1
            else:
                words = rf"^{row.model._meta.db_table}: {column} goes only from"
                with pytest.raises(IntegrityError, match=words), transaction.atomic():
                    row.update(**{column: new})


def test_counters_titles_labels_and_leases_change_freely(rows: Rows) -> None:
    session, turn = keyed(rows[Session]), keyed(rows[Turn])
    for number in (1, 2, 1):
        session.update(title=f"T{number}", labels={"n": number}, event_seq=number, head_hash=str(number))
        session.update(
            archived_at=NOW if number == 1 else None, updated_at=other_value(Session._meta.get_field("updated_at"))
        )
        turn.update(lease_owner=str(number), lease_expires_at=None, fence=number)
    assert session.get().labels == {"n": 1}


@pytest.mark.parametrize("model", [*MAIN_MODELS, ModelCall, CompactionRun], ids=lambda model: model.__name__)
def test_a_full_save_that_changes_nothing_is_allowed(rows: Rows, model: Model) -> None:
    models.Model.save(keyed(rows[model]).get())


@pytest.mark.parametrize("forged_json", [[1.0], [True], ["1"], [], {}, None])
def test_json_is_compared_as_it_was_written(rows: Rows, forged_json: Any) -> None:
    call = keyed(rows[ModelCall])
    call.update(manifest=[1])
    with pytest.raises(IntegrityError, match="manifest"):
        call.update(manifest=models.Value(forged_json, models.JSONField()))


def test_the_stream_journal_is_deleted_but_never_changed(rows: Rows) -> None:
    journal = keyed(rows[StreamJournal])
    with pytest.raises(IntegrityError, match=r"^stream_journal: .*text"), transaction.atomic():
        journal.update(text="forged")
    assert journal.delete()[0] == 1


@isolate_apps("sessions_app")
def test_a_new_column_is_frozen_until_a_rule_names_it() -> None:
    class Painted(AppendOnlyModel):
        colour = models.CharField(max_length=8)
        gloss = models.CharField(max_length=8)
        rules = Rules(free=("gloss",))

        class Meta:
            app_label = "sessions_app"

    frozen = next(guard for guard in expected_guards(connection, Painted) if guard.name.endswith("_frozen"))
    assert '"colour"' in frozen.sql
    assert '"gloss"' not in frozen.sql


if connection.vendor == "sqlite":
    KEYS = {
        Turn: "'new', session_id, seq",
        Message: "'new', session_id, seq",
        MessagePart: "'new', message_id, part_index",
        ContextItem: "4711, session_id, item_id",
        Event: "4711, session_id, seq",
    }

    @pytest.mark.parametrize("model", KEYS, ids=lambda model: model.__name__)
    def test_replace_by_another_unique_key_is_refused(rows: Rows, model: Model) -> None:
        replace = sql("INSERT OR REPLACE INTO {table} ({columns}) SELECT {new_key} FROM {table} WHERE id = {key}")
        with pytest.raises(IntegrityError, match="never replaced"), transaction.atomic():
            replace(rows[model])
        assert stored(rows[model])

    def test_a_rowid_never_changes(rows: Rows) -> None:
        with pytest.raises(IntegrityError, match="messages: id and rowid never change"), connection.cursor() as cursor:
            cursor.execute("UPDATE messages SET rowid = 99")

    @pytest.mark.parametrize("verb", ["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE"])
    @pytest.mark.parametrize(
        ("model", "insert"),
        [
            (Session, "(rowid, {columns}) SELECT -1, {new_key} FROM {table}"),
            (Event, "({columns}) SELECT {minus_one} FROM {table}"),
        ],
        ids=["rowid", "id"],
    )
    def test_a_negative_rowid_would_block_the_table_and_is_refused(
        rows: Rows, model: Model, insert: str, verb: str
    ) -> None:
        """Before an insert that chooses none, SQLite says that its rowid is -1."""
        with pytest.raises(IntegrityError, match=f"^{model._meta.db_table}: a rowid is never negative"):
            sql(f"{verb} INTO {{table}} {insert}")(rows[model])

    def test_replace_by_a_partial_key_is_refused_and_a_row_outside_it_is_not(rows: Rows) -> None:
        insert = (
            "INSERT OR REPLACE INTO turns (id, session_id, seq, state, origin, model, request_digest, created_at,"
            " ended_at, options, actor, lease_owner, fence)"
            " SELECT %s, session_id, %s, %s, origin, model, '', created_at, %s, '', '', '', 1 FROM turns"
            " WHERE id = 'turn_1'"
        )
        with connection.cursor() as cursor:
            cursor.execute(insert, ["turn_2", 2, "completed", "2026-01-01 00:00:00"])
            with pytest.raises(IntegrityError, match=r"turns: .* never replaced"), transaction.atomic():
                cursor.execute(insert, ["turn_3", 3, "running", None])
        assert plain(Turn).count() == 2

    def test_an_update_into_a_partial_key_that_is_taken_replaces_nothing(rows: Rows) -> None:
        """A removed item has left the partial key; the row that took its position stays."""
        keyed(rows[ContextItem]).update(removed_seq=2)
        taker = {"item_type": "message", "item_id": "msg_2", "position": 1, "added_seq": 2}
        ContextItem(session_id="sess_1", **taker).save()
        with pytest.raises(IntegrityError), connection.cursor() as cursor:
            cursor.execute("UPDATE OR REPLACE context_items SET removed_seq = NULL")

else:

    @every_model
    def test_a_guarded_column_cannot_be_rewritten_by_a_change_of_type(rows: Rows, model: Model) -> None:
        with pytest.raises(NotSupportedError, match="used in a trigger definition"):
            sql("ALTER TABLE {table} ALTER COLUMN {column} TYPE text USING 'forged'")(rows[model])
