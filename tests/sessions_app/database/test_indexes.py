"""Each index that is installed serves a look-up of its own: an index costs bytes and time in every row that is written."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import pytest
from django.apps import apps
from django.db import connection, models

from sessions_app.database.fields import IdField
from tests.support.sites.databases import ask

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]

OURS = [
    model
    for model in apps.get_models()
    if model.__module__.split(".")[0] in ("sessions_app", "compaction_app", "files_app", "agents_app", "audit_app")
]
NOT_LOOKED_UP = {
    *("summary_nodes.restores_id", "operator_runs.input_file_id", "facts.superseded_by_id", "facts.reflection_id"),
    *("sessions.organisation_id", "people.organisation_id", "api_keys.organisation_id", "projects.organisation_id"),
    "shares.message_id",
}
"""Foreign keys by which no query looks for rows, and whose other end is never deleted."""
CLASSES = """
    SELECT i.relname, c.relname, o.opcname FROM pg_index x
    JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
    CROSS JOIN LATERAL unnest(x.indclass::oid[]) AS k (class) JOIN pg_opclass o ON o.oid = k.class
    WHERE pg_table_is_visible(c.oid)"""
IN_BYTES = """
    SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_collation l ON l.oid = a.attcollation WHERE l.collname = 'C' AND pg_table_is_visible(c.oid)"""


class Index(NamedTuple):
    table: str
    name: str
    columns: tuple[str, ...]
    is_unique: bool


def indexes() -> list[Index]:
    """Return the indexes that hold every row of a table of ours, on columns alone."""
    found = []
    with connection.cursor() as cursor:
        for model in OURS:
            table = model._meta.db_table
            partial = {item.name for item in (*model._meta.indexes, *model._meta.constraints) if is_partial(item)}
            for name, held in connection.introspection.get_constraints(cursor, table).items():
                if held["index"] or held["unique"] or held["primary_key"]:
                    is_unique = held["unique"] or held["primary_key"]
                    found.append(Index(table, name, tuple(held["columns"]), is_unique))
            found = [index for index in found if index.name not in partial]
    return found


def is_partial(item: models.Index | models.BaseConstraint) -> bool:
    return getattr(item, "condition", None) is not None


@pytest.mark.slow
def test_no_index_is_the_beginning_of_another() -> None:
    spare = [
        f"{short.table}.{short.name} is the beginning of {long.name}"
        for short, long in permutations(indexes(), 2)
        if short.table == long.table and not short.is_unique and long.columns[: len(short.columns)] == short.columns
    ]
    assert not spare


def test_a_foreign_key_by_which_rows_are_looked_up_has_an_index() -> None:
    led = {f"{index.table}.{index.columns[0]}" for index in indexes() if index.columns}
    keys = {f"{model._meta.db_table}.{field.column}" for model in OURS for field in foreign_keys(model)}
    assert keys - led == NOT_LOOKED_UP


def foreign_keys(model: type[models.Model]) -> list[models.Field]:
    return [field for field in model._meta.concrete_fields if field.is_relation]


if connection.vendor == "postgresql":

    def test_postgresql_compares_keys_byte_by_byte_and_has_no_second_index_for_like() -> None:
        tables = {model._meta.db_table for model in OURS}
        held = [(index, kind) for index, table, kind in ask(CLASSES) if table in tables]
        assert len(held) > 100
        assert not [index for index, kind in held if kind.endswith("_pattern_ops")]
        keys = {
            (model._meta.db_table, field.column)
            for model in OURS
            for field in model._meta.concrete_fields
            if is_key(field)
        }
        assert keys - set(ask(IN_BYTES)) == set()


def is_key(field: models.Field) -> bool:
    return isinstance(getattr(field, "target_field", field), IdField)
