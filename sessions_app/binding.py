"""What an event says of a row: a commitment to columns, salted, so that it proves them and tells nothing about them.

From each model's ``Rules``: an insert is bound with all frozen columns, a later change with the columns it sets. States
need none of it: their steps are the events themselves, in clear.
A column that holds nothing (NULL, or its default) is not part of a commitment, so a column that is added later
leaves the old ones whole. Both databases say the same text for the same row, so a chain can be moved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

from django.db import models

from mnesis_core.ledger import row_commitment, row_text
from sessions_app.append_only import AppendOnlyModel
from sessions_app.refusals import literal

SALT = "salt"
"""The column that is the key of a commitment and no part of it."""

Bound = list[Any]
"""As it stands in an event's body: table, id, commitment and, for changeable columns, their names."""


class Binding:
    """How the rows of one model are bound."""

    def __init__(self, model: type[AppendOnlyModel]) -> None:
        fields = sorted(model._meta.concrete_fields, key=lambda field: str(field.column))
        self.model = model
        self.table = model._meta.db_table
        self.has_salt = any(field.column == SALT for field in model._meta.concrete_fields)
        self.fields = {str(field.column): field for field in fields if field.column != SALT}
        changeable = _columns(model, model.rules.changeable)
        self.frozen = tuple(column for column in self.fields if column not in changeable)
        self.free = frozenset(_columns(model, model.rules.free))
        self.provable = frozenset(self.fields) - {*_columns(model, (*model.rules.steps, *model.rules.unproven))}
        self._frozen = frozenset(self.frozen)
        self._texts = {column: (field.get_default(), _text_of(field)) for column, field in self.fields.items()}

    def inserted(self, row: Mapping[str, Any], *, salt: str) -> list[Bound]:
        """What binds a new row: its frozen columns, and what else it holds from the start."""
        texts = self._held(row)
        return [self._of(row["id"], salt, texts, self.frozen), *self._later(row["id"], salt, texts, texts)]

    def changed(self, id: Any, values: Mapping[str, Any], *, salt: str) -> list[Bound]:
        """What binds new values of a row; nothing, when none of them is for the ledger to prove."""
        return self._later(id, salt, self._held(values), values)

    def text(self, row: Mapping[str, Any], columns: Iterable[str]) -> str:
        """What a commitment to these columns, sorted, is made of."""
        texts = self._held(row)
        return row_text((column, texts[column]) for column in columns if column in texts)

    def sql(self, columns: Iterable[str], vendor: str) -> str | None:
        """The same text as an expression in SQL; ``None`` with JSON, which each database writes in its own way."""
        fields = [self.fields[column] for column in columns]
        if any(isinstance(field, models.JSONField) for field in fields):
            return None
        held = [_held_in_sql(field, vendor) for field in fields]
        # Neither is ||, which would copy a long text once for each column after it.
        return (
            f"printf('{'%s' * len(held)}', {', '.join(held)})" if vendor == "sqlite" else f"concat({', '.join(held)})"
        )

    def _later(self, id: Any, salt: str, texts: Mapping[str, str], columns: Iterable[str]) -> list[Bound]:
        """One entry for what is set once, and one for each column that may be set again and then stands for itself."""
        chosen = sorted(self.provable.intersection(columns) - self._frozen)
        once = [column for column in chosen if column not in self.free]
        groups = [once] if once else []
        groups += [[column] for column in chosen if column in self.free]
        return [[*self._of(id, salt, texts, group), group] for group in groups]

    def _of(self, id: Any, salt: str, texts: Mapping[str, str], columns: Iterable[str]) -> Bound:
        text = row_text((column, texts[column]) for column in columns if column in texts)
        return [self.table, id, row_commitment(salt, table=self.table, id=str(id), text=text)]

    def _held(self, row: Mapping[str, Any]) -> dict[str, str]:
        texts = {}
        for column, value in row.items():
            if value is not None and column in self._texts:
                default, text = self._texts[column]
                if value != default:
                    texts[column] = text(value)
        return texts


@cache
def binding_of(model: type[AppendOnlyModel]) -> Binding:
    """The binding of a model's rows."""
    return Binding(model)


def _columns(model: type[AppendOnlyModel], names: Iterable[str]) -> list[str]:
    chosen = set(names)
    return [str(field.column) for field in model._meta.concrete_fields if field.name in chosen]


def _text_of(field: models.Field[Any, Any]) -> Callable[[Any], str]:
    if isinstance(field, models.DateTimeField):
        return time_text
    if isinstance(field, models.JSONField):
        return json_text
    if isinstance(field, models.BooleanField):
        return lambda value: str(int(value))
    return str


@lru_cache(maxsize=256)
def time_text(time: datetime) -> str:
    """A time in UTC to the microsecond, as both databases write it."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def _held_in_sql(field: models.Field[Any, Any], vendor: str) -> str:
    column, default = f'"{field.column}"', field.get_default()
    text = _text_in_sql(field, column, vendor)
    empty = f"{column} IS NULL" if default is None else f"{column} IS NULL OR {column} = {_literal(default)}"
    return f"CASE WHEN {empty} THEN '' ELSE '{field.column}=' || length({text}) || ':' || {text} END"


def time_in_sql(column: str, vendor: str) -> str:
    """``time_text`` of a column, as an expression."""
    if vendor == "sqlite":  # where a whole second has no fraction
        return f"CASE length({column}) WHEN 19 THEN {column} || '.000000' ELSE {column} END"
    return f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"


def _text_in_sql(field: models.Field[Any, Any], column: str, vendor: str) -> str:
    if isinstance(field, models.DateTimeField):
        return time_in_sql(column, vendor)
    if isinstance(field, models.BooleanField) and vendor == "postgresql":
        return f"{column}::int::text"
    if isinstance(field.target_field if field.is_relation else field, models.CharField | models.TextField):
        return column
    return f"CAST({column} AS text)"


def _literal(value: Any) -> str:
    return str(value).upper() if isinstance(value, bool | int) else literal(str(value))


def json_text(value: Any) -> str:
    """A JSON value in one way: PostgreSQL keeps neither the order of keys nor the form of numbers."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
