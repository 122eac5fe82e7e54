"""Columns that hold any text: the codec of ``mnesis_core.text`` is inside, so that callers have plain text everywhere.

What is stored, and how a column is declared to migrations, is as with Django's own fields. The codec is not idempotent:
what the ORM reads, writes and looks up for is plain. These are not, and encode and decode for themselves:

- SQL that is written out: columns come and go as they are stored (``rows``, ``search``, ``audit_app``);
- ``icontains`` and its like, and keys of JSON, whose right sides Django does not prepare;
- a part of a text (``Substr``), which may begin or end inside an escape; where it starts at the beginning, use ``Head``;
- foreign keys, which are ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import AlterField
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.state import ProjectState
from django.db.models import ExpressionWrapper, F
from django.db.models.functions import Left
from django.db.models.query import QuerySet
from django.utils.functional import cached_property

from mnesis_core.text import ESCAPE, decode_json, decode_text, encode_json, encode_text

_Set = TypeVar("_Set")
_Get = TypeVar("_Get")
FULL_NAMES = {"sqlite": "varchar", "postgresql": "character varying"}
KEY_COLLATIONS = {"sqlite": None, "postgresql": "C"}  # SQLite compares bytes unless told otherwise
_LEADING_TO = """
    SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(pg_constraint.oid)
    FROM pg_constraint JOIN pg_class ON pg_class.oid = confrelid
    WHERE contype = 'f' AND relname = ANY(%s) AND pg_table_is_visible(confrelid)"""
Field: TypeAlias = Any  # of models as migrations know them


if TYPE_CHECKING:
    from django.db.models import CharField as _CharField
    from django.db.models import Field as _Field
    from django.db.models import JSONField as _JSONField
    from django.db.models import TextField as _TextField
else:
    # Django's fields cannot be subscripted when they run.
    _Field, _CharField, _TextField, _JSONField = (
        {(_Set, _Get): field} for field in (models.Field, models.CharField, models.TextField, models.JSONField)
    )


class EncodedField(_Field[_Set, _Get]):
    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def deconstruct(self) -> Any:
        """Say what Django's own field would, since a migration is about the column."""
        name, _, args, kwargs = super().deconstruct()
        return name, f"django.db.models.{self.get_internal_type()}", args, kwargs

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        return encode_text(value) if isinstance(value, str) else value

    def stored(self, value: Any) -> Any:
        """Return what a row holds for a value."""
        # Nearly every value is a text, to which Django's own steps do nothing.
        return encode_text(value) if isinstance(value, str) else self.get_prep_value(value)

    @cached_property
    def plain(self) -> models.Field[Any, Any]:
        """Django's own field for the same column, whose values are the stored ones."""
        _, _, args, kwargs = self.deconstruct()
        field: models.Field[Any, Any] = getattr(models, self.get_internal_type())(*args, **kwargs)
        return field


def plain_field(field: models.Field[Any, Any]) -> models.Field[Any, Any]:
    """Return the field that reads and writes a column's values as they are stored."""
    return field.plain if isinstance(field, EncodedField) else field


def stored_values(rows: QuerySet[Any, Any], fields: Iterable[models.Field[Any, Any]]) -> QuerySet[Any, Any]:
    """Return the columns of rows as they are stored, for copies of rows and their proofs."""
    columns = [
        ExpressionWrapper(F(field.attname), output_field=field.plain)
        if isinstance(field, EncodedField)
        else field.attname
        for field in fields
    ]
    return rows.values_list(*columns)


class IdField(EncodedField[_Set, _Get], _CharField[_Set, _Get]):
    """An id or a name that needs no escapes. Only what is looked up for may be anything, and then finds nothing.

    It is compared byte by byte, and so are the foreign keys that lead to it.
    """

    def deconstruct(self) -> Any:
        """Name this field: on PostgreSQL its column is not what Django's own would make."""
        name, _, args, kwargs = super().deconstruct()
        return name, "sessions_app.database.fields.IdField", args, kwargs

    def db_type(self, connection: Any) -> str:
        # The same type by its full name: by the short one Django adds a second index, for LIKE, which no query uses.
        return str(super().db_type(connection)).replace("varchar", FULL_NAMES[connection.vendor])

    def db_parameters(self, connection: Any) -> Any:
        return {**super().db_parameters(connection), "collation": KEY_COLLATIONS[connection.vendor]}


class EncodedTextField(EncodedField[_Set, _Get], _TextField[_Set, _Get]):
    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> str | None:
        # SQLite gives bytes where a damaged row holds a blob; they stay what they are, for the proof to name.
        return decode_text(value) if isinstance(value, str) else value


class EncodedCharField(EncodedField[_Set, _Get], _CharField[_Set, _Get]):
    """Any text up to a length, which is counted as the text is stored."""

    def __init__(self, *args: Any, truncated: bool = False, **kwargs: Any) -> None:
        """:param truncated: store as much of a longer text as the column holds"""
        super().__init__(*args, **kwargs)
        self.truncated = truncated

    def stored(self, value: Any) -> Any:
        text = super().stored(value)
        return text[: self.max_length] if self.truncated and text is not None else text

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return super().get_db_prep_save(value, connection) if hasattr(value, "as_sql") else self.stored(value)

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> str | None:
        return decode_text(value) if isinstance(value, str) else value  # bytes as above


class EncodedJSONField(EncodedField[_Set, _Get], _JSONField[_Set, _Get]):
    """JSON whose strings, keys included, are any text."""

    def get_prep_value(self, value: Any) -> Any:
        return encode_json(super().get_prep_value(value))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        # In the JSON of SQLite the escape character is itself escaped: ``\\u241b``.
        is_plain = isinstance(value, str) and ESCAPE not in value and "\\u241" not in value
        loaded = super().from_db_value(value, expression, connection)
        return loaded if is_plain else decode_json(loaded)


class Head(Left):
    """The beginning of a text, in characters as it is stored. An escape that is cut at the end stays as it is."""

    output_field = EncodedTextField()  # type: ignore[assignment]


# A migration's operation for columns that hold keys: their type, their collation, and which of them have an index.
#
# Django would make whole tables anew on SQLite, once for each column, and on PostgreSQL foreign keys and indexes as
# often.


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
