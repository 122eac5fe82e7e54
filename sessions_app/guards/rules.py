"""Rows that are written once: one declaration per model, from which all guards are made.

1. ``save()``, ``delete()`` and the query methods refuse in words (``ImmutableFieldError``).
2. Triggers on both databases refuse everything that gets past that (``triggers``): they are the real boundary.
3. The site's rights end where the rules do, so that it cannot drop a trigger either (``rights``).
4. ``checks``, ``/readyz`` and ``up`` compare triggers and rights with the rules.

A column that is not named in ``Rules`` is frozen, so a new column is frozen until its rule is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from django.db import models

from mnesis_core.errors import ImmutableFieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a row of one table may change after its insert; each tuple names columns."""

    once: tuple[str, ...] = ()  # from NULL to a value, once
    steps: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # the permitted (from, to) of states
    free: tuple[str, ...] = ()  # at any time: counters, leases, titles
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


Column: TypeAlias = "models.Field[Any, Any]"
Model: TypeAlias = type[AppendOnlyModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSpec:
    """Something that the rules of one table do not permit."""

    rule: str  # the end of the trigger's name
    event: str  # UPDATE, DELETE, INSERT or TRUNCATE
    moment: str = "BEFORE"  # or AFTER
    condition: str = ""  # SQL over the rows OLD and NEW; empty for always
    words: str  # of the error


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One trigger, made from one ``TriggerSpec``."""

    name: str
    table: str
    sql: str

    @property
    def rule(self) -> str:
        return self.name.removeprefix(f"guard_{self.table}_")


def update_refusals(model: Model, changed: Callable[[Column], str]) -> Iterator[TriggerSpec]:
    """Yield the updates that the rules do not permit; ``changed`` is a database's SQL for "this column changes".

    :raises FieldDoesNotExist: a rule names a column that the model does not have.
    """
    table, rules, fields = model._meta.db_table, model.rules, model._meta.concrete_fields
    ruled = [model._meta.get_field(name) for name in rules.changeable]
    frozen = [field for field in fields if field not in ruled]
    yield TriggerSpec(
        rule="frozen",
        event="UPDATE",
        condition=" OR ".join(changed(field) for field in frozen),
        words=f"{table}: {_listed(frozen)} never change after the insert",
    )
    once = [field for field in fields if field.name in rules.once]
    if once:
        yield TriggerSpec(
            rule="once",
            event="UPDATE",
            condition=" OR ".join(f"OLD.{quoted(field)} IS NOT NULL AND {changed(field)}" for field in once),
            words=f"{table}: {_listed(once)} are set once and then keep their value",
        )
    for column in fields:
        if column.name not in rules.steps:
            continue
        state, steps = quoted(column), rules.steps[column.name]
        listed = " OR ".join(f"OLD.{state} = {literal(old)} AND NEW.{state} = {literal(new)}" for old, new in steps)
        yield TriggerSpec(
            rule=str(column.column),
            event="UPDATE",
            # IS NOT TRUE: with a NULL on either side the list is neither true nor false, and NOT would let it pass.
            condition=f"{changed(column)} AND ({listed}) IS NOT TRUE",
            words=f"{table}: {column.column} goes only from " + ", from ".join(f"{old} to {new}" for old, new in steps),
        )


def removal_refusal(model: Model, event: str) -> Iterator[TriggerSpec]:
    """Yield the refusal of DELETE or TRUNCATE, unless the rows of this table are deletable."""
    if not model.rules.deletable:
        words = f"{model._meta.db_table}: a row is part of the record and is never deleted"
        yield TriggerSpec(rule=event.lower(), event=event, words=words)


def quoted(field: Column) -> str:
    return f'"{field.column}"'


def literal(text: str) -> str:
    """Return a text as an SQL literal, for statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"


def _listed(fields: Iterable[Column]) -> str:
    return ", ".join(str(field.column) for field in fields)
