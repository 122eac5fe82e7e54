"""A migration's operation for columns that hold keys: their type, their collation, and which of them have an index.

Django would make whole tables anew on SQLite, once for each column, and on PostgreSQL foreign keys and indexes as often.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import AlterField
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.state import ProjectState

_LEADING_TO = """
    SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(pg_constraint.oid)
    FROM pg_constraint JOIN pg_class ON pg_class.oid = confrelid
    WHERE contype = 'f' AND relname = ANY(%s) AND pg_table_is_visible(confrelid)"""
Field: TypeAlias = Any  # of models as migrations know them


def name_sessions(table: str, *, of: str, by: str) -> migrations.RunPython:
    """Fill the new column ``session_id`` of a table: each row has the session of the row that it belongs to.

    :param of: the other table
    :param by: the column that leads there
    """

    def fill(apps: Any, editor: BaseDatabaseSchemaEditor) -> None:
        editor.execute(
            f"UPDATE {table} SET session_id = (SELECT session_id FROM {of} WHERE {of}.id = {table}.{by})"  # noqa: S608
        )
        if editor.connection.vendor == "postgresql":
            # A table cannot be altered while foreign keys of its new values wait to be checked.
            editor.execute("SET CONSTRAINTS ALL IMMEDIATE")

    return migrations.RunPython(fill, migrations.RunPython.noop)


class _Change(NamedTuple):
    old: Field
    new: Field


class ConvertKeys(Operation):
    """Alter fields, and with them the foreign keys that lead to them, in whatever app."""

    reduces_to_sql = False
    category = OperationCategory.ALTERATION

    def __init__(self, alterations: Sequence[AlterField]) -> None:
        self.alterations = alterations

    def describe(self) -> str:
        return "Compare keys byte by byte, and keep one index for each way to look rows up"

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        # Models that are rendered would be rendered again after each field, which takes seconds: once is enough.
        vars(state).pop("apps", None)
        for alteration in self.alterations:
            alteration.state_forwards(app_label, state)

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        editor: Any = schema_editor  # what is used of it is private in part
        changes = list(_changes(editor, from_state, to_state))
        for old, new in changes:
            declared = {index.name for index in old.model._meta.indexes}
            found = editor._constraint_names(old.model, [old.column], index=True, unique=False, exclude=declared)
            is_for_like = editor._create_index_name(old.model._meta.db_table, [old.column], suffix="_like").__eq__
            dropped = found if old.db_index and not new.db_index else filter(is_for_like, found)
            for name in dropped:
                editor.execute(editor._delete_index_sql(old.model, name))
        if editor.connection.vendor == "postgresql":
            _convert(editor, [new for old, new in changes if _column(editor, old) != _column(editor, new)])
        for old, new in changes:
            statements = []
            if new.db_index and not old.db_index:
                statements = editor._field_indexes_sql(new.model, new)
            elif hasattr(editor, "_create_like_index_sql"):
                statements = [editor._create_like_index_sql(new.model, new)]
            for statement in filter(None, statements):
                editor.execute(statement)

    database_backwards = database_forwards


def _changes(editor: Any, from_state: ProjectState, to_state: ProjectState) -> Iterator[_Change]:
    for model in to_state.apps.get_models():
        before = from_state.apps.get_model(model._meta.label)._meta
        new: Field
        for new in model._meta.local_concrete_fields:
            old: Field = before.get_field(new.name)
            if _column(editor, old) != _column(editor, new) or old.db_index != new.db_index:
                yield _Change(old, new)


def _column(editor: Any, field: Field) -> Any:
    return field.db_parameters(editor.connection)


def _convert(editor: Any, fields: Sequence[Field]) -> None:
    """Give columns of PostgreSQL their type in one statement for each table. Both ends of a foreign key change meanwhile."""
    keys = [field.model._meta.db_table for field in fields if field.primary_key]
    with editor.connection.cursor() as cursor:
        cursor.execute(_LEADING_TO, [keys])
        foreign_keys = cursor.fetchall()
    columns = defaultdict(list)
    for field in fields:
        made = _column(editor, field)
        column = f"ALTER COLUMN {editor.quote_name(field.column)} TYPE {made['type']}"
        columns[editor.quote_name(field.model._meta.db_table)].append(
            f"{column} {editor._collate_sql(made['collation'])}"
        )
    for table, name, _ in foreign_keys:
        editor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    for table, changes in columns.items():
        editor.execute(f"ALTER TABLE {table} {', '.join(changes)}")
    for table, name, definition in foreign_keys:
        editor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    for table in columns:
        editor.execute(f"ANALYZE {table}")  # a column that changed has no statistics
