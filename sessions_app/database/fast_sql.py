"""Plain SQL for the hot statements of the record: the ORM takes about five times as long for the same rows.

Columns and defaults come from the models, so a new column is written without a change here. Everything that is not
hot stays with the ORM.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, cached_property, lru_cache
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, models, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models.expressions import Expression

from mnesis_core.text import encode_text
from sessions_app.database.commitments import commitments_of
from sessions_app.database.fields import EncodedField
from sessions_app.guards.rules import AppendOnlyModel, refuse_frozen

# ruff: noqa: S608 - the names in these statements come from the models.

ROWS_A_STATEMENT = 500
MOST_VARIABLES = 32_766  # of one statement (SQLITE_MAX_VARIABLE_NUMBER)


class Table:
    def __init__(self, model: type[AppendOnlyModel]) -> None:
        self.model = model
        self.name = model._meta.db_table
        self.commitments = commitments_of(model)
        changeable = model.rules.changeable
        self._changeable = frozenset(
            str(field.column) for field in model._meta.concrete_fields if field.name in changeable
        )
        fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
        # A column without a constant default (NOT_PROVIDED is callable too) starts as NULL, so that the database
        # refuses a row that does not name it.
        self._defaults = {str(field.column): None if callable(field.default) else field.default for field in fields}
        self._adapt = {str(field.column): adapt for field in fields if (adapt := _adapter(field)) is not None}
        self._adapted = [(place, self._adapt[name]) for place, name in enumerate(self._defaults) if name in self._adapt]
        self._fields = {str(field.column): field for field in fields}
        self._stored = {str(field.column): field.stored for field in fields if isinstance(field, EncodedField)}
        self._insert = f"INSERT INTO {self.name} ({', '.join(self._defaults)}) VALUES "
        self._places = f"({', '.join(['%s'] * len(fields))})"
        self._inserts: dict[int, str] = {}

    def row(self, **values: Any) -> SimpleNamespace:
        """Return a row to insert: the columns named here, and the defaults of all others."""
        return self.stored_row(**self.stored(values))

    def stored_row(self, **columns: Any) -> SimpleNamespace:
        """Return a row to insert from columns whose texts are already encoded."""
        return SimpleNamespace(**self._defaults | columns)

    def stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return columns as they are stored, their texts encoded (``sessions_app.database.fields``). Encoding twice corrupts them."""
        stored = self._stored
        return {name: stored[name](value) if name in stored else value for name, value in values.items()}

    def insert(self, cursor: CursorWrapper, rows: Sequence[SimpleNamespace]) -> None:
        """Insert rows made by ``row``.

        :raises IntegrityError: a key is taken, or a required column was not named.
        """
        for start in range(0, len(rows), ROWS_A_STATEMENT):
            some = rows[start : start + ROWS_A_STATEMENT]
            values: list[Any] = []
            for row in some:
                own = list(vars(row).values())
                for place, adapt in self._adapted:
                    own[place] = adapt(own[place])
                values += own
            if len(some) not in self._inserts:
                self._inserts[len(some)] = self._insert + ", ".join([self._places] * len(some))
            run(cursor, self._inserts[len(some)], values)

    def update(self, cursor: CursorWrapper, values: dict[str, Any], **where: Any) -> int:
        """Update the rows whose columns equal ``where`` (``None`` is NULL) and return their number.

        :raises ImmutableFieldError: a column is frozen.
        """
        self.check(values)
        changes = ", ".join(f"{column} = %s" for column in values)
        condition, wanted = _condition(where)
        statement = f"UPDATE {self.name} SET {changes} WHERE {condition}"
        return int(run(cursor, statement, [*self._adapted_values(values, values), *wanted]).rowcount)

    def update_each(
        self,
        cursor: CursorWrapper,
        rows: Mapping[Any, Mapping[str, Any]],
        *,
        key: str = "id",
        add: Sequence[str] = (),
        **where: Any,
    ) -> set[Any]:
        """Give each row its own new values, many rows in one statement, and return the keys of the rows that exist.

        :param rows: the new values by ``key``; the columns are the same for all
        :param add: columns to which the value is added
        :param where: what the columns of a row must equal
        :raises ImmutableFieldError: a column is frozen.
        """
        if not rows:
            return set()
        columns = list(next(iter(rows.values())))
        self.check(dict.fromkeys(columns))
        condition, wanted = _condition(where)
        size = min(ROWS_A_STATEMENT, MOST_VARIABLES // (len(columns) + 1))
        found: set[Any] = set()
        pairs = list(rows.items())
        for start in range(0, len(pairs), size):
            some = pairs[start : start + size]
            statement = self._update_each(cursor.db.vendor, key, columns, add, len(some), condition)
            values = [value for row_key, row in some for value in (row_key, *self._adapted_values(columns, row))]
            found.update(id for (id,) in run(cursor, statement, [*values, *wanted]).fetchall())
        return found

    def _update_each(
        self, vendor: str, key: str, columns: Sequence[str], add: Sequence[str], rows: int, condition: str
    ) -> str:
        names = [key, *columns]
        # PostgreSQL takes a parameter among VALUES for a text unless it is cast.
        places = ", ".join(f"%s::{self._types[name]}" if vendor == "postgresql" else "%s" for name in names)
        changes = ", ".join(
            f"{name} = {self.name}.{name} + new_{name}" if name in add else f"{name} = new_{name}" for name in columns
        )
        return (
            f"WITH given ({', '.join(f'new_{name}' for name in names)}) AS (VALUES {', '.join([f'({places})'] * rows)})"
            f" UPDATE {self.name} SET {changes} FROM given WHERE {self.name}.{key} = new_{key}"
            f"{condition and f' AND {condition}'} RETURNING {key}"
        )

    def _adapted_values(self, columns: Iterable[str], row: Mapping[str, Any]) -> list[Any]:
        return [self._adapt[name](row[name]) if name in self._adapt else row[name] for name in columns]

    def find(self, cursor: CursorWrapper, *columns: str, **where: Any) -> tuple[Any, ...] | None:
        """Return columns of a row whose columns equal ``where``, or ``None`` if there is none."""
        condition, wanted = _condition(where)
        found = run(cursor, f"SELECT {', '.join(columns)} FROM {self.name} WHERE {condition} LIMIT 1", wanted)
        row: tuple[Any, ...] | None = found.fetchone()
        return row

    def check(self, values: dict[str, Any]) -> None:
        """:raises ImmutableFieldError: a column may never change."""
        if not self._changeable.issuperset(values):
            refuse_frozen(self.model, values)

    @cached_property
    def _types(self) -> dict[str, str | None]:
        return {name: field.db_type(connection) for name, field in self._fields.items()}


def run(cursor: CursorWrapper, sql: str, values: Sequence[Any] = ()) -> Any:
    """Execute one statement and return the cursor that has its result."""
    # Django's own cursor costs more than the statement, so it is only used while queries are counted or watched.
    try:
        if cursor.db.queries_logged:
            cursor.execute(sql, values)
            return cursor
        with cursor.db.wrap_database_errors:
            raw = cursor.db.connection
            if cursor.db.vendor == "sqlite":
                return raw.cursor(sqlite3.Cursor).execute(_qmark(sql), values)
            return psycopg.Cursor(raw).execute(sql, values)  # binds and prepares on the server
    except DatabaseError:
        # As in the ORM: even if the error is caught, nothing of this transaction can be committed.
        if cursor.db.in_atomic_block:
            transaction.set_rollback(True, using=cursor.db.alias)
        raise


def fetch(sql: str, values: Sequence[Any] = (), *, using: str = "default") -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        if not cursor.db.execute_wrappers:
            found: list[tuple[Any, ...]] = run(cursor, sql, values).fetchall()
            return found
        cursor.execute(sql, values)  # inside a change, whose pending rows are written when Django's cursor executes
        return list(cursor.fetchall())


@cache
def select_columns(model: type[models.Model], alias: str, names: tuple[str, ...]) -> str:
    """Return columns for a SELECT, whose times ``time_of`` reads."""
    # Times come as text, because Django's converters take several times as long as ``time_of``. SQLite's driver calls
    # them by a column's declared type, which an expression does not have; PostgreSQL's makes times by itself.
    is_sqlite = connection.vendor == "sqlite"
    raw = (models.DateTimeField, models.BooleanField) if is_sqlite else (models.DateTimeField,)
    before, after = ("+", "") if is_sqlite else ("", "::text")
    fields = {str(field.column): field for field in model._meta.concrete_fields}
    return ", ".join(
        f"{before}{alias}.{name}{after}" if isinstance(fields[name], raw) else f"{alias}.{name}" for name in names
    )


@lru_cache(maxsize=8192)  # every turn reads the times of its context again
def time_of(text: str) -> datetime:
    """Return a time from a column of ``select_columns``."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)  # SQLite keeps no zone


@lru_cache(maxsize=256)
def _qmark(sql: str) -> str:
    return sql.replace("%s", "?")


def _condition(where: dict[str, Any]) -> tuple[str, list[Any]]:
    # A state is written into the statement: a prepared statement cannot use a partial index for a parameter, and
    # would read every turn of a session to find the running one.
    conditions, values = [], []
    for column, value in where.items():
        if value is None:
            conditions.append(f"{column} IS NULL")
        elif isinstance(value, Enum):
            conditions.append(f"{column} = '{value.value}'")
        else:
            conditions.append(f"{column} = %s")
            values.append(value)
    return " AND ".join(conditions), values


def _adapter(field: models.Field[Any, Any]) -> Callable[[Any], Any] | None:
    """Return what converts a value of this column for the driver, or ``None`` if the driver takes it as it is."""
    if isinstance(field, models.DateTimeField):
        return lambda value: None if value is None else _time(value)
    if isinstance(field, models.JSONField):
        return lambda value: None if value is None else field.get_db_prep_value(value, connection, prepared=True)
    return None


@lru_cache(maxsize=256)
def _time(value: datetime) -> Any:
    return connection.ops.adapt_datetimefield_value(value)


M = TypeVar("M", bound=models.Model)


class Param(Expression):
    """A parameter of a compiled query, by name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        return "%s", (self,)


class CompiledQuery(Generic[M]):
    """A query that is compiled once and run with different parameters (``Param``).

    Building and compiling an ordinary query takes several times as long as running it. Rows come as the same instances,
    with the ORM's own conversions.
    """

    def __init__(self, make: Callable[[], models.QuerySet[M]]) -> None:
        """:param make: makes the query; called once, when models and database are there"""
        self._make = make

    def one(self, **values: Any) -> M | None:
        """Return the first row for these parameters, or ``None``."""
        return next(iter(self.all(**values)), None)

    def all(self, **values: Any) -> list[M]:
        """Return the rows for these parameters as instances, with the query's annotations."""
        query = self._compiled
        values = {name: encode_text(value) if isinstance(value, str) else value for name, value in values.items()}
        params = [values[param.name] if isinstance(param, Param) else param for param in query.params]
        return [query.instance(row) for row in query.converted(fetch(query.sql, params))]

    @cached_property
    def _compiled(self) -> _Compiled[M]:
        return _Compiled(self._make())


class _Compiled(Generic[M]):
    def __init__(self, rows: models.QuerySet[M]) -> None:
        compiler = rows.query.get_compiler(using=rows.db)
        self.sql, self.params = compiler.as_sql()
        columns = [column for column, _, _ in compiler.select]
        self._compiler = compiler
        self._converters = compiler.get_converters(columns)
        self._model = rows.model
        self._annotations = dict(compiler.annotation_col_map or {})
        first = min(self._annotations.values(), default=len(columns))
        self._names = [column.target.attname for column in columns[:first]]

    def converted(self, rows: list[tuple[Any, ...]]) -> Iterable[Sequence[Any]]:
        """Return rows converted as the ORM does."""
        return self._compiler.apply_converters(rows, self._converters) if self._converters else rows

    def instance(self, row: Sequence[Any]) -> M:
        made = self._model.from_db(DEFAULT_DB_ALIAS, self._names, row[: len(self._names)])
        for name, place in self._annotations.items():
            setattr(made, name, row[place])
        return made
