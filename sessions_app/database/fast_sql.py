"""Plain SQL for the hot statements of the record: the ORM takes about five times as long for the same rows.

Columns and defaults are the models' own, so a new column is written without a change here. Everything that is not
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
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models.expressions import Expression

from mnesis_core.text import encode_text
from sessions_app.database.commitments import binding_of
from sessions_app.fields import EncodedField
from sessions_app.guards.rules import AppendOnlyModel, refuse_frozen

# ruff: noqa: S608 - the names in these statements are the models' own, nobody else's.


ROWS_A_STATEMENT = 500
"""One statement for many rows is one round trip; the limit is SQLite's 32,766 variables."""
MOST_VARIABLES = 32_766
"""Of one statement (SQLITE_MAX_VARIABLE_NUMBER)."""


class Table:
    """One model's table."""

    def __init__(self, model: type[AppendOnlyModel]) -> None:
        self.model = model
        self.name = model._meta.db_table
        self.binding = binding_of(model)
        changeable = model.rules.changeable
        self._changeable = frozenset(
            str(field.column) for field in model._meta.concrete_fields if field.name in changeable
        )
        fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
        # A column without a constant default (NOT_PROVIDED is callable too) starts as NULL, so that the database
        # refuses a row for which nobody names it.
        self._defaults = {str(field.column): None if callable(field.default) else field.default for field in fields}
        self._adapt = {str(field.column): adapt for field in fields if (adapt := _adapter(field)) is not None}
        self._adapted = [(place, self._adapt[name]) for place, name in enumerate(self._defaults) if name in self._adapt]
        self._fields = {str(field.column): field for field in fields}
        self._stored = {str(field.column): field.stored for field in fields if isinstance(field, EncodedField)}
        self._insert = f"INSERT INTO {self.name} ({', '.join(self._defaults)}) VALUES "
        self._places = f"({', '.join(['%s'] * len(fields))})"
        self._inserts: dict[int, str] = {}

    def row(self, **values: Any) -> SimpleNamespace:
        """A row to be inserted: the columns named here, and the defaults of all others."""
        return self.stored_row(**self.stored(values))

    def stored_row(self, **columns: Any) -> SimpleNamespace:
        """Likewise, of columns whose texts are encoded already."""
        return SimpleNamespace(**self._defaults | columns)

    def stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Columns as they are stored: their texts encoded (``sessions_app.fields``), which must be done once."""
        stored = self._stored
        return {name: stored[name](value) if name in stored else value for name, value in values.items()}

    def insert(self, cursor: CursorWrapper, rows: Sequence[SimpleNamespace]) -> None:
        """Insert rows that ``row`` has made.

        :raises IntegrityError: a key is taken, or a required column was not named.
        """
        for start in range(0, len(rows), ROWS_A_STATEMENT):
            some = rows[start : start + ROWS_A_STATEMENT]
            values = [value for row in some for value in self._values(row)]
            run(cursor, self._insert_of(len(some)), values)

    def _insert_of(self, rows: int) -> str:
        if rows not in self._inserts:
            self._inserts[rows] = self._insert + ", ".join([self._places] * rows)
        return self._inserts[rows]

    def update(self, cursor: CursorWrapper, values: dict[str, Any], **where: Any) -> int:
        """Change the rows whose columns equal ``where`` (``None`` is NULL); returns how many there were.

        :raises ImmutableFieldError: a column is frozen.
        """
        self.check(values)
        changes = ", ".join(f"{column} = %s" for column in values)
        condition, wanted = _condition(where)
        adapted = [self._adapt[name](value) if name in self._adapt else value for name, value in values.items()]
        statement = f"UPDATE {self.name} SET {changes} WHERE {condition}"
        return int(run(cursor, statement, [*adapted, *wanted]).rowcount)

    def update_each(
        self,
        cursor: CursorWrapper,
        rows: Mapping[Any, Mapping[str, Any]],
        *,
        key: str = "id",
        add: Sequence[str] = (),
        **where: Any,
    ) -> set[Any]:
        """Give each row its own new values, many rows in one statement; returns the keys of those that were there.

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
        places = ", ".join("%s" + self._cast(name, vendor) for name in names)
        changes = ", ".join(
            f"{name} = {self.name}.{name} + new_{name}" if name in add else f"{name} = new_{name}" for name in columns
        )
        return (
            f"WITH given ({', '.join(f'new_{name}' for name in names)}) AS (VALUES {', '.join([f'({places})'] * rows)})"
            f" UPDATE {self.name} SET {changes} FROM given WHERE {self.name}.{key} = new_{key}"
            f"{condition and f' AND {condition}'} RETURNING {key}"
        )

    def _cast(self, column: str, vendor: str) -> str:
        # PostgreSQL takes a parameter among VALUES for a text where nothing says otherwise.
        return f"::{self._types[column]}" if vendor == "postgresql" else ""

    def _adapted_values(self, columns: Sequence[str], row: Mapping[str, Any]) -> list[Any]:
        return [self._adapt[name](row[name]) if name in self._adapt else row[name] for name in columns]

    def find(self, cursor: CursorWrapper, *columns: str, **where: Any) -> tuple[Any, ...] | None:
        """These columns of a row whose columns equal ``where``, or ``None`` where there is no such row."""
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

    def _values(self, row: SimpleNamespace) -> list[Any]:
        values = list(vars(row).values())
        for place, adapt in self._adapted:
            values[place] = adapt(values[place])
        return values


def run(cursor: CursorWrapper, sql: str, values: Sequence[Any] = ()) -> Any:
    """Execute one statement and return the cursor that has its result.

    Past Django's own cursor, which costs more than the statement, unless somebody counts or watches queries.
    """
    try:
        if cursor.db.queries_logged:
            cursor.execute(sql, values)
            return cursor
        with cursor.db.wrap_database_errors:
            return _driver(cursor.db).execute(_own(sql, cursor.db.vendor), values)
    except DatabaseError:
        # As in the ORM: whoever catches it, nothing of this transaction can be committed any more.
        if cursor.db.in_atomic_block:
            transaction.set_rollback(True, using=cursor.db.alias)
        raise


def fetch(sql: str, values: Sequence[Any] = (), *, using: str = "default") -> list[tuple[Any, ...]]:
    """All rows that a query finds."""
    with connections[using].cursor() as cursor:
        if not cursor.db.execute_wrappers:
            found: list[tuple[Any, ...]] = run(cursor, sql, values).fetchall()
            return found
        cursor.execute(sql, values)  # inside a change, whose rows wait until Django's cursor is asked for something
        return list(cursor.fetchall())


@cache
def select_columns(model: type[models.Model], alias: str, names: tuple[str, ...]) -> str:
    """Columns for a SELECT; the times among them come as ``time_of`` takes them."""
    fields = {str(field.column): field for field in model._meta.concrete_fields}
    return ", ".join(_selected(fields[name], f"{alias}.{name}") for name in names)


def _selected(field: models.Field[Any, Any], column: str) -> str:
    # A time as text: Django's converters take several times as long as ``time_of``. SQLite's driver calls them by a
    # column's declared type, which an expression has not; PostgreSQL's makes times by itself.
    if connection.vendor == "sqlite":
        return f"+{column}" if isinstance(field, models.DateTimeField | models.BooleanField) else column
    return f"{column}::text" if isinstance(field, models.DateTimeField) else column


@lru_cache(maxsize=8192)
def time_of(text: str) -> datetime:
    """A time of the record, from a column that ``select_columns`` named. Every turn reads those of its context again."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)  # SQLite keeps no zone


def _driver(database: BaseDatabaseWrapper) -> Any:
    """The driver's own cursor on the same connection; on PostgreSQL one that binds, and prepares, on the server."""
    raw = database.connection
    return raw.cursor(sqlite3.Cursor) if database.vendor == "sqlite" else psycopg.Cursor(raw)


@lru_cache(maxsize=256)
def _own(sql: str, vendor: str) -> str:
    return sql.replace("%s", "?") if vendor == "sqlite" else sql


def _condition(where: dict[str, Any]) -> tuple[str, list[Any]]:
    # A state of ours stands in the statement itself: a prepared one cannot use a partial index for a value that
    # comes later, and would read a session's every turn to find the one that runs.
    written = {column: _written(value) for column, value in where.items()}
    conditions = [f"{column} = %s" if text is None else f"{column} {text}" for column, text in written.items()]
    return " AND ".join(conditions), [value for column, value in where.items() if written[column] is None]


def _written(value: Any) -> str | None:
    if value is None:
        return "IS NULL"
    return f"= '{value.value}'" if isinstance(value, Enum) else None


def _adapter(field: models.Field[Any, Any]) -> Callable[[Any], Any] | None:
    """What turns a value of this column into the driver's, where that takes more than handing it over."""
    if isinstance(field, models.DateTimeField):
        return lambda value: None if value is None else _time(value)
    if isinstance(field, models.JSONField):
        return lambda value: None if value is None else field.get_db_prep_value(value, connection, prepared=True)
    return None


@lru_cache(maxsize=256)
def _time(value: datetime) -> Any:
    return connection.ops.adapt_datetimefield_value(value)


# Queries of the ORM that are compiled once and asked with other values.
#
# Putting an ordinary query together and compiling it takes several times as long as asking it. What each turn reads is
# written here once: the rows come as the same objects, with the ORM's own conversions.

M = TypeVar("M", bound=models.Model)


class Asked(Expression):
    """A value that a compiled query is asked with, by name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        """A place for the value, and this in place of it."""
        return "%s", (self,)


class CompiledQuery(Generic[M]):
    """A query in which some values are left open (``Asked``)."""

    def __init__(self, make: Callable[[], models.QuerySet[M]]) -> None:
        """:param make: makes the query; called once, when models and database are there"""
        self._make = make

    def one(self, **values: Any) -> M | None:
        """The first row for these values, or ``None``."""
        return next(iter(self.all(**values)), None)

    def all(self, **values: Any) -> list[M]:
        """The rows for these values, as instances; with the annotations that the query has."""
        query = self._compiled
        values = {name: encode_text(value) if isinstance(value, str) else value for name, value in values.items()}
        params = [values[param.name] if isinstance(param, Asked) else param for param in query.params]
        return [query.instance(row) for row in query.converted(fetch(query.sql, params))]

    @cached_property
    def _compiled(self) -> _Compiled[M]:
        return _Compiled(self._make())


class _Compiled(Generic[M]):
    """The statement of a query, and what makes instances of its rows."""

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
        """Rows as the ORM has them: times, JSON and the like."""
        return self._compiler.apply_converters(rows, self._converters) if self._converters else rows

    def instance(self, row: Sequence[Any]) -> M:
        """A converted row as an instance."""
        made = self._model.from_db(DEFAULT_DB_ALIAS, self._names, row[: len(self._names)])
        for name, place in self._annotations.items():
            setattr(made, name, row[place])
        return made
