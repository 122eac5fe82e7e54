"""Attach MCP servers: the use cases of an administrator, on a page or at the terminal, and the page's form."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Collection
from typing import Any, ClassVar, TextIO

from django import forms

from agents_app import store
from agents_app.models import McpServer
from agents_app.queries import audiences_of, list_servers, load_server
from agents_app.store import check_entered
from agents_app.tools.mcp.tools import ask_for_tools
from mnesis_core.errors import InvalidRequest, MnesisError, NotListed
from mnesis_core.turns.mcp_servers import AttachedServer, ServerAddress, check_address, take_listing
from sessions_app.catalogue.forms import AudienceFields, audience_initial, offer_programs, say_addresses, say_variables
from sessions_app.conf import host_lists
from sessions_app.database.threads import db
from sessions_app.pages.permissions import forget_refused


async def attach_server(
    address: ServerAddress,
    *,
    put: Callable[[ServerAddress], str] = store.put_server,
    errors: TextIO | int = subprocess.DEVNULL,
) -> AttachedServer:
    """Attach a server, in place of the one with this name, and ask it for its tools.

    A server that cannot be asked is attached all the same, without tools; its ``problem`` says why.

    :param put: writes it; ``store.enter_server`` also writes who may be offered its tools
    :raises InvalidRequest: a value is missing or out of its bounds.
    """
    await db(put, address)
    try:
        return await list_again(address.name, errors=errors)
    except MnesisError:
        return await db(load_server, address.name)


def mark_read_only(name: str, tools: Collection[str]) -> AttachedServer:
    """Mark the tools of a server that change nothing, as they are listed now, and remove the mark from all others.

    :param tools: the server's own names, or ours (``server__tool``)
    :raises ToolServerNotFound: none that is attached has this name.
    :raises InvalidRequest: it has listed no such tool.
    """
    server = load_server(name)
    known = {key: tool for tool in server.listing.tools for key in (tool.remote_name, tool.spec.name)}
    unknown = [tool for tool in tools if tool not in known]
    if unknown:
        raise InvalidRequest(
            f"{name} has listed no tool called {', '.join(unknown)}; 'manage.py mcp_server tools NAME' shows them",
            field="tools",
        )
    store.mark_read_only(server.id, {known[tool].remote_name: known[tool].digest for tool in tools})
    return load_server(name)


async def list_again(name: str, *, errors: TextIO | int = subprocess.DEVNULL) -> AttachedServer:
    """Ask an attached server for its tools, and offer what it answers from now on.

    Only this changes what sessions are offered: what the model reads of a tool, an administrator could read before.

    :raises ToolServerNotFound: none that is attached has this name.
    :raises ToolServerUnreachable: it cannot be asked; what it had listed before is still offered.
    :raises ToolFailed: it answers with an error, or with what is no list.
    """
    server = await db(load_server, name)
    try:
        listed = await ask_for_tools(server.address, errors=errors)
    except MnesisError as error:
        await db(store.note_problem, server.id, error.message)
        raise
    await db(store.put_listing, server.id, take_listing(name, listed))
    return await db(load_server, name)


SECRETS = ("secrets", "url", "program")
CHOICES = (forms.CheckboxInput, forms.CheckboxSelectMultiple, forms.RadioSelect)


class McpServerForm(forms.ModelForm, AudienceFields):  # type: ignore[type-arg]
    # It catches mistakes that would otherwise show at the server's first call.
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
        fields = ("name", "url", "timeout_seconds", "needs_approval", "trust_annotations")
        labels: ClassVar = {
            "url": "Address",
            "timeout_seconds": "Timeout",
            "trust_annotations": "Trust its annotations",
        }
        help_texts: ClassVar = {
            "name": "Lower-case letters, digits and hyphens. Its tools are called NAME__tool.",
            "url": "Of a server over streamable HTTP. Give this or a program.",
            "timeout_seconds": "Seconds that one call may take at the most.",
            "needs_approval": "A person is asked before each call.",
            "trust_annotations": "Its own word is taken for which of its tools change nothing (readOnlyHint). Otherwise you say "
            "it of each tool, once it has listed them; of what nobody said it, nothing is known, and read-only sessions do "
            "without.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        self.initial["timeout_seconds"] = f"{self.initial.get('timeout_seconds') or 60:.10g}"
        self.initial["program"] = shlex.join(row.argv)
        self.initial["secrets"] = "\n".join(f"{name}={variable}" for name, variable in row.secrets.items())
        if row.pk:
            groups, users = audiences_of([row.pk])[row.pk]
            self.initial.update(audience_initial(is_restricted=row.is_restricted, groups=groups, users=users))
            # Another name would be another server.
            del self.fields["name"]
        self.fields["url"].required = False
        lists = host_lists()
        offer_programs(self.fields["program"], lists, current=self.initial["program"])
        say_variables(self.fields["secrets"], lists)
        say_addresses(self.fields["url"], lists)
        for field in self.fields.values():
            if not isinstance(field.widget, CHOICES):
                field.widget.attrs["class"] = "input"

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if list_servers([name]):
            raise forms.ValidationError("A server of this name is attached already. Change that one, or remove it.")
        return name

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        self.check_audience(values)
        if not self.errors:
            try:
                values["address"] = self._read_address(values)
                check_address(values["address"])
                check_entered(values["address"])
            except (InvalidRequest, NotListed) as error:
                field = str(error.details["field"]).replace("argv", "program")
                self.add_error(field if field in self.fields else None, error.message)
        forget_refused(self, SECRETS)
        return values

    def _read_address(self, values: dict[str, Any]) -> ServerAddress:
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
            trust_annotations=values["trust_annotations"],
        )

    @property
    def address(self) -> ServerAddress:
        address: ServerAddress = self.cleaned_data["address"]
        return address
