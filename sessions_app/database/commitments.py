"""What an event says of a row: a salted commitment to columns, which proves them and reveals nothing.

From each model's ``Rules``: an insert commits to all frozen columns, a later change to the columns it sets. States need
no commitment, since their steps are events in clear. A column that holds nothing (NULL or its default) is left out, so
adding a column keeps old commitments valid. Both databases give the same values for the same row, so a ledger can be moved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple

from django.db import models

from mnesis_core.events import row_commitment, row_key
from sessions_app.guards.rules import AppendOnlyModel, literal

SALT = "salt"  # the column that is the key of a commitment and not part of it

Commitment = list[Any]  # as in an event's body: table, id, commitment and, for changeable columns, their names


class Column(NamedTuple):
    """A column that a commitment covers."""

    name: str
    default: Any
    plain: Callable[[Any], str | int] | None  # makes the value committed to; None if it is the value itself


class Commitments:
    """The commitments to rows of one model."""

    def __init__(self, model: type[AppendOnlyModel]) -> None:
        fields = sorted(model._meta.concrete_fields, key=lambda field: str(field.column))
        self.model = model
        self.table = model._meta.db_table
        self.has_salt = any(field.column == SALT for field in model._meta.concrete_fields)
        unproven = {SALT, *_columns(model, (*model.rules.steps, *model.rules.unproven))}
        proven = {str(field.column): field for field in fields if str(field.column) not in unproven}
        changeable = {*_columns(model, model.rules.changeable)}
        self.frozen = tuple(name for name in proven if name not in changeable)
        self.later = tuple(name for name in proven if name in changeable)
        self.fields = {name: proven[name] for name in (*self.frozen, *self.later)}
        self.free = frozenset(_columns(model, model.rules.free)).intersection(self.later)
        columns = {name: _column(field) for name, field in proven.items()}
        self._frozen = [columns[name] for name in self.frozen]
        self._once = [columns[name] for name in self.later if name not in self.free]
        self._free = [columns[name] for name in self.later if name in self.free]
        self._json = [
            (place, columns[name].default)
            for place, (name, field) in enumerate(self.fields.items())
            if isinstance(field, models.JSONField)
        ]

    def inserted(self, row: Mapping[str, Any], *, salt: str) -> list[Commitment]:
        """Return the commitments to a new row: to its frozen columns, and to what else it holds from the start."""
        key = row_key(salt, table=self.table, id=row["id"])
        bound = [[self.table, row["id"], row_commitment(key, _held(row, self._frozen))]]
        once = [column for column in self._once if row[column.name] not in (None, column.default)]
        free = [column for column in self._free if row[column.name] not in (None, column.default)]
        return bound + self._later(row, row["id"], key, once, free) if once or free else bound

    def changed(self, id: str, values: Mapping[str, Any], *, salt: str) -> list[Commitment]:
        """Return the commitments to new values of a row: empty if the ledger proves none of them."""
        once = [column for column in self._once if column.name in values]
        free = [column for column in self._free if column.name in values]
        return self._later(values, id, row_key(salt, table=self.table, id=id), once, free) if once or free else []

    def in_sql(self, vendor: str) -> str:
        """Return an SQL expression for each of ``fields``: the value committed to, or NULL if the column holds nothing.

        JSON comes as its text, which each database writes in its own way; ``plain`` does the rest.
        """
        expressions = []
        for field in self.fields.values():
            column, default = f'"{field.column}"', field.get_default()
            if isinstance(field, models.DateTimeField):
                expressions.append(time_in_sql(column, vendor))
                continue
            if isinstance(field, models.JSONField):
                expressions.append(column if vendor == "sqlite" else f"{column}::text")
                continue
            if isinstance(field, models.BooleanField):
                column = f"CAST({column} AS integer)"
            if default is not None:
                held = str(int(default)) if isinstance(default, int) else literal(str(default))
                column = f"NULLIF({column}, {held})"
            expressions.append(column)
        return ", ".join(expressions)

    def plain(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values committed to for ``fields``, from what the database returned for ``in_sql``."""
        if not self._json:
            return values
        plain = list(values)
        for place, default in self._json:
            if (text := plain[place]) is None:
                continue
            try:
                value = json.loads(text)
                plain[place] = None if value is None or value == default else json_text(value)
            except (ValueError, RecursionError):
                plain[place] = {"unreadable": text}  # equals no value that was ever committed to
        return plain

    def _later(
        self, row: Mapping[str, Any], id: str, key: bytes, once: list[Column], free: list[Column]
    ) -> list[Commitment]:
        # One commitment to what is set once, and one to each column that may be set again.
        groups = ([once] if once else []) + [[column] for column in free]
        return [
            [self.table, id, row_commitment(key, _held(row, group)), [column.name for column in group]]
            for group in groups
        ]


def _held(row: Mapping[str, Any], columns: Iterable[Column]) -> dict[str, str | int]:
    held = {}
    for name, default, plain in columns:
        value = row[name]
        if value is not None and value != default:
            held[name] = value if plain is None else plain(value)
    return held


@cache
def commitments_of(model: type[AppendOnlyModel]) -> Commitments:
    return Commitments(model)


def _columns(model: type[AppendOnlyModel], names: Iterable[str]) -> list[str]:
    chosen = set(names)
    return [str(field.column) for field in model._meta.concrete_fields if field.name in chosen]


@lru_cache(maxsize=256)
def time_text(time: datetime) -> str:
    """Return a time in UTC to the microsecond, as both databases write it."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def time_in_sql(column: str, vendor: str) -> str:
    """Return ``time_text`` of a column as an SQL expression."""
    if vendor == "sqlite":  # which writes a whole second without a fraction
        return f"CASE length({column}) WHEN 19 THEN {column} || '.000000' ELSE {column} END"
    return f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"


def json_text(value: Any) -> str:
    """Return one text for equal JSON values: PostgreSQL keeps neither the order of keys nor the form of numbers."""
    text = _dumped(value)
    # Python writes every integral float with one of these; searching is faster than walking the value.
    return _dumped(_with_integers(value)) if ".0" in text or "e+" in text else text


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_PLAIN: tuple[tuple[tuple[type, ...], Callable[[Any], str | int] | None], ...] = (
    ((models.CharField, models.TextField), None),
    ((models.IntegerField, models.BooleanField), int),
    ((models.DateTimeField,), time_text),
    ((models.JSONField,), json_text),
)


def _column(field: models.Field[Any, Any]) -> Column:
    target = getattr(field, "target_field", field)
    for kinds, plain in _PLAIN:
        if isinstance(target, kinds):
            return Column(str(field.column), field.get_default(), plain)
    raise TypeError(f"{field} is of a kind that no commitment can be made to")


def _with_integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
