"""From ``Rules`` to refusals: what one table does not permit, in SQL over the rows OLD and NEW, and in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.db import models

from sessions_app.append_only import AppendOnlyModel

Column: TypeAlias = "models.Field[Any, Any]"
Model: TypeAlias = type[AppendOnlyModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that the rules of one table do not permit."""

    rule: str
    """Its short name, the end of the trigger's."""
    event: str
    """UPDATE, DELETE, INSERT or TRUNCATE."""
    moment: str = "BEFORE"
    """BEFORE or AFTER the event."""
    condition: str = ""
    """When it is refused; empty for always."""
    words: str
    """What the error says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One trigger, made from one refusal."""

    name: str
    table: str
    sql: str
    """The statements that make it."""

    @property
    def rule(self) -> str:
        """The short name of what it refuses."""
        return self.name.removeprefix(f"guard_{self.table}_")


def update_refusals(model: Model, changed: Callable[[Column], str]) -> Iterator[Refusal]:
    """The updates that the rules do not permit; ``changed`` is a database's SQL for "this column changes".

    :raises FieldDoesNotExist: a rule names a column that the model does not have.
    """
    table, rules, fields = model._meta.db_table, model.rules, model._meta.concrete_fields
    ruled = [model._meta.get_field(name) for name in rules.changeable]
    frozen = [field for field in fields if field not in ruled]
    yield Refusal(
        rule="frozen",
        event="UPDATE",
        condition=" OR ".join(changed(field) for field in frozen),
        words=f"{table}: {_listed(frozen)} never change after the insert",
    )
    once = [field for field in fields if field.name in rules.once]
    if once:
        yield Refusal(
            rule="once",
            event="UPDATE",
            condition=" OR ".join(f"OLD.{quoted(field)} IS NOT NULL AND {changed(field)}" for field in once),
            words=f"{table}: {_listed(once)} are set once and then keep their value",
        )
    for field in fields:
        if field.name in rules.steps:
            yield _step_refusal(table, field, rules.steps[field.name], changed(field))


def _step_refusal(table: str, field: Column, steps: Iterable[tuple[str, str]], changed: str) -> Refusal:
    state = quoted(field)
    listed = " OR ".join(f"OLD.{state} = {literal(old)} AND NEW.{state} = {literal(new)}" for old, new in steps)
    return Refusal(
        rule=str(field.column),
        event="UPDATE",
        # IS NOT TRUE: with a NULL on either side the list is neither true nor false, and NOT would let it pass.
        condition=f"{changed} AND ({listed}) IS NOT TRUE",
        words=f"{table}: {field.column} goes only from " + ", from ".join(f"{old} to {new}" for old, new in steps),
    )


def removal_refusal(model: Model, event: str) -> Iterator[Refusal]:
    """DELETE or TRUNCATE, unless the rows of this table may go."""
    if not model.rules.deletable:
        words = f"{model._meta.db_table}: a row is part of the record and is never deleted"
        yield Refusal(rule=event.lower(), event=event, words=words)


def quoted(field: Column) -> str:
    """The column's name in SQL, the same on both databases."""
    return f'"{field.column}"'


def literal(text: str) -> str:
    """A text in SQL, for statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"


def _listed(fields: Iterable[Column]) -> str:
    return ", ".join(str(field.column) for field in fields)
