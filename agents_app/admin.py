"""Servers of tools in the admin: attached, changed, asked again and removed; and inboxes, to be looked at."""

from __future__ import annotations

import os
import shlex
from functools import partial
from typing import Any, ClassVar

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join

from agents_app import store
from agents_app.attaching import list_again
from agents_app.models import InboxMessage, McpServer
from agents_app.queries import list_servers, server_of
from mnesis_core.attached import AttachedServer, ServerAddress, check_address
from mnesis_core.errors import InvalidRequest, MnesisError
from mnesis_core.inbox import MessageKind
from mnesis_core.visible import excerpt
from sessions_app.admin.filters import fixed_filter, presence_filter
from sessions_app.admin.read_only import ModelAdmin, ReadOnlyAdmin
from sessions_app.admin.texts import TextColumn

FIELD_OF = {"argv": "program"}
"""Where the form calls a value by another name than the address does."""


class McpServerForm(forms.ModelForm):  # type: ignore[type-arg]
    """How to reach a server, with the mistakes caught that would otherwise show at its first call."""

    program = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"size": 80}),
        help_text="The program that speaks MCP on standard input and output, with its arguments as a shell would take "
        "them: npx -y @scope/server /folder. It is started here, with the rights of this site. No shell is involved.",
    )
    secrets = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
        help_text="One a line, NAME=VARIABLE: the program's environment variable NAME (over HTTP the header NAME, such as "
        "Authorization) gets the value that our environment variable VARIABLE has. Values are never stored.",
    )

    class Meta:
        model = McpServer
        fields = ("name", "url", "timeout_seconds", "needs_approval", "read_only")
        help_texts: ClassVar = {
            "name": "Lower-case letters, digits and hyphens. Its tools are called NAME__tool.",
            "url": "Of a server over streamable HTTP. Give this or a program.",
            "timeout_seconds": "The longest that one call may take.",
            "needs_approval": "A person is asked before each call.",
            "read_only": "Its tools change nothing. Say so only if you know it: the server is not asked.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        self.initial.setdefault("timeout_seconds", 60.0)
        self.initial["program"] = shlex.join(row.argv)
        self.initial["secrets"] = "\n".join(f"{name}={variable}" for name, variable in row.secrets.items())
        if "url" in self.fields:
            self.fields["url"].required = False

    def clean_name(self) -> str:
        """A server that is attached is changed, not added again."""
        name = str(self.cleaned_data["name"])
        if list_servers([name]):
            raise forms.ValidationError("A server of this name is attached already. Change that one, or remove it.")
        return name

    def clean(self) -> dict[str, Any]:
        """The same rules as everywhere."""
        values = super().clean() or {}
        if self.errors:
            return values
        try:
            values["address"] = self._address(values)
            check_address(values["address"])
        except InvalidRequest as error:
            field = FIELD_OF.get(error.details["field"], error.details["field"])
            self.add_error(field if field in self.fields else None, error.message)
        return values

    def _address(self, values: dict[str, Any]) -> ServerAddress:
        try:
            argv = tuple(shlex.split(values["program"]))
        except ValueError as error:
            raise InvalidRequest(f"the program cannot be read: {error}", field="argv") from None
        pairs = [line.strip().partition("=") for line in values["secrets"].splitlines() if line.strip()]
        return ServerAddress(
            name=values.get("name") or self.instance.name,
            argv=argv,
            url=values["url"],
            secrets={name: variable for name, _, variable in pairs},
            timeout_seconds=values["timeout_seconds"],
            needs_approval=values["needs_approval"],
            read_only=values["read_only"],
        )


@admin.register(McpServer)
class McpServerAdmin(ModelAdmin):
    """The servers. A change attaches another row in the old one's place; what was removed can only be looked at."""

    form = McpServerForm
    fields = (
        "name", "program", "url", "secrets", "timeout_seconds", "needs_approval", "read_only",
        "variables", "state", "tools", "left_out", "created_at", "removed_at",
    )  # fmt: skip
    readonly_fields = ("variables", "state", "tools", "left_out", "created_at", "removed_at")
    list_display = ("name", "place", "count", "state", "needs_approval", "read_only", "created_at", "removed_at")
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
            since = f" since {row.unreachable_since:%d %b %Y %H:%M}" if row.unreachable_since else ""
            return f"unreachable{since}: {excerpt(server_of(row).problem, 300)}"
        return f"asked {row.listed_at:%d %b %Y %H:%M}" if row.listed_at else "not asked yet"

    @admin.display(description="Variables")
    def variables(self, row: McpServer) -> str:
        """The variables that hold its secrets, and whether they are set in this process. Never their values."""
        said = [f"{name} ({'set' if os.environ.get(name) else 'not set'})" for name in row.secrets.values()]
        return ", ".join(said) or "none"

    @admin.display(description="Its tools")
    def tools(self, row: McpServer) -> str:
        """What the model reads of each."""
        listing = server_of(row).listing
        rows = [(tool.spec.name, excerpt(tool.spec.description, 400)) for tool in listing.tools]
        return format_html_join("", "<p><code>{}</code> {}</p>", rows) or "none"

    @admin.display(description="Left out")
    def left_out(self, row: McpServer) -> str:
        """What was not taken of its list, and why."""
        sentences = [(excerpt(sentence, 200),) for sentence in server_of(row).listing.left_out]
        return format_html_join("", "<p>{}</p>", sentences) or "nothing"

    def save_model(self, request: HttpRequest, obj: McpServer, form: Any, change: bool) -> None:
        """Write it through the store, as the command does, and ask for its tools when that is committed."""
        obj.id = store.put_server(form.cleaned_data["address"])
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
            server: AttachedServer = async_to_sync(list_again)(name)
        except MnesisError as error:
            messages.warning(request, f"The server {name} cannot be asked for its tools: {excerpt(error.message, 300)}")
            return
        left_out = f", {len(server.listing.left_out)} left out" if server.listing.left_out else ""
        messages.success(request, f"The server {name} brings {len(server.listing.tools)} tools{left_out}.")


@admin.register(InboxMessage)
class InboxMessageAdmin(ReadOnlyAdmin):
    """Messages between sessions, and to them."""

    list_display = ("shown_id", "in_session", "sender_id", "kind", "hops", "turn_id", "created")
    list_filter = (presence_filter("turn", "taken"), fixed_filter("kind", "kind", tuple(MessageKind)))
    related = ("session",)
    link_lookups = ("session", "turn")
    session_ordering = ("seq",)
    texts = (TextColumn(name="text", label="Text"),)
