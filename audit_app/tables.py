"""The tables of the database: those that a move copies, and those that hold rows of a session.

A new table is never forgotten: a move copies every table that ``LEFT_BEHIND`` does not name, and a table is exported
when foreign keys lead from it to a session. Two kinds of column stay out of an export, since each database assigns them
itself: row numbers (``BigAutoField``) and owners (a foreign key to an account or an organisation).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any, TypeVar, cast

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ImproperlyConfigured
from django.core.management.color import no_style
from django.db import connection, connections, models
from django.db.models import Field, ForeignKey, JSONField, Model
from django.db.models.functions import Collate
from django.db.models.query import QuerySet
from django.utils.translation import gettext_noop

from mnesis_core.errors import InvalidRequest, Phrase
from mnesis_core.transcripts.session_file import MAX_LINE_BYTES
from sessions_app.database.fields import plain_field, stored_values
from sessions_app.record.organisation_store import home_of

# ruff: noqa: S608 - the names in these statements come from the models.

Item = TypeVar("Item")
Row = tuple[Any, ...]
Dealt = Mapping[type[Model], Mapping[Any, Any]]
"""Row numbers in the source to those in the target, for the tables that ``migrate`` fills."""

Owners = Mapping[Any, Any]
"""Whose imported rows become: the key of an account and of its organisation, by model."""

LEFT_BEHIND = {
    "contenttypes.ContentType": "migrate fills it; rows that name one are renumbered",
    "auth.Permission": "migrate fills it; rows that name one are renumbered",
    "sessions_app.SearchEntry": "the search index: made again from the record",
    "sessions_app.SearchVector": "what an embedding model made of texts: a worker makes it again",
    "sessions_app.VectorNumbers": "the numbers of these vectors",
    "sessions_app.VectorMark": "how far these vectors are",
    "agents_app.OperatorShare": "what workers have in flight: each lease ends by itself",
    "agents_app.OperatorBrake": "what providers said of their rates a moment ago",
    "audit_app.Verification": "what verifications found in the source: verify the target again",
    "sessions.Session": "who is signed in: people sign in once more",
    "django_q.Schedule": "wake-ups of the queue: what waits is queued again",
    "django_q.Task": "outcomes of the queue's wake-ups",
    "django_q.OrmQ": "wake-ups of the queue: what waits is queued again",
}
IN_BYTES = {"sqlite": "BINARY", "postgresql": "C"}  # the collation that orders keys alike on every machine
OF_THEIR_PARENTS = ("summary_edges", "operator_items")
"""Tables whose rows are exported without their session, which an import fills in: they named none at first."""
BATCH_ROWS = 500
BATCH_CHARACTERS = 4_000_000
FETCHED_ROWS = 50  # rows that the database's driver holds at once; a row may have 20 MB


@dataclass(frozen=True)
class Table:
    model: type[Model]

    @cached_property
    def name(self) -> str:
        return self.model._meta.db_table

    @cached_property
    def fields(self) -> tuple[Field[Any, Any], ...]:
        return tuple(self.model._meta.concrete_fields)

    @cached_property
    def key(self) -> int:
        return next(index for index, field in enumerate(self.fields) if field.primary_key)

    @cached_property
    def foreign_keys(self) -> tuple[tuple[int, type[Model]], ...]:
        return tuple(
            (index, field.related_model)
            for index, field in enumerate(self.fields)
            if isinstance(field, ForeignKey) and isinstance(field.related_model, type)
        )

    @property
    def is_bound(self) -> bool:
        rules = getattr(self.model, "rules", None)
        return rules is not None and rules.bound

    @cached_property
    def points_at_itself(self) -> bool:
        return self.model in [model for _, model in self.foreign_keys]

    def query(self, using: str) -> QuerySet[Any, Any]:
        return QuerySet(self.model, using=using)

    def count(self, using: str) -> int:
        return self.query(using).count()

    def read(self, rows: QuerySet[Any, Any]) -> Iterator[Row]:
        return stored_values(rows, self.fields).iterator(chunk_size=FETCHED_ROWS)


def insert_rows(table: str, fields: Sequence[Field[Any, Any]], rows: Sequence[Row], *, using: str) -> None:
    """Insert rows exactly as they are: no defaults, no current times. The fields are those of the values.

    :raises IntegrityError: a key is taken, or a foreign key points at nothing.
    """
    connection = connections[using]
    names = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    places = f"({', '.join(['%s'] * len(fields))})"
    plain = [plain_field(field) for field in fields]
    size = max(1, connection.ops.bulk_batch_size(list(fields), list(rows)))
    with connection.cursor() as cursor:
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            values = [
                field.get_db_prep_save(value, connection)
                for row in some
                for field, value in zip(plain, row, strict=True)
            ]
            cursor.execute(f"INSERT INTO {table} ({names}) VALUES " + ", ".join([places] * len(some)), values)


def carried_tables() -> list[Table]:
    """Return every table that a move copies; a table comes after those its foreign keys point at."""
    waiting = [Table(model) for model in apps.get_models(include_auto_created=True) if is_carried(model)]
    ordered: list[Table] = []
    while waiting:
        models = {table.model for table in waiting}
        ready = [table for table in waiting if not {to for _, to in table.foreign_keys} & models - {table.model}]
        if not ready:
            names = ", ".join(table.model.__name__ for table in waiting)
            raise ImproperlyConfigured(f"foreign keys run in a circle among {names}")
        ordered += ready
        waiting = [table for table in waiting if table not in ready]
    return ordered


def is_carried(model: type[Model]) -> bool:
    return model._meta.managed and not model._meta.proxy and model._meta.label not in LEFT_BEHIND


def batches(rows: Iterable[Item], characters: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield lists of at most ``BATCH_ROWS`` items, and of not much more than ``BATCH_CHARACTERS`` of text."""
    batch: list[Item] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += characters(row)
        if len(batch) >= BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def row_characters(row: Row) -> int:
    return sum(len(value) for value in row if isinstance(value, str | bytes))


def dealt_by_migrate(source: str, target: str) -> Dealt:
    """Map the numbers of content types and permissions, which each database assigns, from source to target."""
    dealt: dict[type[Model], Mapping[Any, Any]] = {}
    for model in (ContentType, Permission):
        rows: dict[str, QuerySet[Any, Any]] = {alias: QuerySet(model, using=alias) for alias in (source, target)}
        there = {row.natural_key(): row.pk for row in rows[target]}
        dealt[model] = {row.pk: there.get(row.natural_key()) for row in rows[source]}
    return dealt


def renumbered(table: Table, row: Row, dealt: Dealt) -> Row:
    """Return a row of the source as it has to be in the target.

    :raises InvalidRequest: it names a permission of a model that is gone.
    """
    moved = [(index, dealt[model][row[index]]) for index, model in table.foreign_keys if model in dealt and row[index]]
    if not moved:
        return row
    values = list(row)
    for index, number in moved:
        if number is None and not table.fields[index].null:
            raise InvalidRequest(
                f"{table.name} {row[table.key]} names a model that is gone. "
                "Run 'manage.py remove_stale_contenttypes' on the source first."
            )
        values[index] = number
    return tuple(values)


def deal_on(tables: Iterable[Table], *, using: str) -> None:
    """Set the sequences of a database behind the rows that were inserted with their numbers."""
    connection = connections[using]
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), [table.model for table in tables]):
            cursor.execute(statement)


def same_row(table: Table, one: Row, other: Row) -> bool:
    """Compare two rows with the types of their values, except in JSON."""
    return one == other and all(
        type(a) is type(b)
        for a, b, field in zip(one, other, table.fields, strict=True)
        if not isinstance(field, JSONField)
    )


@dataclass(frozen=True)
class SessionTable(Table):
    path: str  # the lookup from a row to its session

    @cached_property
    def exported(self) -> list[Field[Any, Any]]:
        left_out = [*self.owner_fields, *self.session_fields]
        return [field for field in self.fields if field not in left_out and not isinstance(field, models.AutoField)]

    @cached_property
    def stored(self) -> list[Field[Any, Any]]:
        """The columns that an import writes."""
        return [*self.exported, *self.owner_fields, *self.session_fields]

    @cached_property
    def owner_fields(self) -> list[Field[Any, Any]]:
        return [self.fields[index] for index, model in self.foreign_keys if model in owner_models()]

    @cached_property
    def session_fields(self) -> list[Field[Any, Any]]:
        """The column that names the session, if exported rows do without."""
        return [field for field in self.fields if self.name in OF_THEIR_PARENTS and field.name == "session"]

    def rows(self, session_id: str) -> QuerySet[Any, Any]:
        """Return a session's rows, in the same order on every database."""
        rows: QuerySet[Any, Any] = QuerySet(self.model).filter(**{self.path: session_id})
        dealt = isinstance(self.fields[self.key], models.AutoField)
        return rows.order_by("pk" if dealt else Collate("pk", IN_BYTES[connection.vendor]))

    def values(self, session_id: str) -> Iterator[dict[str, Any]]:
        for row in stored_values(self.rows(session_id), self.exported).iterator(chunk_size=FETCHED_ROWS):
            values = {}
            for field, value in zip(self.exported, row, strict=True):
                if isinstance(value, datetime):
                    value = value.isoformat()
                elif not isinstance(value, str | int | float | None) and not isinstance(field, JSONField):
                    value = field.value_to_string(field.model(**{field.attname: value}))
                values[field.attname] = value
            yield values

    def row_of(self, values: Mapping[str, Any], *, owners: Owners, session_id: str) -> tuple[Any, ...]:
        """Return a row to be inserted, in the order of ``stored``.

        :raises ValueError: a column is unknown, or its value impossible.
        """
        row = [
            None if value is None and field.null else _read_value(field, value)
            for field, value in zip(self.exported, self.complete(values).values(), strict=True)
        ]
        of = [owners[field.related_model] for field in self.owner_fields]
        return (*row, *of, *[session_id] * len(self.session_fields))

    def complete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return an exported row with all columns of now; one that was added after the export has its default.

        :raises ValueError: a column is unknown, or one is missing that always was there.
        """
        if unknown := values.keys() - {field.attname for field in self.exported}:
            raise ValueError(
                Phrase(
                    gettext_noop("%(table)s has no column %(name)s"), {"table": self.name, "name": repr(min(unknown))}
                )
            )
        return {
            field.attname: values[field.attname] if field.attname in values else _default(field)
            for field in self.exported
        }


def owner_models() -> tuple[type[Model], type[Model]]:
    """Return what sessions belong to: accounts and organisations."""
    return get_user_model(), apps.get_model("sessions_app", "Organisation")


def owners_of(user_id: int) -> Owners:
    return dict(zip(owner_models(), (user_id, home_of(user_id)), strict=True))


@cache
def session_tables() -> dict[str, SessionTable]:
    """Return by name every table that holds rows of sessions, in the order of ``carried_tables``."""
    session = apps.get_model("sessions_app", "Session")
    paths: dict[type[Model], str] = {session: "pk"}
    found = {}
    for table in carried_tables():
        # The shortest lookup to a session; of several, the one called ``session``.
        names = [(table.fields[index].name, model) for index, model in table.foreign_keys if model in paths]
        ways = [name if paths[model] == "pk" else f"{name}__{paths[model]}" for name, model in names]
        shortest = min(ways, key=lambda way: (way.count("__"), way != "session"), default="")
        path = paths.get(table.model) or shortest
        if path:
            paths[table.model] = path
            found[table.name] = SessionTable(table.model, path)
    return found


def _default(field: Field[Any, Any]) -> Any:
    if field.has_db_default():  # what the rows got that were there when the column was added
        return field.db_default
    if callable(field.default) and not isinstance(field, JSONField):
        raise ValueError(Phrase(gettext_noop("%(name)s is missing"), {"name": field.attname}))
    return field.get_default()


# The types of JSON values that a kind of field takes; a field is of the first kind that fits.
_JSON_TYPES: dict[type[Field[Any, Any]], tuple[type, ...]] = {
    JSONField: (dict, list, str, int, float, bool, type(None)),
    models.BooleanField: (bool,),
    models.FloatField: (float, int),
    models.IntegerField: (int,),
    Field: (str,),
}


@cache
def _rules_of(field: Field[Any, Any]) -> tuple[Field[Any, Any], type[Field[Any, Any]], int, int, frozenset[Any]]:
    """Return what a field's values are checked by: its target, its kind, the least and the most, and its choices.

    The most is the largest integer, or the length of the longest text.
    """
    target = field.target_field if isinstance(field, models.ForeignKey) else field
    kind = next(kind for kind in _JSON_TYPES if isinstance(target, kind))
    choices = frozenset(dict(field.flatchoices)) if field.choices else frozenset()
    if kind is not models.IntegerField:
        return target, kind, 0, target.max_length or MAX_LINE_BYTES, choices
    limits = connection.ops.integer_field_range(target.get_internal_type())
    low, high = cast(tuple[int | None, int | None], limits)
    return target, kind, -(2**63) if low is None else low, 2**63 - 1 if high is None else high, choices


def _cannot_be(field: Field[Any, Any], value: str) -> Phrase:
    return Phrase(gettext_noop("%(name)s cannot be %(value)s"), {"name": field.attname, "value": value})


def _read_value(field: Field[Any, Any], value: Any) -> Any:
    """:raises ValueError: the column cannot hold this JSON value."""
    target, kind, least, most, choices = _rules_of(field)
    if type(value) not in _JSON_TYPES[kind]:
        raise ValueError(_cannot_be(field, json.dumps(value)[:80]))
    if kind is models.IntegerField:
        if not least <= value <= most:
            raise ValueError(_cannot_be(field, str(value)))
    elif isinstance(target, models.DateTimeField):
        time = datetime.fromisoformat(value)
        if time.tzinfo is None or time.isoformat() != value:
            raise ValueError(
                Phrase(
                    gettext_noop("%(name)s is no time with its offset: %(value)s"),
                    {"name": field.attname, "value": repr(value[:80])},
                )
            )
        return time
    elif kind is Field and len(value) > most:
        raise ValueError(
            Phrase(
                gettext_noop("%(name)s is longer than %(most)s characters"), {"name": field.attname, "most": str(most)}
            )
        )
    elif kind is Field and choices and value not in choices:
        raise ValueError(_cannot_be(field, repr(value[:80])))
    return field.to_python(value) if kind is Field else value
