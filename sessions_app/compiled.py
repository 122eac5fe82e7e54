"""Queries of the ORM that are compiled once and asked with other values.

Putting an ordinary query together and compiling it takes several times as long as asking it. What each turn reads is
written here once: the rows come as the same objects, with the ORM's own conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, models
from django.db.models.expressions import Expression

from sessions_app.statements import fetch

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
