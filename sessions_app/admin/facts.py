"""A row's columns as a list of facts: every column there is, so that a new one is shown without asking."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import models
from django.db.models import Field, ForeignKey
from django.urls import reverse

from mnesis_core.text import decode_text
from mnesis_core.visible import Run, visible_runs

EMPTY = "—"
USAGE = ("tokens_input", "tokens_output", "tokens_cache_read", "tokens_cache_write", "cost_micros")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A label and a value, perhaps with a link."""

    label: str
    runs: list[Run]
    url: str = ""
    name: str = ""
    """The column, for the style sheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Somewhere to go from here."""

    label: str
    url: str
    count: int | None = None


def facts_of(row: models.Model, *, hidden: Collection[str]) -> list[Fact]:
    """Every column of a row but the hidden ones, in the order of the table."""
    columns = [column for column in row._meta.concrete_fields if column.name not in hidden]
    return [fact_of(row, column) for column in columns]


def fact_of(row: models.Model, column: Field[Any, Any]) -> Fact:
    """One column of a row; a foreign key leads to the row it names."""
    value = getattr(row, column.attname)
    label = str(column.verbose_name)
    text = label[:1].upper() + label[1:]
    if not isinstance(column, ForeignKey) or value is None:
        return Fact(label=text, runs=visible_runs(show_value(value, column.name)), name=column.name)
    url = record_url(column.related_model, value)
    # A record's own name is its id; a person's is a name.
    name = value if isinstance(value, str) else getattr(row, column.name)
    return Fact(label=text, runs=visible_runs(str(name)), url=url, name=column.name)


def usage_facts(row: Any) -> list[Fact]:
    """Tokens and cost of a turn, message or call, and who said so."""
    source = Fact(label="Source", runs=visible_runs(show_value(row.usage_source)), name="usage_source")
    names = [name for name in USAGE if getattr(row, name) is not None]
    columns = [row._meta.get_field(name) for name in names]
    return [*(fact_of(row, column) for column in columns), source] if names else []


def show_value(value: Any, name: str = "") -> str:
    """A value of a column as text."""
    if value is None or value == "":
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return show_time(value)
    if isinstance(value, int):
        return str(value) if name == "id" else f"{value:,}"
    return decode_text(str(value))


def show_time(value: datetime | None) -> str:
    """A time in UTC, to the millisecond."""
    if value is None:
        return EMPTY
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d} UTC"


def record_url(model: Any, pk: Any) -> str:
    """The address of a row's page in the inspector, or nothing if it has none."""
    if not admin.site.is_registered(model):
        return ""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[quote(pk)])
