"""Servers of tools: attached, changed, asked again and removed."""

from __future__ import annotations

import os
import shlex
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join

from agents_app import store
from agents_app.attaching import list_again
from agents_app.models import McpServer
from agents_app.queries import server_of
from agents_app.server_forms import McpServerForm
from mnesis_core.attached import AttachedServer
from mnesis_core.errors import MnesisError
from mnesis_core.visible import excerpt
from sessions_app.admin.audience import AUDIENCE, AudienceAdmin
from sessions_app.admin.filters import presence_filter
from sessions_app.database import waiting_for


@admin.register(McpServer)
class McpServerAdmin(AudienceAdmin):
    """The servers. A change attaches another row in the old one's place; what was removed can only be looked at."""

    form = McpServerForm
    fields = (
        "name", "program", "url", "secrets", "timeout_seconds", "needs_approval", "trust_annotations", *AUDIENCE,
        "variables", "state", "tools", "left_out", "created_at", "removed_at",
    )  # fmt: skip
    readonly_fields = ("variables", "state", "tools", "left_out", "created_at", "removed_at")
    list_display = (
        "name",
        "place",
        "count",
        "state",
        "needs_approval",
        "trust_annotations",
        "created_at",
        "removed_at",
    )
    list_filter = (presence_filter("removed_at", "removed"),)
    ordering = (F("removed_at").desc(nulls_first=True), "name")
    actions = ("ask_again", "remove")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: a removed server stays known."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What was removed does not change any more."""
        return super().has_change_permission(request, obj) and (obj is None or obj.removed_at is None)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The name of a server that is attached: another name would be another server."""
        return (*self.readonly_fields, "name") if obj else self.readonly_fields

    @admin.display(description="Place")
    def place(self, row: McpServer) -> str:
        """The address, or the program."""
        return excerpt(row.url or shlex.join(row.argv), 80)

    @admin.display(description="Program")
    def program(self, row: McpServer) -> str:
        """As a shell would take it, where it can only be looked at."""
        return shlex.join(row.argv) or "none"

    @admin.display(description="Tools")
    def count(self, row: McpServer) -> int:
        """How many are offered."""
        return len(server_of(row).listing.tools)

    @admin.display(description="State")
    def state(self, row: McpServer) -> str:
        """Whether it could be asked."""
        if row.problem:
            since = f" since {row.unreachable_since:%Y-%m-%d %H:%M}" if row.unreachable_since else ""
            return f"unreachable{since}: {excerpt(server_of(row).problem, 300)}"
        return f"asked {row.listed_at:%Y-%m-%d %H:%M}" if row.listed_at else "not asked yet"

    @admin.display(description="Variables")
    def variables(self, row: McpServer) -> str:
        """The variables that hold its secrets, and whether they are set in this process. Never their values."""
        said = [f"{name} ({'set' if os.environ.get(name) else 'not set'})" for name in row.secrets.values()]
        return ", ".join(said) or "none"

    @admin.display(description="Its tools")
    def tools(self, row: McpServer) -> str:
        """What the model reads of each, and whether it is known to change nothing."""
        server = server_of(row)
        rows = [
            (tool.spec.name, " read-only: " if server.is_read_only(tool) else " ", excerpt(tool.spec.description, 400))
            for tool in server.listing.tools
        ]
        return format_html_join("", "<p><code>{}</code>{}{}</p>", rows) or "none"

    @admin.display(description="Left out")
    def left_out(self, row: McpServer) -> str:
        """What was not taken of its list, and why."""
        sentences = [(excerpt(sentence, 200),) for sentence in server_of(row).listing.left_out]
        return format_html_join("", "<p>{}</p>", sentences) or "nothing"

    def save_model(self, request: HttpRequest, obj: McpServer, form: Any, change: bool) -> None:
        """Write it through the store, as the command does, and ask for its tools when that is committed."""
        obj.id = store.enter_server(form.cleaned_data["address"], audience=form.chosen_audience)
        # Not here: the form is saved in a transaction, which would hold up everybody while a server thinks.
        transaction.on_commit(partial(self._ask, request, form.cleaned_data["address"].name))

    @admin.action(description="Ask for their tools again", permissions=["change"])
    def ask_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """What they answer is offered from now on."""
        for name in queryset.filter(removed_at__isnull=True).values_list("name", flat=True):
            self._ask(request, name)

    @admin.action(description="Remove", permissions=["change"])
    def remove(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """No session is offered their tools from the next turn on."""
        for name in queryset.filter(removed_at__isnull=True).values_list("name", flat=True):
            store.remove_server(name)
            messages.success(
                request, f"The server {name} is removed: no session is offered its tools from the next turn on."
            )

    def _ask(self, request: HttpRequest, name: str) -> None:
        try:
            server: AttachedServer = waiting_for(list_again)(name)
        except MnesisError as error:
            messages.warning(request, f"The server {name} cannot be asked for its tools: {excerpt(error.message, 300)}")
            return
        left_out = f", {len(server.listing.left_out)} left out" if server.listing.left_out else ""
        messages.success(request, f"The server {name} brings {len(server.listing.tools)} tools{left_out}.")
