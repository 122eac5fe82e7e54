"""Whole tables: which ones a move carries, in the order of their foreign keys, and their rows as they are.

Every table that a model describes is carried unless it is named in ``LEFT_BEHIND``, so that a table nobody thought of
is carried too.
"""
# ruff: noqa: S608 - the names in these statements are the models' own, nobody else's.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ImproperlyConfigured
from django.core.management.color import no_style
from django.db import connections
from django.db.models import Field, ForeignKey, JSONField, Model
from django.db.models.query import QuerySet

from mnesis_core.errors import InvalidRequest

Row = tuple[Any, ...]
Dealt = Mapping[type[Model], Mapping[Any, Any]]
"""For the tables that ``migrate`` fills: a row's number in the source -> in the target."""

LEFT_BEHIND = {
    "contenttypes.ContentType": "migrate fills it; rows that name one are renumbered",
    "auth.Permission": "migrate fills it; rows that name one are renumbered",
    "sessions_app.SearchEntry": "the search index: made again from the record",
    "agents_app.OperatorShare": "what workers have in flight: each lease ends by itself",
    "agents_app.OperatorBrake": "what providers said of their rates a moment ago",
    "audit_app.Verification": "what somebody found in the source: look again, at the target",
    "sessions.Session": "who is signed in: people sign in once more",
    "django_q.Schedule": "wake-ups of the queue: what waits is queued again",
    "django_q.Task": "outcomes of the queue's wake-ups",
    "django_q.OrmQ": "wake-ups of the queue: what waits is queued again",
}
BATCH_ROWS = 500
BATCH_CHARACTERS = 4_000_000
FETCHED_ROWS = 50
"""Rows that the database's driver holds at once; a row may have 20 MB."""


@dataclass(frozen=True)
class Table:
    """One model's table."""

    model: type[Model]

    @cached_property
    def name(self) -> str:
        """Its name in the database."""
        return self.model._meta.db_table

    @cached_property
    def fields(self) -> tuple[Field[Any, Any], ...]:
        """One for each column, in the order of ``Row``."""
        return tuple(self.model._meta.concrete_fields)

    @cached_property
    def key(self) -> int:
        """Where in a row its primary key is."""
        return next(index for index, field in enumerate(self.fields) if field.primary_key)

    @cached_property
    def foreign_keys(self) -> tuple[tuple[int, type[Model]], ...]:
        """Which columns point at which model."""
        return tuple(
            (index, field.related_model)
            for index, field in enumerate(self.fields)
            if isinstance(field, ForeignKey) and isinstance(field.related_model, type)
        )

    @cached_property
    def points_at_itself(self) -> bool:
        """Whether a row may need another row of the same table."""
        return self.model in [model for _, model in self.foreign_keys]

    def query(self, using: str) -> QuerySet[Any, Any]:
        """All rows, without the manager's own opinions."""
        return QuerySet(self.model, using=using)

    def count(self, using: str) -> int:
        """How many rows there are."""
        return self.query(using).count()

    def read(self, rows: QuerySet[Any, Any]) -> Iterator[Row]:
        """Rows as Python values, a few at a time."""
        names = [field.attname for field in self.fields]
        yield from rows.values_list(*names).iterator(chunk_size=FETCHED_ROWS)

    def insert(self, rows: Sequence[Row], *, using: str) -> None:
        """Insert rows exactly as they are. See ``insert_rows``."""
        insert_rows(self.name, self.fields, rows, using=using)


def insert_rows(table: str, fields: Sequence[Field[Any, Any]], rows: Sequence[Row], *, using: str) -> None:
    """Insert rows exactly as they are: no defaults, no current times. The fields are those of the values.

    :raises IntegrityError: a key is taken, or a foreign key points at nothing.
    """
    connection = connections[using]
    names = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    places = f"({', '.join(['%s'] * len(fields))})"
    size = max(1, connection.ops.bulk_batch_size(list(fields), list(rows)))
    with connection.cursor() as cursor:
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            values = [
                field.get_db_prep_save(value, connection)
                for row in some
                for field, value in zip(fields, row, strict=True)
            ]
            cursor.execute(f"INSERT INTO {table} ({names}) VALUES " + ", ".join([places] * len(some)), values)


def carried_tables() -> list[Table]:
    """Every table that a move carries; what a foreign key points at comes first."""
    models = [model for model in apps.get_models(include_auto_created=True) if is_carried(model)]
    return [Table(model) for model in _by_foreign_keys(models)]


def is_carried(model: type[Model]) -> bool:
    """Whether a move copies the rows of this model."""
    return model._meta.managed and not model._meta.proxy and model._meta.label not in LEFT_BEHIND


def _by_foreign_keys(models: list[type[Model]]) -> list[type[Model]]:
    ordered: list[type[Model]] = []
    waiting = list(models)
    while waiting:
        ready = [model for model in waiting if not (_needed(model) & set(waiting)) - {model}]
        if not ready:
            raise ImproperlyConfigured(f"foreign keys run in a circle among {', '.join(m.__name__ for m in waiting)}")
        ordered += ready
        waiting = [model for model in waiting if model not in ready]
    return ordered


def _needed(model: type[Model]) -> set[type[Model]]:
    return {needed for _, needed in Table(model).foreign_keys}


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in lists of at most ``BATCH_ROWS``, and of not much more than ``BATCH_CHARACTERS`` of text."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(batch) >= BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def dealt_by_migrate(source: str, target: str) -> Dealt:
    """How content types and permissions, which every database numbers for itself, are numbered in the target."""
    dealt: dict[type[Model], Mapping[Any, Any]] = {}
    for model in (ContentType, Permission):
        there = {name: number for number, name in _names(model, target)}
        dealt[model] = {number: there.get(name) for number, name in _names(model, source)}
    return dealt


def _names(model: type[Model], using: str) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    rows: QuerySet[Any, Any] = QuerySet(model, using=using)
    yield from ((row.pk, row.natural_key()) for row in rows)


def renumbered(table: Table, row: Row, dealt: Dealt) -> Row:
    """A row of the source as it has to be in the target.

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
    """Let a database number new rows after the ones that were inserted with theirs."""
    connection = connections[using]
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), [table.model for table in tables]):
            cursor.execute(statement)


def same_row(table: Table, one: Row, other: Row) -> bool:
    """Whether two rows hold the same; JSON is the same when its values are."""
    return one == other and all(
        type(a) is type(b) for a, b, field in zip(one, other, table.fields, strict=True) if not _is_json(field)
    )


def _is_json(field: Field[Any, Any]) -> bool:
    return isinstance(field, JSONField)
