"""Rows that are written once: one declaration per model, all guards made from it.

1. ``save()``, ``delete()`` and the query methods refuse in words (``ImmutableFieldError``).
2. Triggers on both databases refuse whatever gets past that: the real boundary (``sessions_app.guards``).
3. The site's rights end where the rules do, so that it cannot take a trigger away either (``sessions_app.rights``).
4. ``checks``, ``/readyz`` and ``up`` compare triggers and rights with what is declared here.

A column that is not named in ``Rules`` is frozen, so a new column is frozen until somebody decides otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.db import models

from mnesis_core.errors import ImmutableFieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a row of one table may change after its insert."""

    once: tuple[str, ...] = ()
    """Columns that go from NULL to a value, once."""
    steps: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """State columns, each with its permitted (from, to) pairs."""
    free: tuple[str, ...] = ()
    """Columns that may change at any time: counters, leases, titles."""
    unproven: tuple[str, ...] = ()
    """Columns that no commitment covers: leases, and what the ledger says in clear or proves by its length."""
    bound: bool = True
    """False for rows that the ledger proves in another way: itself, and what can be rebuilt from its events."""
    deletable: bool = False
    """True for the one table whose rows are deleted after they are folded: the stream journal."""

    @property
    def changeable(self) -> tuple[str, ...]:
        """Every column that may ever change."""
        return (*self.once, *self.steps, *self.free)


class AppendOnlyQuerySet(models.QuerySet[Any]):
    """Refuses, in words, what the triggers would refuse anyway."""

    def update(self, **values: Any) -> int:
        """Update columns that the model's rules let change.

        :raises ImmutableFieldError: a column is frozen.
        """
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
    """Base of every table of the record."""

    rules: ClassVar[Rules] = Rules()
    objects = AppendOnlyManager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert the row.

        :raises ImmutableFieldError: the row is there already; rows change through the store only.
        """
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
