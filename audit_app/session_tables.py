"""Which tables hold rows of a session, and those rows as plain JSON values and back.

A table belongs to a session when a foreign key leads there, over one table or several, so that a new one is exported
without anybody saying so. Two kinds of column stay out, since every database deals them out for itself: numbers of
rows (``BigAutoField``), and who a row belongs to (a foreign key to an account).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any, cast

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection, models
from django.db.models import Field, Model
from django.db.models.functions import Collate
from django.db.models.query import QuerySet

from audit_app.tables import Table, carried_tables
from mnesis_core.session_file import MAX_LINE_BYTES

IN_BYTES = {"sqlite": "BINARY", "postgresql": "C"}
"""The collation that orders keys alike on every machine."""


@dataclass(frozen=True)
class SessionTable:
    """One table that holds rows of sessions."""

    table: Table
    path: str
    """The lookup from a row to its session."""

    @property
    def model(self) -> type[Model]:
        """Its model."""
        return self.table.model

    @cached_property
    def fields(self) -> list[Field[Any, Any]]:
        """The columns that are exported."""
        return [
            field
            for field in self.table.fields
            if field not in self.account_fields and not isinstance(field, models.AutoField)
        ]

    @cached_property
    def account_fields(self) -> list[Field[Any, Any]]:
        """The columns that name an account."""
        return [self.table.fields[index] for index, model in self.table.foreign_keys if _is_account(model)]

    @cached_property
    def _readers(self) -> dict[str, tuple[Field[Any, Any], Callable[[Any], Any]]]:
        return {field.attname: (field, _reader_of(field)) for field in self.fields}

    def rows(self, session_id: str) -> QuerySet[Any, Any]:
        """A session's rows, in an order that every database agrees on."""
        rows: QuerySet[Any, Any] = QuerySet(self.model).filter(**{self.path: session_id})
        dealt = isinstance(self.table.fields[self.table.key], models.AutoField)
        return rows.order_by("pk" if dealt else Collate("pk", IN_BYTES[connection.vendor]))

    def values(self, session_id: str) -> Iterator[dict[str, Any]]:
        """A session's rows as JSON values, a few at a time."""
        names = [field.attname for field in self.fields]
        for row in self.rows(session_id).values_list(*names).iterator(chunk_size=50):
            yield {name: _as_json(field, value) for name, field, value in zip(names, self.fields, row, strict=True)}

    def row_of(self, values: Mapping[str, Any], *, account_id: int) -> tuple[Any, ...]:
        """A row to be inserted, in the order of ``fields`` and then ``account_fields``.

        A column that is missing was added after the export: it takes its default.

        :raises ValueError: a column is unknown, or its value impossible.
        """
        if unknown := values.keys() - self._readers.keys():
            raise ValueError(f"{self.table.name} has no column {min(unknown)!r}")
        row = [_read(values, name, field, read) for name, (field, read) in self._readers.items()]
        return (*row, *[account_id] * len(self.account_fields))


def _read(values: Mapping[str, Any], name: str, field: Field[Any, Any], read: Callable[[Any], Any]) -> Any:
    if name not in values:
        return _default(field)
    value = values[name]
    return None if value is None and field.null else read(value)


@cache
def session_tables() -> dict[str, SessionTable]:
    """By name, every table that holds rows of sessions; what a foreign key points at comes first."""
    session = apps.get_model("sessions_app", "Session")
    paths: dict[type[Model], str] = {session: "pk"}
    found = {}
    for table in carried_tables():
        path = paths.get(table.model) or _path(table, paths)
        if path:
            paths[table.model] = path
            found[table.name] = SessionTable(table, path)
    return found


def _path(table: Table, paths: Mapping[type[Model], str]) -> str:
    """The shortest way to a session; of two, the one called ``session``."""
    names = [(table.fields[index].name, model) for index, model in table.foreign_keys if model in paths]
    ways = [name if paths[model] == "pk" else f"{name}__{paths[model]}" for name, model in names]
    return min(ways, key=lambda way: (way.count("__"), way != "session"), default="")


def _is_account(model: type[Model]) -> bool:
    return issubclass(get_user_model(), model)


def _as_json(field: Field[Any, Any], value: Any) -> Any:
    if value is None or isinstance(value, str | int | float) or isinstance(field, models.JSONField):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    return field.value_to_string(field.model(**{field.attname: value}))


@cache
def _reader_of(field: Field[Any, Any]) -> Callable[[Any], Any]:
    """What turns a JSON value into a column's, or says in a ``ValueError`` why it cannot be one."""
    target = field.target_field if isinstance(field, models.ForeignKey) else field
    kind = next((types for types in _READERS if isinstance(target, types)), None)
    if kind is None:
        return lambda value: field.to_python(_of_type(field, value, str))
    return _READERS[kind](field, target)


def _read_text(field: Field[Any, Any], target: Field[Any, Any]) -> Callable[[Any], Any]:
    longest = target.max_length or MAX_LINE_BYTES
    choices = [choice for choice, _ in field.flatchoices] if field.choices else None

    def read(value: Any) -> Any:
        if len(_of_type(field, value, str)) > longest:
            raise ValueError(f"{field.attname} is longer than {longest} characters")
        if choices is not None and value not in choices:
            raise ValueError(f"{field.attname} cannot be {value[:80]!r}")
        return value

    return read


def _read_whole_number(field: Field[Any, Any], target: Field[Any, Any]) -> Callable[[Any], Any]:
    limits = connection.ops.integer_field_range(target.get_internal_type())
    low, high = cast(tuple[int | None, int | None], limits)
    lowest, highest = -(2**63) if low is None else low, 2**63 - 1 if high is None else high

    def read(value: Any) -> Any:
        if not lowest <= _of_type(field, value, int) <= highest:
            raise ValueError(f"{field.attname} cannot be {value}")
        return value

    return read


def _read_time(field: Field[Any, Any], _: Field[Any, Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        time = datetime.fromisoformat(_of_type(field, value, str))
        if time.tzinfo is None or time.isoformat() != value:
            raise ValueError(f"{field.attname} is no time with its offset: {value[:80]!r}")
        return time

    return read


_READERS: dict[type[Field[Any, Any]], Callable[[Field[Any, Any], Field[Any, Any]], Callable[[Any], Any]]] = {
    models.JSONField: lambda field, _: lambda value: value,
    models.BooleanField: lambda field, _: lambda value: _of_type(field, value, bool),
    models.FloatField: lambda field, _: lambda value: _of_type(field, value, float, int),
    models.IntegerField: _read_whole_number,
    models.CharField: _read_text,
    models.TextField: _read_text,
    models.DateTimeField: _read_time,
}


def _of_type(field: Field[Any, Any], value: Any, *types: type) -> Any:
    """:raises ValueError: the value is of another type; ``true`` is no number."""
    if type(value) not in types:
        raise ValueError(f"{field.attname} cannot be {json.dumps(value)[:80]}")
    return value


def _default(field: Field[Any, Any]) -> Any:
    """:raises ValueError: the column has to be named."""
    if callable(field.default) and not isinstance(field, models.JSONField):
        raise ValueError(f"{field.attname} is missing")
    return field.get_default()
