"""Inboxes, runs of operators and tool servers in the admin."""

from __future__ import annotations

import shlex
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from agents_app.models import InboxMessage, McpServer, OperatorItem, OperatorRun, OperatorTry
from agents_app.queries import server_of
from mnesis_core.maps.values import ErrorKind, ItemState, OperatorKind, RunState
from mnesis_core.records import is_id
from mnesis_core.text import excerpt
from mnesis_core.turns.inbox import MessageKind
from sessions_app.admin.read_only import (
    Fact,
    ReadOnlyAdmin,
    TextColumn,
    column,
    fixed_filter,
    list_url,
    marked,
    presence_filter,
)
from sessions_app.admin.records import PortalAdmin, set_or_not
from sessions_app.record.timeline_queries import SessionHeading, load_heading

ERROR_KINDS = fixed_filter("error_kind", gettext_noop("kind of error"), tuple(ErrorKind))


@admin.register(InboxMessage)
class InboxMessageAdmin(ReadOnlyAdmin):
    list_display = ("shown_id", "in_session", "sender_id", "kind", "hops", "turn_id", "created")
    list_filter = (
        presence_filter("turn", gettext_noop("taken")),
        fixed_filter("kind", gettext_noop("kind"), tuple(MessageKind)),
    )
    link_lookups = ("session", "turn")
    session_ordering = ("seq",)
    texts = (TextColumn(name="text", label=gettext_noop("Text")),)


@admin.register(OperatorRun)
class OperatorRunAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "kind", "state", "reason", "item_count", "completed_count", "failed_count", "try_count",
        "cost_micros", "created",
    )  # fmt: skip
    list_filter = (
        fixed_filter("state", gettext_noop("state"), tuple(RunState)),
        fixed_filter("kind", gettext_noop("kind"), tuple(OperatorKind)),
    )
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="spec", label=gettext_noop("What was asked"), pretty=True),
        TextColumn(name="error_message", label=gettext_noop("Error")),
    )

    def page(self, request: HttpRequest, row: OperatorRun) -> dict[str, Any]:
        links = [
            (gettext("Its items"), list_url(OperatorItem, run=row.id), row.item_count),
            (gettext("Items that failed"), list_url(OperatorItem, run=row.id, state=ItemState.FAILED), None),
            (gettext("Attempts"), list_url(OperatorTry, run=row.id), row.try_count),
        ]
        files = (("Its input", row.input_file_id), ("Its output", row.output_file_id))
        page = "admin:files_app_filereference_change"
        return {"links": [*links, *((label, reverse(page, args=[quote(id)]), None) for label, id in files if id)]}


@admin.register(OperatorItem)
class OperatorItemAdmin(ReadOnlyAdmin):
    list_display = (
        "number", "run_id", "state", "attempts", "error_kind", "tokens_input", "tokens_output", "cost_micros",
        "duration_ms",
    )  # fmt: skip
    list_filter = (fixed_filter("state", gettext_noop("state"), tuple(ItemState)), ERROR_KINDS)
    search_help_text = gettext_lazy("The id of a run")
    related = ()
    link_lookups = ("run", "number")
    texts = (TextColumn(name="error", label=gettext_noop("Error")),)

    session_ordering, ordered_within = ("number",), "run"

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        return rows.filter(run_id=term) if is_id(term) else rows.none()

    title = gettext_noop("Item {row.number} · {row.state}")

    def heading_of(self, row: OperatorItem) -> SessionHeading | None:
        session_id = OperatorRun.objects.filter(pk=row.run_id).values_list("session_id", flat=True).first()
        return load_heading(session_id or "")

    def page(self, request: HttpRequest, row: OperatorItem) -> dict[str, Any]:
        links = [(gettext("Attempts"), list_url(OperatorTry, run=row.run_id, item=row.number), None)]
        if row.child_session_id:
            url = reverse("admin:sessions_app_session_change", args=[quote(row.child_session_id)])
            links.append((gettext("Its session"), url, None))
        return {"links": links}


@admin.register(OperatorTry)
class OperatorTryAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "run_id", "item", "number", "accepted", "error_kind", "tokens_input", "tokens_output",
        "cost_micros", "duration_ms", "created",
    )  # fmt: skip
    list_filter = ("accepted", ERROR_KINDS)
    link_lookups = ("session", "run", "item")
    texts = (
        TextColumn(name="output", label=gettext_noop("Answer")),
        TextColumn(name="error", label=gettext_noop("Error")),
    )

    session_ordering, ordered_within = ("item", "number"), "run"
    title = gettext_noop("Attempt {row.number} at item {row.item}")


@admin.register(McpServer)
class McpServerAdmin(PortalAdmin):
    portal, name_column, removing = "server", "name", "change"
    list_display = (
        "name", "place", "count", "state", "needs_approval", "trust_annotations", "created_at", "removed_at",
    )  # fmt: skip
    list_filter = (presence_filter("removed_at", gettext_noop("removed")),)
    search_help_text = gettext_lazy("A name")
    ordering = (F("removed_at").desc(nulls_first=True), "name")  # type: ignore[assignment]
    hidden = ("argv", "secrets", "listing", "read_only_tools", "problem")
    place = column(gettext_noop("Place"), lambda row: excerpt(row.url or shlex.join(row.argv), 80))
    count = column(gettext_noop("Tools"), lambda row: len(server_of(row).listing.tools))
    state = column(gettext_noop("State"), lambda row: _state(row))

    def facts(self, row: McpServer) -> list[Fact]:
        server = server_of(row)
        shown = {"Program": shlex.join(row.argv) or "none", "State": _state(row)}
        shown["Variables"] = set_or_not(row.secrets.values())
        said = [Fact(label=label, value=marked(text)) for label, text in shown.items()]
        tools = [
            (tool.spec.name, " read-only: " if server.is_read_only(tool) else " ", excerpt(tool.spec.description, 400))
            for tool in server.listing.tools
        ]
        left_out = [("", "", excerpt(sentence, 200)) for sentence in server.listing.left_out]
        for label, lines in (("Its tools", tools), ("Left out", left_out)):
            value = format_html_join("", "<p><code>{}</code>{}{}</p>", lines) or marked("none")
            said.append(Fact(label=label, value=value, name="tools"))
        return [*super().facts(row), *said]

    def page(self, request: HttpRequest, row: McpServer) -> dict[str, Any]:
        return super().page(request, row) if row.removed_at is None else {}


def _state(row: McpServer) -> str:
    if row.problem:
        since = f" since {row.unreachable_since:%Y-%m-%d %H:%M}" if row.unreachable_since else ""
        return f"unreachable{since}: {excerpt(server_of(row).problem, 300)}"
    return f"listed {row.listed_at:%Y-%m-%d %H:%M}" if row.listed_at else "not listed yet"
