"""What an address of *Observe* asks for, and the columns: what a table and a CSV file show of a session."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from mnesis_core.search.observation import term_text
from mnesis_core.text import printable, write_time
from sessions_app.llm.usage import csv_cell
from sessions_app.pages.formats import format_moment, format_money, format_number
from sessions_app.pages.markdown import show_invisible
from sessions_app.record.observed import ObservedSession

Value = str | int | datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    label: str | Promise
    value: Callable[[ObservedSession], Value]
    field: str = ""  # of the query bar, for a value that one click narrows the list to
    is_number: bool = False
    is_money: bool = False
    shown: Callable[[str], str] = show_invisible  # on a page; a word of ours is shown in its language
    is_usual: bool = False  # whether it is shown unless others are chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    label: str | Promise  # of its column
    text: str
    term: str = ""
    time: datetime | None = None
    is_number: bool = False


IMPORTED = "import:"
ORIGINS = {
    "chat": pgettext_lazy("origin of a session", "chat"),
    "gateway": pgettext_lazy("origin of a session", "gateway"),
    "fork": pgettext_lazy("origin of a session", "fork"),
    "task": pgettext_lazy("origin of a session", "task"),
}
"""The others are names: those of the protocols of other programs."""


def show_origin(origin: str) -> str:
    """Return how a session began in the page's language; the name that finds it stays in the term of the query."""
    if origin.startswith(IMPORTED):
        imported = pgettext("origin of a session", "import:%(format)s")
        return imported % {"format": show_invisible(origin.removeprefix(IMPORTED))}
    return str(ORIGINS.get(origin) or show_invisible(origin))


COLUMNS = {
    "person": Column(label=_("Person"), value=lambda row: row.person, field="person", is_usual=True),
    "organisation": Column(label=_("Organisation"), value=lambda row: row.organisation, field="organisation"),
    "model": Column(label=_("Model"), value=lambda row: row.model, field="model", is_usual=True),
    "state": Column(label=_("State"), value=lambda row: row.state, field="state", shown=gettext, is_usual=True),
    "origin": Column(label=_("Origin"), value=lambda row: row.origin, field="origin", shown=show_origin),
    "messages": Column(label=_("Messages"), value=lambda row: row.messages, is_number=True, is_usual=True),
    "turns": Column(label=_("Turns"), value=lambda row: row.turns, is_number=True),
    "calls": Column(label=_("Calls"), value=lambda row: row.calls, is_number=True),
    "tokens": Column(label=_("Tokens"), value=lambda row: row.tokens, is_number=True, is_usual=True),
    "cost": Column(
        label=_("Cost"), value=lambda row: row.cost_micros, is_number=True, is_money=True, is_usual=True
    ),
    "errors": Column(label=_("Errors"), value=lambda row: row.errors, is_number=True, is_usual=True),
    "compactions": Column(label=_("Compactions"), value=lambda row: row.compactions, is_number=True, is_usual=True),
    "active": Column(label=_("Last active"), value=lambda row: row.updated_at, is_usual=True),
    "created": Column(label=_("Created"), value=lambda row: row.created_at),
    "id": Column(label=_("Id"), value=lambda row: row.id),
}  # fmt: skip
USUAL = tuple(name for name, column in COLUMNS.items() if column.is_usual)


def chosen_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the known ones of these columns in the order of the table, or without any the usual ones."""
    wanted = set(names)
    return tuple(name for name in COLUMNS if name in wanted) or USUAL


def cell_of(column: Column, row: ObservedSession) -> Cell:
    value = column.value(row)
    if isinstance(value, datetime):
        return Cell(label=column.label, text=format_moment(value), time=value)
    if isinstance(value, int):
        text = format_money(value) if column.is_money else format_number(value)
        return Cell(label=column.label, text=text, is_number=True)
    term = term_text(column.field, value) if column.field else ""
    return Cell(label=column.label, text=column.shown(value), term=term)


def exported(row: ObservedSession) -> list[str | int]:
    """Return a row of a CSV file: every column, money in millionths, times in UTC."""
    values = [column.value(row) for name, column in COLUMNS.items() if name != "id"]
    return [row.id, csv_cell(row.title), *map(_plain, values)]


def _plain(value: Value) -> str | int:
    if isinstance(value, datetime):
        return write_time(value)
    return csv_cell(value) if isinstance(value, str) else value


def table_of(rows: Iterable[Sequence[str | int]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


# What an address of *Observe* asks for.


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    text: str
    columns: tuple[str, ...]
    cursor: str = ""

    @property
    def chosen(self) -> tuple[str, ...]:
        """The columns as the address names them: none for the usual ones."""
        return self.columns if self.columns != USUAL else ()

    def query(self, text: str | None = None) -> str:
        """Return the query of the same page, or of that for another text."""
        text = self.text if text is None else text
        return urlencode([("q", text)] * bool(text) + [("column", name) for name in self.chosen])

    @property
    def address(self) -> str:
        return f"{reverse('observe')}?{query}" if (query := self.query()) else reverse("observe")


def read_asked(values: QueryDict) -> Asked:
    return Asked(
        text=printable(values.get("q", "").strip()),
        columns=chosen_columns(values.getlist("column")),
        cursor=values.get("cursor", ""),
    )
