"""Tools and MCP servers for people: the page and the list of tools, and how an administrator attaches and keeps servers."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Collection
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, TextIO

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop, ngettext
from django.utils.translation import gettext_lazy as _
from ninja import Schema

from agents_app import store
from agents_app.models import McpServer
from agents_app.queries import audiences_of, list_servers, load_server
from agents_app.store import check_entered
from agents_app.tools.registry import SHIPPED, ask_for_tools, list_tools
from mnesis_core.errors import InvalidRequest, MnesisError, NotListed, ToolServerNotFound
from mnesis_core.text import excerpt
from mnesis_core.turns.mcp_servers import AttachedServer, ServerAddress, check_address, take_listing
from sessions_app.conf import host_lists, site_config
from sessions_app.database.threads import db, waiting_for
from sessions_app.llm import catalogue as views
from sessions_app.pages.formats import error_text
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import administrators, may_administer
from sessions_app.pages.views import reader_of, signed_in

ADD, CHANGE = "agents_app.add_mcpserver", "agents_app.change_mcpserver"
SECRETS = ("secrets", "url", "program")
CHOICES = (forms.CheckboxInput, forms.CheckboxSelectMultiple, forms.RadioSelect)
LONGEST_QUERY = 100  # characters
SCOPES = {"session": "", "root": _("not for sub-agents"), "sub_agent": _("for sub-agents only")}


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
            gettext_noop("%(name)s has listed no tool called %(names)s; 'manage.py mcp_server tools NAME' shows them"),
            {"name": name, "names": ", ".join(unknown)},
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


class McpServerForm(forms.ModelForm, views.AudienceFields):  # type: ignore[type-arg]
    # It catches mistakes that would otherwise show at the server's first call.
    program = forms.CharField(
        required=False,
        label=_("Program"),
        widget=forms.TextInput(attrs={"size": 80}),
        help_text=_(
            "A program that speaks MCP on standard input and output, with its arguments as you would type them in a "
            "shell: npx -y @scope/server /folder. It runs on this server, with the rights of this site and without a shell."
        ),
    )
    secrets = forms.CharField(
        required=False,
        label=_("Secrets"),
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
        help_text=_(
            "One per line, NAME=VARIABLE. The program's environment variable NAME (over HTTP, the header NAME, such as "
            "Authorization) gets the value of this site's environment variable VARIABLE. Values are never stored."
        ),
    )

    class Meta:
        model = McpServer
        fields = ("name", "url", "is_openapi", "timeout_seconds", "needs_approval", "trust_annotations")
        labels: ClassVar = {
            "url": _("Address"),
            "is_openapi": _("OpenAPI document"),
            "timeout_seconds": _("Timeout"),
            "trust_annotations": _("Trust its annotations"),
        }
        help_texts: ClassVar = {
            "name": _("Lower-case letters, digits and hyphens. Its tools are called NAME__tool."),
            "url": _(
                "The address of a server over streamable HTTP, or of an OpenAPI document. Enter this or a program."
            ),
            "is_openapi": _(
                "The address is that of an OpenAPI document (JSON, version 3). Each of its operations is a tool, and is "
                "called at the server that the document comes from."
            ),
            "timeout_seconds": _("The most seconds that one call may take."),
            "needs_approval": _("Each call waits for a person's approval."),
            "trust_annotations": _(
                "Trust what the server says about which tools change nothing (readOnlyHint). Otherwise, mark the read-only "
                "tools yourself once they are listed. Read-only sessions get only the marked ones."
            ),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        self.initial["timeout_seconds"] = f"{self.initial.get('timeout_seconds') or 60:.10g}"
        self.initial["program"] = shlex.join(row.argv)
        self.initial["secrets"] = "\n".join(f"{name}={variable}" for name, variable in row.secrets.items())
        if row.pk:
            groups, users = audiences_of([row.pk])[row.pk]
            self.initial.update(views.audience_initial(is_restricted=row.is_restricted, groups=groups, users=users))
            # Another name would be another server.
            del self.fields["name"]
        self.fields["url"].required = False
        lists = host_lists()
        views.offer_programs(self.fields["program"], lists, current=self.initial["program"])
        views.say_variables(self.fields["secrets"], lists)
        views.say_addresses(self.fields["url"], lists)
        for field in self.fields.values():
            if not isinstance(field.widget, CHOICES):
                field.widget.attrs["class"] = "input"

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if list_servers([name]):
            raise forms.ValidationError(_("A server of this name is attached already. Change that one, or remove it."))
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
                self.add_error(field if field in self.fields else None, error_text(error))
        views.forget_refused(self, SECRETS)
        return values

    def _read_address(self, values: dict[str, Any]) -> ServerAddress:
        try:
            argv = tuple(shlex.split(values["program"]))
        except ValueError as error:
            raise InvalidRequest(
                gettext_noop("the program cannot be read: %(reason)s"), {"reason": str(error)}, field="argv"
            ) from None
        pairs = [line.strip().partition("=") for line in values["secrets"].splitlines() if line.strip()]
        return ServerAddress(
            name=values.get("name") or self.instance.name,
            argv=argv,
            url=values["url"],
            is_openapi=values["is_openapi"],
            secrets={name: variable for name, _, variable in pairs},
            timeout_seconds=values["timeout_seconds"],
            needs_approval=values["needs_approval"],
            trust_annotations=values["trust_annotations"],
        )


class ToolOut(Schema):
    """One tool.

    ``scope``: the sessions that may be offered the tool (``session``: all; ``root``: only those not launched by
    another session; ``sub_agent``: only launched ones). Without ``timeout_seconds`` the tool limits its own waiting.
    ``is_default``: offered to sessions whose configuration does not say otherwise.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    scope: str
    timeout_seconds: float | None
    read_only: bool
    needs_approval: bool
    source: str
    is_default: bool
    unreachable_since: datetime | None


class ToolList(Schema):
    """Every tool there is, by name."""

    items: list[ToolOut]
    next_cursor: None = None


def show_tools(*, user_id: int | None) -> list[dict[str, Any]]:
    default = set(site_config().turn.tools)
    return [
        {
            **asdict(tool.spec),
            "scope": tool.scope.value,
            "timeout_seconds": tool.timeout_seconds,
            "read_only": tool.read_only,
            "needs_approval": tool.needs_approval,
            "source": tool.source,
            "is_default": tool.spec.name in default,
            "unreachable_since": tool.unreachable_since,
            "summary": show_invisible(tool.summary),
        }
        for tool in list_tools(user_id=user_id)
    ]


def show_servers(*, user_id: int | None) -> list[dict[str, Any]]:
    # Secrets are names of environment variables: their values are never read here.
    return [
        {
            "id": server.id,
            **asdict(server.address),
            "tools": [tool.spec.name for tool in server.listing.tools],
            "read_only_tools": [tool.spec.name for tool in server.listing.tools if server.is_read_only(tool)],
            "left_out": list(server.listing.left_out),
            "listed_at": server.listed_at,
            "unreachable_since": server.unreachable_since,
            "is_restricted": server.is_restricted,
            "problem": server.problem,
            "created_at": server.created_at,
        }
        for server in list_servers(user_id=user_id)
    ]


@signed_in
def tools(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()[:LONGEST_QUERY]
    everything = show_tools(user_id=reader_of(request))
    searched = ("name", "summary", "description")
    found = [tool for tool in everything if query.lower() in " ".join(tool[name] for name in searched).lower()]
    found.sort(key=lambda tool: (tool["source"] != SHIPPED, tool["source"], tool["name"]))
    for tool in found:
        description = show_invisible(tool["description"])
        schema = show_invisible(json.dumps(tool["parameters"], indent=2, ensure_ascii=False))
        told = description if description != tool["summary"] else ""
        tool |= {"told": told, "schema": schema, "scope_in_words": SCOPES[tool["scope"]]}
    groups = [
        {
            "source": gettext("Built in") if source == SHIPPED else source,
            "unreachable_since": items[0]["unreachable_since"],
            "tools": items,
        }
        for source, items in ((source, list(items)) for source, items in groupby(found, key=itemgetter("source")))
    ]
    context = {"query": show_invisible(query), "groups": groups, "found": len(found), "count": len(everything)}
    if may_administer(request, CHANGE):
        servers = [] if query else list_servers()
        audiences = audiences_of([server.id for server in servers])
        entries = [
            (server, {"is_restricted": server.is_restricted, "groups": groups, "users": users})
            for server in servers
            for groups, users in [audiences[server.id]]
        ]
        context |= {"servers": entries, "manages": True, "may_add": may_administer(request, ADD)}
    else:
        # Servers without tools would else not show at all; a search does not find them.
        attached = [] if query else show_servers(user_id=reader_of(request))
        context["silent"] = [server for server in attached if not server["tools"]]
    return render(request, "agents_app/tools/tools.html", context)


@administrators(ADD)
def server_add(request: HttpRequest) -> HttpResponse:
    return _entered_server(request, None)


@administrators(CHANGE)
def server_change(request: HttpRequest, name: str) -> HttpResponse:
    return _entered_server(request, _row(name))


@administrators(CHANGE, methods=("POST",))
def server_refresh(request: HttpRequest, name: str) -> HttpResponse:
    try:
        server = waiting_for(list_again)(name)
    except ToolServerNotFound:
        raise Http404 from None
    except MnesisError as error:
        text = gettext("The tools of the server %(name)s could not be listed: %(problem)s")
        messages.error(request, text % {"name": name, "problem": excerpt(error_text(error), 300)})
    else:
        _say(request, server)
    return _back(name)


@administrators(CHANGE)
def server_tools(request: HttpRequest, name: str) -> HttpResponse:
    try:
        server = load_server(name)
    except ToolServerNotFound:
        raise Http404 from None
    if request.method != "POST":
        return render(request, "agents_app/tools/server_tools.html", {"server": server})
    seen = set(request.POST.getlist("read_only"))
    # By digest: a tool that is listed otherwise by now is not the one that the administrator has seen.
    marked = [tool for tool in server.listing.tools if tool.digest in seen]
    mark_read_only(name, [tool.remote_name for tool in marked])
    if len(marked) < len(seen):
        messages.warning(
            request, _("Some tools have changed since you opened this page and were not marked. Check them again.")
        )
    text = ngettext(
        "%(count)s tool of %(server)s is marked as read-only.",
        "%(count)s tools of %(server)s are marked as read-only.",
        len(marked),
    )
    messages.success(request, text % {"count": len(marked), "server": name})
    return _back(name)


@administrators(CHANGE)
def server_remove(request: HttpRequest, name: str) -> HttpResponse:
    row = _row(name)
    if request.method != "POST":
        return render(request, "agents_app/tools/server_remove.html", {"name": row.name})
    store.remove_server(name)
    text = gettext("The server %(name)s is removed. From the next turn on, sessions can no longer use its tools.")
    messages.success(request, text % {"name": name})
    return redirect("tools")


def _entered_server(request: HttpRequest, row: McpServer | None) -> HttpResponse:
    form = McpServerForm(request.POST if request.method == "POST" else None, instance=row)
    name = form.instance.name
    if request.method != "POST" or not form.is_valid():
        return render(request, "agents_app/tools/server_form.html", {"form": form, "name": name})
    put = partial(store.enter_server, audience=form.chosen_audience)
    server = waiting_for(attach_server)(form.cleaned_data["address"], put=put)
    name, problem = server.address.name, excerpt(server.problem, 300)
    if problem:
        text = gettext("The server %(name)s is attached, but its tools could not be listed: %(problem)s")
        messages.error(request, text % {"name": name, "problem": problem})
    else:
        _say(request, server)
    return _back(name)


def _say(request: HttpRequest, server: AttachedServer) -> None:
    name, listing = server.address.name, server.listing
    text = gettext("The server %(name)s has %(count)s tools.")
    if listing.left_out:
        text = gettext("The server %(name)s has %(count)s tools, %(left_out)s left out.")
    told = {"name": name, "count": len(listing.tools), "left_out": len(listing.left_out)}
    messages.success(request, text % told)


def _row(name: str) -> McpServer:
    row: McpServer | None = McpServer.objects.filter(name=name, removed_at__isnull=True).first()
    if row is None:
        raise Http404
    return row


def _back(name: str) -> HttpResponse:
    return redirect(f"{reverse('tools')}#server-{name}")
