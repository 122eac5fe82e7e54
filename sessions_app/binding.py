"""What an event says of a row: a commitment to columns, salted, so that it proves them and tells nothing about them.

From each model's ``Rules``: an insert is bound with all frozen columns, a later change with the columns it sets.
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

from mnesis_core.ledger import row_commitment
from sessions_app.append_only import AppendOnlyModel

SALT = "salt"
"""The column that is the key of a commitment and no part of it."""

Bound = list[Any]
"""As it stands in an event's body: table, id, commitment and, for changeable columns, their names."""


class Binding:
    """How the rows of one model are bound."""

    def __init__(self, model: type[AppendOnlyModel]) -> None:
        fields = [field for field in model._meta.concrete_fields if field.column != SALT]
        # Long texts last: a database that joins the columns then copies each of them once.
        fields.sort(key=lambda field: (isinstance(field, models.TextField), field.column))
        self.table = model._meta.db_table
        self.has_salt = any(field.column == SALT for field in model._meta.concrete_fields)
        self.fields = {str(field.column): field for field in fields}
        self.changeable = frozenset(_columns(model, (*model.rules.once, *model.rules.steps, *model.rules.free)))
        self.provable = frozenset(self.fields) - frozenset(_columns(model, model.rules.unproven))
        self.frozen = tuple(column for column in self.fields if column not in self.changeable)
        self._texts = {column: (field.get_default(), _text_of(field)) for column, field in self.fields.items()}

    def inserted(self, row: Mapping[str, Any], *, salt: str) -> list[Bound]:
        """What binds a new row: its frozen columns, and what else it holds from the start."""
        texts = self._held(row)
        bound = [[self.table, row["id"], self._commit(row["id"], salt, texts, self.frozen)]]
        more = sorted(self.changeable & self.provable & texts.keys())
        return bound if not more else [*bound, [*self._of(row["id"], salt, texts, more), more]]

    def changed(self, id: Any, values: Mapping[str, Any], *, salt: str) -> list[Bound]:
        """What binds new values of a row; nothing, when none of them is for the ledger to prove."""
        columns = sorted(self.provable & values.keys())
        return [[*self._of(id, salt, self._held(values), columns), columns]] if columns else []

    def _of(self, id: Any, salt: str, texts: Mapping[str, str], columns: Iterable[str]) -> Bound:
        return [self.table, id, self._commit(id, salt, texts, self.ordered(columns))]

    def ordered(self, columns: Iterable[str]) -> list[str]:
        """Columns in the order in which a commitment reads them."""
        chosen = frozenset(columns)
        return [column for column in self.fields if column in chosen]

    def _held(self, row: Mapping[str, Any]) -> dict[str, str]:
        texts = {}
        for column, value in row.items():
            if value is not None and column in self._texts:
                default, text = self._texts[column]
                if value != default:
                    texts[column] = text(value)
        return texts

    def _commit(self, id: Any, salt: str, texts: Mapping[str, str], columns: Iterable[str]) -> str:
        held = [(column, texts[column]) for column in columns if column in texts]
        return row_commitment(salt, table=self.table, id=str(id), columns=held)


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


def json_text(value: Any) -> str:
    """A JSON value in one way: PostgreSQL keeps neither the order of keys nor the form of numbers."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
