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
from typing import Any, NamedTuple

from django.db import models

from mnesis_core.ledger import column_text, row_commitment
from sessions_app.append_only import AppendOnlyModel
from sessions_app.refusals import literal

SALT = "salt"
"""The column that is the key of a commitment and no part of it."""

Bound = list[Any]
"""As it stands in an event's body: table, id, commitment and, for changeable columns, their names."""


class Column(NamedTuple):
    """A column of a commitment."""

    name: str
    default: Any
    text: Callable[[Any], str] | None
    """Makes a text of a value; ``None`` where it is one."""


class Binding:
    """How the rows of one model are bound."""

    def __init__(self, model: type[AppendOnlyModel]) -> None:
        fields = sorted(model._meta.concrete_fields, key=lambda field: str(field.column))
        self.model = model
        self.table = model._meta.db_table
        self.has_salt = any(field.column == SALT for field in model._meta.concrete_fields)
        self.fields = {str(field.column): field for field in fields if field.column != SALT}
        changeable = _columns(model, model.rules.changeable)
        self.free = frozenset(_columns(model, model.rules.free))
        self.provable = frozenset(self.fields) - {*_columns(model, (*model.rules.steps, *model.rules.unproven))}
        self.frozen = tuple(name for name in self.fields if name in self.provable and name not in changeable)
        self._columns = {name: _column(field) for name, field in self.fields.items()}
        later = [name for name in self.fields if name in self.provable and name in changeable]
        self._frozen = [self._columns[name] for name in self.frozen]
        self._once = [self._columns[name] for name in later if name not in self.free]
        self._free = [self._columns[name] for name in later if name in self.free]

    def inserted(self, row: Mapping[str, Any], *, salt: str) -> list[Bound]:
        """What binds a new row: its frozen columns, and what else it holds from the start."""
        once = [column for column in self._once if row[column.name] not in (None, column.default)]
        free = [column for column in self._free if row[column.name] not in (None, column.default)]
        bound = [self._of(row, row["id"], salt, self._frozen)]
        return bound + self._later(row, row["id"], salt, once, free) if once or free else bound

    def changed(self, id: Any, values: Mapping[str, Any], *, salt: str) -> list[Bound]:
        """What binds new values of a row; nothing, when none of them is for the ledger to prove."""
        once = [column for column in self._once if column.name in values]
        free = [column for column in self._free if column.name in values]
        return self._later(values, id, salt, once, free)

    def text(self, row: Mapping[str, Any], names: Iterable[str]) -> str:
        """What a commitment to these columns, sorted, is made of."""
        return _text(row, [self._columns[name] for name in names])

    def sql(self, names: Iterable[str], vendor: str) -> str | None:
        """The same text as an expression in SQL; ``None`` with JSON, which each database writes in its own way."""
        fields = [self.fields[name] for name in names]
        if any(isinstance(field, models.JSONField) for field in fields):
            return None
        held = [_held_in_sql(field, vendor) for field in fields]
        # Neither is ||, which would copy a long text once for each column after it.
        if vendor == "sqlite":
            return f"printf('{'%s' * len(held)}', {', '.join(held)})"
        return f"concat({', '.join(held)})"

    def _later(self, row: Mapping[str, Any], id: Any, salt: str, once: list[Column], free: list[Column]) -> list[Bound]:
        """One entry for what is set once, and one for each column that may be set again and then stands for itself."""
        groups = ([once] if once else []) + [[column] for column in free]
        return [[*self._of(row, id, salt, group), [column.name for column in group]] for group in groups]

    def _of(self, row: Mapping[str, Any], id: Any, salt: str, columns: Iterable[Column]) -> Bound:
        return [self.table, id, row_commitment(salt, table=self.table, id=str(id), text=_text(row, columns))]


def _text(row: Mapping[str, Any], columns: Iterable[Column]) -> str:
    pieces = []
    for name, default, text in columns:
        value = row[name]
        if value is not None and value != default:
            pieces.append(column_text(name, value if text is None else text(value)))
    return "".join(pieces)


@cache
def binding_of(model: type[AppendOnlyModel]) -> Binding:
    """The binding of a model's rows."""
    return Binding(model)


def _columns(model: type[AppendOnlyModel], names: Iterable[str]) -> list[str]:
    chosen = set(names)
    return [str(field.column) for field in model._meta.concrete_fields if field.name in chosen]


def _column(field: models.Field[Any, Any]) -> Column:
    target = getattr(field, "target_field", field)  # a foreign key holds what the key is
    text: Callable[[Any], str] | None = str
    if isinstance(target, models.CharField | models.TextField):
        text = None
    elif isinstance(field, models.DateTimeField):
        text = time_text
    elif isinstance(field, models.JSONField):
        text = json_text
    elif isinstance(field, models.BooleanField):
        text = _truth_text
    return Column(str(field.column), field.get_default(), text)


def _truth_text(value: bool) -> str:
    return str(int(value))


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
    if isinstance(getattr(field, "target_field", field), models.CharField | models.TextField):
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
