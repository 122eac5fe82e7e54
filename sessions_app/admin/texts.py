"""Stored values on a page of the admin: decoded, with hidden characters marked, long texts folded."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import F, Field, ForeignKey, Model, QuerySet, TextField, Value
from django.db.models.fields.json import JSONField
from django.db.models.functions import Left, Length, Replace
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from mnesis_core.text import ESCAPE, decode_text, visible_runs
from sessions_app.database.fields import EncodedField

FOLD_CHARACTERS = 20_000
EMPTY = "—"
# The longest that encode_text makes of one character.
_ENCODED_LENGTH = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    name: str
    label: str
    pretty: bool = False
    """Show JSON indented, above the exact text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    label: str
    exact: SafeString
    pretty: SafeString | None = None
    """The same, indented, if it is JSON and short enough to be shown whole."""
    length: int
    """Characters of the whole text."""
    url: str = ""
    """The whole text as a file."""

    @property
    def is_folded(self) -> bool:
        return self.length > FOLD_CHARACTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    label: str
    value: SafeString
    url: str = ""
    name: str = ""
    """The column, for the style sheet."""


def marked(text: str) -> SafeString:
    """Return decoded text as HTML in which a mark stands for each hidden character."""
    mark = '<mark class="hidden-character" title="{}">{}</mark>'
    runs = visible_runs(text)
    return format_html_join("", "{}", ((format_html(mark, r.code, r.text) if r.is_mark else r.text,) for r in runs))


def show_text(text: str, *, label: str, length: int | None = None, pretty: bool = False, url: str = "") -> ShownText:
    """Return a decoded text as it is shown; ``length`` is that of the whole if this is only its beginning."""
    whole = len(text) if length is None else length
    indented = _indented(text) if pretty and whole <= FOLD_CHARACTERS else None
    return ShownText(
        label=label,
        exact=marked(text[:FOLD_CHARACTERS]),
        pretty=None if indented in (None, text) else marked(indented or ""),
        length=whole,
        url=url,
    )


def with_beginnings(rows: QuerySet[Any], columns: Sequence[TextColumn]) -> QuerySet[Any]:
    """Return rows without their long texts, annotated with where each begins (``NAME_start``) and its ``NAME_length``."""
    for column in columns:
        if isinstance(rows.model._meta.get_field(column.name), JSONField):
            continue
        without_escapes = Replace(F(column.name), Value(ESCAPE), Value(""), output_field=TextField())
        rows = rows.defer(column.name).annotate(
            **{
                f"{column.name}_start": Left(column.name, FOLD_CHARACTERS * _ENCODED_LENGTH),
                f"{column.name}_length": Length(column.name),
                f"{column.name}_escapes": Length(column.name) - Length(without_escapes),
            }
        )
    return rows


def show_column(row: Any, column: TextColumn) -> ShownText | None:
    """Return one long text of a row that ``with_beginnings`` loaded; ``None`` where nothing is written."""
    url = admin_url(row, "text", quote(row.pk), column.name)
    if isinstance(row._meta.get_field(column.name), JSONField):
        value = getattr(row, column.name)
        return show_text(whole_text(value), label=column.label, url=url) if value else None
    start = getattr(row, f"{column.name}_start")
    if not start:
        return None
    length = getattr(row, f"{column.name}_length")
    if isinstance(row._meta.get_field(column.name), EncodedField):
        start = decode_text(start)
        length -= (_ENCODED_LENGTH - 1) * getattr(row, f"{column.name}_escapes")
    return show_text(start, label=column.label, length=length, pretty=column.pretty, url=url)


def show_columns(row: Any, columns: Sequence[TextColumn]) -> list[ShownText]:
    return [text for text in (show_column(row, column) for column in columns) if text]


def whole_text(value: Any) -> str:
    """Return the exact text of a column, or its value as indented JSON."""
    return value if isinstance(value, str) else _dump(value)


def facts_of(row: Model, *, hidden: Collection[str]) -> list[Fact]:
    """Return every column but the hidden ones, so that a new column is shown by default."""
    return [_fact(row, column) for column in row._meta.concrete_fields if column.name not in hidden]


def _fact(row: Model, column: Field[Any, Any]) -> Fact:
    value, url = getattr(row, column.attname), ""
    if isinstance(column, ForeignKey) and value is not None:
        url = record_url(column.related_model, value)
        # A record is named by its id, a person by the user name.
        value = value if isinstance(value, str) else getattr(row, column.name)
    label = str(column.verbose_name)
    return Fact(
        label=label[:1].upper() + label[1:], value=marked(_format(value, column.name)), url=url, name=column.name
    )


def _format(value: Any, name: str) -> str:
    if value is None or value == "":
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d} UTC"
    return f"{value:,}" if isinstance(value, int) and name != "id" else str(value)


def admin_url(model: Any, view: str, *values: Any, **query: Any) -> str:
    """Return the address of a view of a table's admin; empty for a table that has none."""
    opts = model._meta
    if not admin.site.is_registered(model if isinstance(model, type) else type(model)):
        return ""
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_{view}", args=values, query=query or None)


def record_url(model: Any, pk: Any) -> str:
    return admin_url(model, "change", quote(pk))


def list_url(model: Any, **lookups: Any) -> str:
    return admin_url(model, "changelist", **lookups)


def _indented(text: str) -> str | None:
    try:
        return _dump(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _dump(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
