"""Rows that were written before a migration are guarded after it, by triggers and by the site's rights.

One walk through all states that the migrations know, so a new migration is tested by being there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, models, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from sessions_app.database.guards.rights import grant_differences
from sessions_app.database.guards.triggers import Model, guard_differences, guarded_models
from tests.sessions_app.database.guards.record_rows import everything, other_value, plain
from tests.support.sites.databases import unmigrate
from tests.support.sites.site_role import with_the_sites_rights

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

SQUASHED = ("sessions_app", "compaction_app", "files_app", "agents_app", "audit_app")
APPS = {model._meta.app_label for model in guarded_models()}
OF_ONE_DATABASE = {
    "sqlite": [
        "INSERT OR REPLACE INTO {table} ({columns}) SELECT {columns} FROM {table}",
        "UPDATE OR REPLACE {table} SET {column} = {value}",
        "UPDATE {table} SET rowid = 99",
    ],
    "postgresql": ["TRUNCATE {table} CASCADE"],
}[connection.vendor]


@pytest.fixture
def migrated() -> Iterator[None]:
    """All migrations applied at the end, whatever a test did."""
    yield
    call_command("migrate", verbosity=0)


def insert_one_of_everything(number: int) -> dict[str, int]:
    """A row in each guarded table as the tables are at the moment; returns the tables' names, each with a 1.

    :param number: another for each state, so that no two rows have a value that is one row's only.
    """
    loader = MigrationLoader(connection)
    applied = [node for node in loader.applied_migrations if node in loader.graph.nodes]
    historical = loader.project_state(applied).apps
    made: dict[str, models.Model] = {}

    def row_of(model: type[models.Model]) -> models.Model:
        if model._meta.label not in made:
            values = {field.attname: value_of(field) for field in needed(model)}
            made[model._meta.label] = model(**values)
            made[model._meta.label].save(force_insert=True)
        return made[model._meta.label]

    def value_of(field: models.Field[Any, Any]) -> Any:
        if isinstance(field, models.ForeignKey):
            return row_of(field.remote_field.model).pk
        return field.choices[0][0] if field.choices else fitting(field, number)

    names = [model._meta.label for model in guarded_models()]
    present = [historical.get_model(name) for name in names if has(historical, name)]
    return {row_of(model)._meta.db_table: 1 for model in present}


def needed(model: type[models.Model]) -> list[models.Field[Any, Any]]:
    """The columns that have to be given a value."""
    fields = [field for field in model._meta.concrete_fields if not field.null and not field.has_default()]
    return [field for field in fields if not isinstance(field, models.AutoField)]


def fitting(field: models.Field[Any, Any], number: int) -> Any:
    value = other_value(field, number)
    return value[: field.max_length] if isinstance(value, str) else value


def has(historical: Any, name: str) -> bool:
    return any(model._meta.label == name for model in historical.get_models())


def attacks_on(model: Model) -> Iterator[str]:
    """SQL that must not change any of the model's rows: each column and each row, and the table as a whole."""
    fields = model._meta.concrete_fields
    names: dict[str, Any] = {
        "table": model._meta.db_table,
        "key": model._meta.pk.column,
        "columns": ", ".join(f'"{field.column}"' for field in fields),
    }
    frozen = [field for field in fields if field.name not in model.rules.changeable]
    rows = list(plain(model))
    # Each column with one row, each row with one column: what guards a column guards it in every row.
    for field, row in islice(zip(cycle(frozen), cycle(rows)), max(len(frozen), len(rows))):
        where = f"{{key}} = '{row.pk}'"
        yield f"UPDATE {{table}} SET {{column}} = {{value}} WHERE {where}".format(**names | target(field))
    names |= target(frozen[-1])
    yield (
        "INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE true"
        " ON CONFLICT ({key}) DO UPDATE SET {column} = {value}"
    ).format(**names)
    if not model.rules.deletable:
        yield "DELETE FROM {table}".format(**names)
        yield from (statement.format(**names) for statement in OF_ONE_DATABASE)


def target(field: models.Field[Any, Any]) -> dict[str, str]:
    value = other_value(field, 77)
    literal = str(value) if isinstance(value, int) and not isinstance(value, bool) else f"'{value}'"
    if isinstance(field, models.JSONField):
        literal = "'[\"forged\"]'"
    if isinstance(field, models.BooleanField):
        literal = f"NOT {field.model._meta.db_table}.{field.column}"
    return {"column": f'"{field.column}"', "value": literal}


def refused(statement: str, words: str) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    except DatabaseError as error:
        return re.search(words, str(error)) is not None
    return False


def not_refused(words: str) -> list[str]:
    """The attacks that were not refused, or not in these words."""
    statements = [statement for model in guarded_models() if plain(model).exists() for statement in attacks_on(model)]
    assert len(statements) > 100
    return [statement for statement in statements if not refused(statement, words)]


def states() -> Iterator[int]:
    """Go from nothing through every state of the guarded tables; yields a number for each when it is there."""
    unmigrate("sessions_app")
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan([node for node in executor.loader.graph.leaf_nodes() if node[0] in APPS])
    for number, (migration, _backwards) in enumerate(plan, start=1):
        call_command("migrate", migration.app_label, migration.name, verbosity=0)
        yield number
    call_command("migrate", verbosity=0)


@pytest.mark.owner
@pytest.mark.django_db(transaction=True)
def test_rows_of_every_earlier_state_are_guarded(migrated: None, site_role_name: str) -> None:
    written: Counter[str] = Counter()
    for number in states():
        written.update(insert_one_of_everything(number))
    before = everything()
    # The migration that introduced people made one for each account that there was.
    assert len(before["people"]) == User.objects.count() > written.pop("people")
    # And the one of organisations made the site's own.
    written["organisations"] += 1
    assert {table: len(rows) for table, rows in before.items() if table != "people"} == written
    assert written["sessions"] == written["events"] > written["inbox_messages"] > 0

    assert guard_differences(connection) == grant_differences(connection) == []
    assert not_refused("never") == []
    with with_the_sites_rights(site_role_name):
        assert not_refused("never|not authorized|permission denied") == []
    assert everything() == before


@pytest.mark.owner
@pytest.mark.django_db(transaction=True)
def test_a_database_of_before_the_squash_lacks_no_migration(migrated: None) -> None:
    recorder = MigrationRecorder(connection)
    before = {(app, "0001_schema") for app in SQUASHED}
    for node in before:
        recorder.record_unapplied(*node)
    squashed = MigrationLoader(None).disk_migrations
    for node in [old for app in SQUASHED for old in squashed[app, "0001_schema"].replaces]:
        recorder.record_applied(*node)
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    call_command("migrate", verbosity=0)
    assert before <= set(recorder.applied_migrations())
    assert guard_differences(connection) == []
