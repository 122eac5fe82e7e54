"""What an address of *Observe* asks for."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse

from audit_app.observe.columns import USUAL, chosen_columns
from mnesis_core.text import printable


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
