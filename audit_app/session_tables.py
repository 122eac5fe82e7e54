"""Which tables hold rows of a session, and those rows as plain JSON values and back.

A table belongs to a session when a foreign key leads there, over one table or several, so that a new one is exported
without anybody saying so. Two kinds of column stay out, since every database deals them out for itself: numbers of
rows (``BigAutoField``), and who a row belongs to (a foreign key to an account).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, cast

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection, models
from django.db.models import Field, Model
from django.db.models.functions import Collate
from django.db.models.query import QuerySet

from audit_app.tables import Table, carried_tables

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

    @property
    def fields(self) -> list[Field[Any, Any]]:
        """The columns that are exported."""
        accounts = {field for index, model in self.table.foreign_keys if _is_account(model) for field in [index]}
        return [
            field
            for index, field in enumerate(self.table.fields)
            if index not in accounts and not isinstance(field, models.AutoField)
        ]

    @property
    def account_fields(self) -> list[Field[Any, Any]]:
        """The columns that name an account."""
        return [self.table.fields[index] for index, model in self.table.foreign_keys if _is_account(model)]

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
        fields = {field.attname: field for field in self.fields}
        if unknown := values.keys() - fields.keys():
            raise ValueError(f"{self.table.name} has no column {min(unknown)!r}")
        row = [_from_json(field, values[name]) if name in values else _default(field) for name, field in fields.items()]
        return (*row, *(account_id for _ in self.account_fields))


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


def _from_json(field: Field[Any, Any], value: Any) -> Any:
    """The Python value of a column. :raises ValueError: it can have no such value."""
    target = field.target_field if isinstance(field, models.ForeignKey) else field
    if value is None and field.null:
        return None
    kinds = next((kinds for types, kinds in _KINDS if isinstance(target, types)), None)
    if kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        raise ValueError(f"{field.attname} cannot be {json.dumps(value)[:80]}")
    if kinds is None and not isinstance(field, models.JSONField) and not isinstance(value, str):
        raise ValueError(f"{field.attname} must be text")
    return _checked(field, target, value)


_KINDS: tuple[tuple[type[Field[Any, Any]], tuple[type, ...]], ...] = (
    (models.BooleanField, (bool,)),
    (models.IntegerField, (int,)),
    (models.FloatField, (int, float)),
    (models.CharField, (str,)),
    (models.TextField, (str,)),
    (models.DateTimeField, (str,)),
)


def _checked(field: Field[Any, Any], target: Field[Any, Any], value: Any) -> Any:
    if isinstance(target, models.CharField) and len(value) > (target.max_length or len(value)):
        raise ValueError(f"{field.attname} is longer than {target.max_length} characters")
    if field.choices and value not in [choice for choice, _ in field.flatchoices]:
        raise ValueError(f"{field.attname} cannot be {value[:80]!r}")
    if isinstance(target, models.IntegerField):
        low, high = _range(target)
        if value < low or value > high:
            raise ValueError(f"{field.attname} cannot be {value}")
    if isinstance(target, models.DateTimeField):
        return _time(field, value)
    known = isinstance(target, models.JSONField) or any(isinstance(target, types) for types, _ in _KINDS)
    return value if known else field.to_python(value)


def _range(field: Field[Any, Any]) -> tuple[int, int]:
    low, high = cast(tuple[int | None, int | None], connection.ops.integer_field_range(field.get_internal_type()))
    return (-(2**63) if low is None else low), (2**63 - 1 if high is None else high)


def _time(field: Field[Any, Any], text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or time.isoformat() != text:
        raise ValueError(f"{field.attname} is no time with its offset: {text[:80]!r}")
    return time


def _default(field: Field[Any, Any]) -> Any:
    """:raises ValueError: the column has to be named."""
    if callable(field.default) and not isinstance(field, models.JSONField):
        raise ValueError(f"{field.attname} is missing")
    return field.get_default()
