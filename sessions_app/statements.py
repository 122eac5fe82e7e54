"""Plain SQL for the hot statements of the record: the ORM takes about five times as long for the same rows.

Columns and defaults are the models' own, so a new column is written without a change here. Not for
JSON columns; inside a ``change`` and with its cursor. Everything that is not hot stays with the ORM.
"""
# ruff: noqa: S608 - the names in these statements are the models' own, nobody else's.

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import AutoField

from sessions_app.append_only import AppendOnlyModel, refuse_frozen

ROWS_A_STATEMENT = 500


class Table:
    """One model's table."""

    def __init__(self, model: type[AppendOnlyModel]) -> None:
        self._model = model
        self._name = model._meta.db_table
        self._changeable = frozenset(model.rules.changeable)
        fields = [field for field in model._meta.concrete_fields if not isinstance(field, AutoField)]
        # A column without a constant default (NOT_PROVIDED is callable too) starts as NULL, so that the database
        # refuses a row for which nobody names it.
        self._defaults = {str(field.column): None if callable(field.default) else field.default for field in fields}
        self._insert = f"INSERT INTO {self._name} ({', '.join(self._defaults)}) VALUES "
        self._places = f"({', '.join(['%s'] * len(fields))})"

    def row(self, **values: Any) -> SimpleNamespace:
        """A row to be inserted: the columns named here, and the defaults of all others."""
        return SimpleNamespace(**self._defaults | values)

    def insert(self, cursor: CursorWrapper, *rows: SimpleNamespace) -> None:
        """Insert rows that ``row`` has made.

        :raises IntegrityError: a key is taken, or a required column was not named.
        """
        # One statement for many rows is one round trip; the limit is SQLite's 32,766 variables.
        for start in range(0, len(rows), ROWS_A_STATEMENT):
            some = rows[start : start + ROWS_A_STATEMENT]
            values = _adapted(value for row in some for value in vars(row).values())
            _run(cursor, self._insert + ", ".join([self._places] * len(some)), values)

    def update(self, cursor: CursorWrapper, values: dict[str, Any], **where: Any) -> int:
        """Change the rows whose columns equal ``where`` (``None`` is NULL); returns how many there were.

        :raises ImmutableFieldError: a column is frozen.
        """
        if not self._changeable.issuperset(values):
            refuse_frozen(self._model, values)
        changes = ", ".join(f"{column} = %s" for column in values)
        condition, wanted = _condition(where)
        _run(
            cursor,
            f"UPDATE {self._name} SET {changes} WHERE {condition}",
            [*_adapted(values.values()), *wanted],
        )
        return int(cursor.rowcount)

    def find(self, cursor: CursorWrapper, *columns: str, **where: Any) -> tuple[Any, ...] | None:
        """These columns of a row whose columns equal ``where``, or ``None`` where there is no such row."""
        condition, wanted = _condition(where)
        _run(cursor, f"SELECT {', '.join(columns)} FROM {self._name} WHERE {condition} LIMIT 1", wanted)
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row


def _run(cursor: CursorWrapper, sql: str, values: list[Any]) -> None:
    try:
        cursor.execute(sql, values)
    except DatabaseError:
        # As in the ORM: whoever catches it, nothing of this transaction can be committed any more.
        transaction.set_rollback(True)
        raise


def _condition(where: dict[str, Any]) -> tuple[str, list[Any]]:
    conditions = [f"{column} IS NULL" if value is None else f"{column} = %s" for column, value in where.items()]
    return " AND ".join(conditions), [value for value in where.values() if value is not None]


def _adapted(values: Iterable[Any]) -> list[Any]:
    adapt = connection.ops.adapt_datetimefield_value
    return [adapt(value) if isinstance(value, datetime) else value for value in values]
