"""Rows that are written once: one declaration per model, from which all guards are made.

1. ``save()``, ``delete()`` and the query methods refuse in words (``ImmutableFieldError``).
2. Triggers on both databases refuse everything that gets past that (``triggers``): they are the real boundary.
3. The site's rights end where the rules do, so that it cannot drop a trigger either (``rights``).
4. ``checks``, ``/readyz`` and ``up`` compare triggers and rights with the rules.

A column that is not named in ``Rules`` is frozen, so a new column is frozen until its rule is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.db import models

from mnesis_core.errors import ImmutableFieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a row of one table may change after its insert; each tuple names columns."""

    once: tuple[str, ...] = ()  # from NULL to a value, once
    steps: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # the permitted (from, to) of states
    free: tuple[str, ...] = ()  # at any time: counters, leases, titles
    # Columns that may hold a person's words, or a hash of them: what an erasure has to blank.
    erasable: tuple[str, ...] = ()
    # Columns that no commitment covers: leases, and what the ledger says in clear or proves by its length.
    unproven: tuple[str, ...] = ()
    # False for rows that the ledger proves in another way: itself, and what can be rebuilt from its events.
    bound: bool = True
    deletable: bool = False  # true for the stream journal, whose rows are deleted after they are folded

    @property
    def changeable(self) -> tuple[str, ...]:
        return (*self.once, *self.steps, *self.free)


class AppendOnlyQuerySet(models.QuerySet[Any]):
    def update(self, **values: Any) -> int:
        """:raises ImmutableFieldError: a column is frozen."""
        refuse_frozen(self.model, values)
        return super().update(**values)

    def delete(self) -> tuple[int, dict[str, int]]:
        """:raises ImmutableFieldError: always, unless the rows may be deleted."""
        refuse_delete(self.model)
        return super().delete()

    def bulk_update(self, objs: Any, fields: Any, batch_size: int | None = None) -> int:
        """:raises ImmutableFieldError: a column is frozen."""
        refuse_frozen(self.model, dict.fromkeys(fields))
        return super().bulk_update(objs, fields, batch_size)


AppendOnlyManager = models.Manager.from_queryset(AppendOnlyQuerySet)


class AppendOnlyModel(models.Model):
    rules: ClassVar[Rules] = Rules()
    objects = AppendOnlyManager()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """:raises ImmutableFieldError: the row is there already; rows change through the store only."""
        if not self._state.adding:
            raise ImmutableFieldError(f"{type(self).__name__} {self.pk} is written already and cannot be saved again")
        # A new instance that carries an old key would be turned into an UPDATE by Django.
        kwargs["force_insert"] = True
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """:raises ImmutableFieldError: always, unless the row may be deleted."""
        refuse_delete(type(self))
        return super().delete(*args, **kwargs)


def refuse_frozen(model: type[models.Model], values: Mapping[str, Any]) -> None:
    """:raises ImmutableFieldError: one of the named columns may never change."""
    rules: Rules = getattr(model, "rules", Rules())
    frozen = sorted(set(values) - set(rules.changeable))
    if frozen:
        raise ImmutableFieldError(f"{model.__name__}.{', '.join(frozen)} cannot change after the insert")


def refuse_delete(model: type[models.Model]) -> None:
    """:raises ImmutableFieldError: rows of this table are never deleted."""
    rules: Rules = getattr(model, "rules", Rules())
    if not rules.deletable:
        raise ImmutableFieldError(f"a {model.__name__} is part of the record and is never deleted")


def literal(text: str) -> str:
    """Return a text as an SQL literal, for statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"
