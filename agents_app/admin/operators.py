"""Runs of operators, their items, and every try at one, to be looked at."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from agents_app.models import OperatorItem, OperatorRun, OperatorTry
from mnesis_core.ids import is_id
from mnesis_core.operators.values import ErrorKind, ItemState, OperatorKind, RunState
from mnesis_core.text import encode_text
from sessions_app.admin.facts import Link
from sessions_app.admin.filters import fixed_filter
from sessions_app.admin.read_only import SEARCH_LENGTH, ReadOnlyAdmin, list_url
from sessions_app.admin.texts import TextColumn
from sessions_app.inspect_queries import SessionHeading, load_heading


@admin.register(OperatorRun)
class OperatorRunAdmin(ReadOnlyAdmin):
    """Runs: what was asked, how far each is, what it took."""

    list_display = (
        "shown_id", "in_session", "kind", "state", "reason", "item_count", "completed_count", "failed_count", "try_count",
        "cost_micros", "created",
    )  # fmt: skip
    list_filter = (fixed_filter("state", "state", tuple(RunState)), fixed_filter("kind", "kind", tuple(OperatorKind)))
    related = ("session",)
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="spec", label="What was asked", pretty=True),
        TextColumn(name="error_message", label="Error"),
    )

    def page(self, request: HttpRequest, row: OperatorRun) -> dict[str, Any]:
        """Where its items and its files are."""
        links = [
            Link(label="Its items", url=list_url(OperatorItem, run=row.id), count=row.item_count),
            Link(label="Items that failed", url=list_url(OperatorItem, run=row.id, state=ItemState.FAILED)),
            Link(label="What was tried", url=list_url(OperatorTry, run=row.id), count=row.try_count),
            Link(label="Its input", url=_file_url(row.input_file_id)),
        ]
        if row.output_file_id:
            links.append(Link(label="Its output", url=_file_url(row.output_file_id)))
        return {"links": links}


@admin.register(OperatorItem)
class OperatorItemAdmin(ReadOnlyAdmin):
    """Items: one line of an input each."""

    list_display = (
        "number", "run_id", "state", "attempts", "error_kind", "tokens_input", "tokens_output", "cost_micros",
        "duration_ms",
    )  # fmt: skip
    list_filter = (
        fixed_filter("state", "state", tuple(ItemState)),
        fixed_filter("error_kind", "kind of error", tuple(ErrorKind)),
    )
    search_help_text = "The id of a run"
    link_lookups = ("run", "number")
    texts = (TextColumn(name="error", label="Error"),)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Of one run in the order of the input."""
        return ("number",) if "run" in request.GET else self.ordering

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """The items of the run of this id."""
        term = encode_text(search_term.strip()[:SEARCH_LENGTH])
        return (queryset.filter(run_id=term) if is_id(term) else queryset.none()) if term else queryset, False

    def page_title(self, row: OperatorItem) -> str:
        """Its place and its state."""
        return f"Item {row.number} · {row.state}"

    def heading_of(self, row: OperatorItem) -> SessionHeading | None:
        """That of its run's session."""
        session_id = OperatorRun.objects.filter(pk=row.run_id).values_list("session_id", flat=True).first()
        return load_heading(session_id or "")

    def page(self, request: HttpRequest, row: OperatorItem) -> dict[str, Any]:
        """What was tried, and the session of its sub-agent."""
        links = [Link(label="What was tried", url=list_url(OperatorTry, run=row.run_id, item=row.number))]
        if row.child_session_id:
            url = reverse("admin:sessions_app_session_change", args=[quote(row.child_session_id)])
            links.append(Link(label="Its session", url=url))
        return {"links": links}


@admin.register(OperatorTry)
class OperatorTryAdmin(ReadOnlyAdmin):
    """Tries, the rejected ones included."""

    list_display = (
        "shown_id", "in_session", "run_id", "item", "number", "accepted", "error_kind", "tokens_input", "tokens_output",
        "cost_micros", "duration_ms", "created",
    )  # fmt: skip
    list_filter = ("accepted", fixed_filter("error_kind", "kind of error", tuple(ErrorKind)))
    related = ("session",)
    link_lookups = ("session", "run", "item")
    texts = (TextColumn(name="output", label="Answer"), TextColumn(name="error", label="Error"))

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Of one run item by item."""
        return ("item", "number") if "run" in request.GET else self.ordering

    def page_title(self, row: OperatorTry) -> str:
        """Which try at which item."""
        return f"Try {row.number} at item {row.item}"


def _file_url(file_id: str) -> str:
    return reverse("admin:files_app_filereference_change", args=[quote(file_id)])
