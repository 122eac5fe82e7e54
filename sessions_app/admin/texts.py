"""Stored text on an inspector's page: decoded, with hidden characters marked, long ones folded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet, TextField, Value
from django.db.models.fields.json import JSONField
from django.db.models.functions import Left, Length, Replace

from mnesis_core.text import ESCAPE, decode_text
from mnesis_core.visible import Run, visible_runs

FOLD_CHARACTERS = 20_000
_ENCODED_LENGTH = 5
"""The longest that ``encode_text`` makes of one character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """A column whose text is too long for a line."""

    name: str
    label: str
    pretty: bool = False
    """JSON: show it indented, above the exact text."""
    encoded: bool = True
    """False for text that was never encoded: the canonical bodies of events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """A text as a page shows it."""

    label: str
    runs: list[Run]
    pretty: list[Run] | None = None
    """The same, indented, if it is JSON and short enough to be shown whole."""
    length: int
    """Characters of the whole text."""
    is_folded: bool
    url: str = ""
    """Where the whole text is, as a file."""

    @property
    def size(self) -> str:
        """How long it is, in words."""
        return "1 character" if self.length == 1 else f"{self.length:,} characters"


def show_text(text: str, *, label: str, length: int | None = None, pretty: bool = False, url: str = "") -> ShownText:
    """A text that is decoded already; ``length`` is that of the whole, if this is only its beginning."""
    whole = len(text) if length is None else length
    is_folded = whole > FOLD_CHARACTERS
    indented = None if is_folded or not pretty else _indented(text)
    return ShownText(
        label=label,
        runs=visible_runs(text[:FOLD_CHARACTERS]),
        pretty=None if indented in (None, text) else visible_runs(indented or ""),
        length=whole,
        is_folded=is_folded,
        url=url,
    )


def with_beginnings(rows: QuerySet[Any], columns: Sequence[TextColumn]) -> QuerySet[Any]:
    """Rows without their long texts, annotated with where each begins (``NAME_start``) and its ``NAME_length``."""
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


def show_column(row: Any, column: TextColumn, *, url: str) -> ShownText | None:
    """One long text of a row that ``with_beginnings`` loaded; ``None`` where nothing is written."""
    if isinstance(row._meta.get_field(column.name), JSONField):
        return _show_json(getattr(row, column.name), column, url)
    start = getattr(row, f"{column.name}_start")
    if not start:
        return None
    length = getattr(row, f"{column.name}_length")
    if column.encoded:
        start = decode_text(start)
        length -= (_ENCODED_LENGTH - 1) * getattr(row, f"{column.name}_escapes")
    return show_text(start, label=column.label, length=length, pretty=column.pretty, url=url)


def whole_text(value: Any, column: TextColumn) -> str:
    """The exact text of a column, or its value as indented JSON."""
    if not isinstance(value, str):
        value = _dump(value)
    return decode_text(value) if column.encoded else value


def _show_json(value: Any, column: TextColumn, url: str) -> ShownText | None:
    if value in (None, {}, []):
        return None
    return show_text(decode_text(_dump(value)), label=column.label, url=url)


def _indented(text: str) -> str | None:
    try:
        return _dump(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _dump(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
