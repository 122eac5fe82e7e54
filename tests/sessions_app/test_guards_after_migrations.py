"""Rows that were written before a migration are guarded after it, by triggers and by the site's rights, and are found.

One walk through all states that the migrations know, so a new migration is tested by being there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, models, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from sessions_app.guards.rights import grant_differences
from sessions_app.guards.rules import Model
from sessions_app.guards.triggers import guard_differences, guarded_models
from sessions_app.models import DirectoryEntry, SearchEntry, Session
from sessions_app.search.search import Scope, search
from tests.sessions_app.record_rows import everything, other_value, plain
from tests.support.databases import unmigrate
from tests.support.site_role import with_the_sites_rights

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

APPS = {model._meta.app_label for model in guarded_models()}
OF_ONE_DATABASE = {
    "sqlite": [
        "INSERT OR REPLACE INTO {table} ({columns}) SELECT {columns} FROM {table}",
        "UPDATE OR REPLACE {table} SET {column} = {value}",
        "UPDATE {table} SET rowid = 99",
    ],
    "postgresql": ["TRUNCATE {table} CASCADE"],
}[connection.vendor]

SAID: dict[str, dict[str, Any]] = {
    "sessions": {"message_seq": 1},
    "messages": {"seq": 1},
    "message_parts": {"part_type": "text", "content": "an old marigold"},
}
"""What these rows are, so that each state has something to search for."""


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
    historical = loader.project_state(list(loader.applied_migrations)).apps
    made: dict[str, models.Model] = {}

    def row_of(model: type[models.Model]) -> models.Model:
        if model._meta.label not in made:
            values = {field.attname: value_of(field) for field in needed(model)}
            made[model._meta.label] = model(**values | SAID.get(model._meta.db_table, {}))
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
    """SQL that must not change any of the model's rows: each column of each row, and the table as a whole."""
    fields = model._meta.concrete_fields
    names: dict[str, Any] = {
        "table": model._meta.db_table,
        "key": model._meta.pk.column,
        "columns": ", ".join(f'"{field.column}"' for field in fields),
    }
    frozen = [field for field in fields if field.name not in model.rules.changeable]
    for field, row in product(frozen, plain(model)):
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
def test_rows_of_every_earlier_state_are_guarded_and_found(migrated: None, site_role_name: str) -> None:
    written: Counter[str] = Counter()
    without_search = 0
    for number in states():
        without_search += SearchEntry._meta.db_table not in connection.introspection.table_names()
        written.update(insert_one_of_everything(number))
    assert without_search > 1
    hits = [len(search(Scope(owner_id=session.owner_id), "marigold").hits) for session in plain(Session)]
    assert sum(hits) == without_search  # nothing but migrations puts into the index what is written here
    assert {entry.kind for entry in plain(SearchEntry)} == {"messages", "summaries"}
    before = everything()
    entered = plain(DirectoryEntry).filter(type="session.entered").count()
    assert entered > 1
    written["directory_entries"] += entered  # by the migration that brings the directory
    assert {table: len(rows) for table, rows in before.items()} == written
    assert written["sessions"] == written["events"] > written["inbox_messages"] > 0

    assert guard_differences(connection) == grant_differences(connection) == []
    assert not_refused("never") == []
    with with_the_sites_rights(site_role_name):
        assert not_refused("never|not authorized|permission denied") == []
    assert everything() == before
