"""A table of the record below the ORM: the plain SQL of hot statements, and commitments to rows.

The ORM takes about five times as long for the same rows. Columns and defaults come from the models, so a new column is
written without a change here. Everything that is not hot stays with the ORM.

A commitment is what an event says of a row: a salted hash of columns, which proves them and reveals nothing. By each
model's ``Rules`` an insert commits to all frozen columns, a later change to the columns it sets. States need no commitment,
since their steps are events in clear. A column that holds nothing (NULL or its default) is left out, so adding a column
keeps old commitments valid. Both databases give the same values for the same row, so a ledger can be moved.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property, lru_cache, partial
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, models, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models.expressions import Expression

from mnesis_core.events import new_salt, row_commitment, row_key
from mnesis_core.text import encode_text
from sessions_app.database.fields import EncodedField
from sessions_app.database.guards.rules import AppendOnlyModel, literal, refuse_frozen

# ruff: noqa: S608 - the names in these statements come from the models.

SALTS = ("own_salt", "salt")
"""The first of these columns that a table has makes the key of its rows' commitments; neither is part of one. A row from before
its table had one holds an empty text, and the session's salt serves."""
ROWS_A_STATEMENT = 500
MOST_VARIABLES = 32_766  # of one statement (SQLITE_MAX_VARIABLE_NUMBER)

M = TypeVar("M", bound=models.Model)
Commitment = list[Any]  # as in an event's body: table, id, commitment and, for changeable columns, their names


class Column(NamedTuple):
    name: str
    default: Any
    plain: Callable[[Any], str | int] | None  # makes the value committed to; None if it is the value itself


class Commitments:
    def __init__(self, model: type[AppendOnlyModel]) -> None:
        fields = sorted(model._meta.concrete_fields, key=lambda field: str(field.column))
        self.model = model
        self.table = model._meta.db_table
        self.salt = next((name for name in SALTS if any(field.column == name for field in fields)), "")
        unproven = {*SALTS, *_columns(model, (*model.rules.steps, *model.rules.unproven))}
        proven = {str(field.column): field for field in fields if str(field.column) not in unproven}
        changeable = _columns(model, model.rules.changeable)
        self.frozen = tuple(name for name in proven if name not in changeable)
        self.later = tuple(name for name in proven if name in changeable)
        self.fields = {name: proven[name] for name in (*self.frozen, *self.later)}
        self.free = _columns(model, model.rules.free).intersection(self.later)
        columns = {}
        for name, field in self.fields.items():
            kind = getattr(field, "target_field", field)
            plain = [plain for kinds, plain in _PLAIN if isinstance(kind, kinds)]
            if not plain:
                raise TypeError(f"{field} is of a kind that no commitment can be made to")
            columns[name] = Column(name, field.get_default(), plain[0])
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
        # What was written as NULL needs no claim: a value that shows up there later is one that no entry explains.
        once = [column for column in self._once if values.get(column.name) not in (None, column.default)]
        free = [column for column in self._free if column.name in values]
        return self._later(values, id, row_key(salt, table=self.table, id=id), once, free) if once or free else []

    def _later(
        self, row: Mapping[str, Any], id: str, key: bytes, once: list[Column], free: list[Column]
    ) -> list[Commitment]:
        # One commitment to what is set once, and one to each column that may be set again.
        groups = ([once] if once else []) + [[column] for column in free]
        return [
            [self.table, id, row_commitment(key, _held(row, group)), [column.name for column in group]]
            for group in groups
        ]

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


def _columns(model: type[AppendOnlyModel], names: Iterable[str]) -> frozenset[str]:
    chosen = set(names)
    return frozenset(str(field.column) for field in model._meta.concrete_fields if field.name in chosen)


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
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _with_integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_integers(item) for item in value]
    if not isinstance(value, float) or not value.is_integer():
        return value
    # PostgreSQL keeps the decimal digits that a large float is written with, and not the float: 1e23 is not int(1e23).
    return int(value) if abs(value) <= 2**53 else int(Decimal(repr(value)))


_PLAIN: tuple[tuple[tuple[type, ...], Callable[[Any], str | int] | None], ...] = (
    ((models.CharField, models.TextField), None),
    ((models.IntegerField, models.BooleanField), int),
    ((models.DateTimeField,), time_text),
    ((models.JSONField,), json_text),
)


class Table:
    """The statements of one model's table. Values are columns as they are stored (``sessions_app.database.fields``)."""

    def __init__(self, model: type[AppendOnlyModel]) -> None:
        self.model = model
        self.name = model._meta.db_table
        self.commitments = commitments_of(model)
        self._changeable = _columns(model, model.rules.changeable)
        fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
        # A column without a constant default (NOT_PROVIDED is callable too) starts as NULL, so that the database
        # refuses a row that does not name it.
        self._defaults = {str(field.column): None if callable(field.default) else field.default for field in fields}
        self._adapt = {str(field.column): adapt for field in fields if (adapt := _adapter(field)) is not None}
        self._adapted = [(place, self._adapt[name]) for place, name in enumerate(self._defaults) if name in self._adapt]
        self._fields = {str(field.column): field for field in fields}
        encoded = [field for field in fields if isinstance(field, EncodedField) and not field.primary_key]
        self._stored = {str(field.column): field.stored for field in encoded}
        self._salt = self.commitments.salt or "''"
        self._insert = f"INSERT INTO {self.name} ({', '.join(self._defaults)}) VALUES "
        self._places = f"({', '.join(['%s'] * len(fields))})"
        self._inserts: dict[int, str] = {}

    def row(self, **values: Any) -> SimpleNamespace:
        """Return a row to insert: the columns named here, a new salt if it has one, and the defaults of all others."""
        return self.stored_row(**self.stored(values))

    def stored_row(self, **columns: Any) -> SimpleNamespace:
        """Return a row to insert from columns whose texts are already encoded."""
        salt = self.commitments.salt
        return SimpleNamespace(**self._defaults | ({salt: new_salt()} if salt else {}) | columns)

    def stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return columns with their texts encoded. Encoding twice corrupts them."""
        stored = self._stored
        return {name: stored[name](value) if name in stored else value for name, value in values.items()}

    def insert(self, cursor: CursorWrapper, rows: Sequence[SimpleNamespace]) -> None:
        """:raises IntegrityError: a key is taken, or a required column was not named."""
        for start in range(0, len(rows), ROWS_A_STATEMENT):
            some = rows[start : start + ROWS_A_STATEMENT]
            values: list[Any] = []
            for row in some:
                own = list(vars(row).values())
                for place, adapt in self._adapted:
                    if own[place] is not None:
                        own[place] = adapt(own[place])
                values += own
            if len(some) not in self._inserts:
                self._inserts[len(some)] = self._insert + ", ".join([self._places] * len(some))
            run(cursor, self._inserts[len(some)], values)

    def check(self, values: Mapping[str, Any]) -> None:
        """:raises ImmutableFieldError: a column may never change."""
        if not self._changeable.issuperset(values):
            refuse_frozen(self.model, values)

    def update(self, cursor: CursorWrapper, values: dict[str, Any], **where: Any) -> list[str]:
        """Update the rows whose columns equal ``where`` (``None`` is NULL) and return the salt of each. The caller has called ``check``."""
        changes = ", ".join(f"{column} = %s" for column in values)
        condition, wanted = _condition(where)
        statement = f"UPDATE {self.name} SET {changes} WHERE {condition} RETURNING {self._salt}"
        return [salt for (salt,) in run(cursor, statement, [*self._adapted_values(values, values), *wanted]).fetchall()]

    def update_each(
        self,
        cursor: CursorWrapper,
        rows: Mapping[Any, Mapping[str, Any]],
        *,
        key: str = "id",
        add: Sequence[str] = (),
        **where: Any,
    ) -> dict[Any, str]:
        """Give each row its own new values, many rows in one statement, and return by key the salts of the rows that exist.

        :param rows: the new values by ``key``; the columns are the same for all
        :param add: columns to which the value is added
        :param where: what the columns of a row must equal
        :raises ImmutableFieldError: a column is frozen.
        """
        if not rows:
            return {}
        columns = list(next(iter(rows.values())))
        self.check(dict.fromkeys(columns))
        names = [key, *columns]
        # PostgreSQL takes a parameter among VALUES for a text unless it is cast.
        is_cast = cursor.db.vendor == "postgresql"
        places = f"({', '.join(f'%s::{self._types[name]}' if is_cast else '%s' for name in names)})"
        changes = ", ".join(
            f"{name} = {self.name}.{name} + new_{name}" if name in add else f"{name} = new_{name}" for name in columns
        )
        condition, wanted = _condition(where)
        update = f"UPDATE {self.name} SET {changes} FROM given WHERE {self.name}.{key} = new_{key}"
        update += f"{condition and f' AND {condition}'} RETURNING {key}, {self._salt}"
        size = min(ROWS_A_STATEMENT, MOST_VARIABLES // len(names))
        found: dict[Any, str] = {}
        pairs = list(rows.items())
        for start in range(0, len(pairs), size):
            some = pairs[start : start + size]
            given = (
                f"given ({', '.join(f'new_{name}' for name in names)}) AS (VALUES {', '.join([places] * len(some))})"
            )
            values = [value for row_key, row in some for value in (row_key, *self._adapted_values(columns, row))]
            found.update(run(cursor, f"WITH {given} {update}", [*values, *wanted]).fetchall())
        return found

    def find(self, cursor: CursorWrapper, *columns: str, **where: Any) -> tuple[Any, ...] | None:
        condition, wanted = _condition(where)
        found = run(cursor, f"SELECT {', '.join(columns)} FROM {self.name} WHERE {condition} LIMIT 1", wanted)
        row: tuple[Any, ...] | None = found.fetchone()
        return row

    def _adapted_values(self, columns: Iterable[str], row: Mapping[str, Any]) -> list[Any]:
        adapt = self._adapt
        return [row[name] if row[name] is None or name not in adapt else adapt[name](row[name]) for name in columns]

    @cached_property
    def _types(self) -> dict[str, str | None]:
        return {name: field.db_type(connection) for name, field in self._fields.items()}


def _adapter(field: models.Field[Any, Any]) -> Callable[[Any], Any] | None:
    """Return what converts a value of this column for the driver, or ``None`` if the driver takes it as it is."""
    if isinstance(field, models.DateTimeField):
        return _time
    if isinstance(field, models.JSONField):
        return partial(field.get_db_prep_value, connection=connection, prepared=True)
    return None


@lru_cache(maxsize=256)
def _time(value: datetime) -> Any:
    return connection.ops.adapt_datetimefield_value(value)


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
                return raw.cursor(sqlite3.Cursor).execute(sql.replace("%s", "?"), values)
            # Binds and prepares on the server. A cursor for ``%s`` would parse every statement of over 50 parameters again.
            return psycopg.RawCursor(raw).execute(_numbered(sql), values)
    except DatabaseError:
        # As in the ORM: even if the error is caught, nothing of this transaction can be committed.
        if cursor.db.in_atomic_block:
            transaction.set_rollback(True, using=cursor.db.alias)
        raise


@lru_cache(maxsize=256)
def _numbered(sql: str) -> str:
    first, *others = sql.split("%s")
    return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))


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


class Param(Expression):
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
        return next(iter(self.all(**values)), None)

    def all(self, **values: Any) -> list[M]:
        model, compiler, sql, params, converters, names, annotations = self._compiled
        values = {name: encode_text(value) if isinstance(value, str) else value for name, value in values.items()}
        rows = fetch(sql, [values[param.name] if isinstance(param, Param) else param for param in params])
        found = []
        for row in compiler.apply_converters(rows, converters) if converters else rows:
            made = model.from_db(DEFAULT_DB_ALIAS, names, row[: len(names)])
            for name, place in annotations.items():
                setattr(made, name, row[place])
            found.append(made)
        return found

    @cached_property
    def _compiled(self) -> tuple[Any, ...]:
        query = self._make()
        compiler = query.query.get_compiler(using=query.db)
        sql, params = compiler.as_sql()
        columns = [column for column, _, _ in compiler.select]
        annotations = dict(compiler.annotation_col_map or {})
        names = [column.target.attname for column in columns[: min(annotations.values(), default=len(columns))]]
        return query.model, compiler, sql, params, compiler.get_converters(columns), names, annotations
