"""Tools and the MCP servers that bring some of them: as JSON, and the pages on which administrators attach servers."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from ninja import Schema

from agents_app import store
from agents_app.models import McpServer
from agents_app.queries import audiences_of, list_servers, load_server
from agents_app.tools import SHIPPED, list_tools
from agents_app.tools.mcp.admin import McpServerForm, attach_server, list_again, mark_read_only
from mnesis_core.errors import MnesisError, ToolServerNotFound
from mnesis_core.text import excerpt
from mnesis_core.turns.mcp_servers import AttachedServer
from sessions_app.conf import site_config
from sessions_app.database.threads import waiting_for
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import administrators, may_administer
from sessions_app.pages.views import reader_of, signed_in


class ToolOut(Schema):
    """One tool.

    ``scope``: which sessions may be offered it (``session``: every one; ``root``: those that nobody launched;
    ``sub_agent``: only launched ones). Without ``timeout_seconds`` it bounds its own waiting. ``is_default``: sessions whose configuration does not say otherwise are offered it.
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
        }
        for tool in list_tools(user_id=user_id)
    ]


def show_servers(*, user_id: int | None) -> list[dict[str, Any]]:
    return [server_out(server) for server in list_servers(user_id=user_id)]


def server_out(server: AttachedServer) -> dict[str, Any]:
    # Secrets are names of environment variables: their values are never read here.
    return {
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


ADD, CHANGE = "agents_app.add_mcpserver", "agents_app.change_mcpserver"
LONGEST_QUERY = 100  # characters
SCOPES = {"session": "", "root": "not for sub-agents", "sub_agent": "for sub-agents only"}


@signed_in
def tools(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()[:LONGEST_QUERY]
    everything = show_tools(user_id=reader_of(request))
    found = [tool for tool in everything if query.lower() in f"{tool['name']} {tool['description']}".lower()]
    found.sort(key=lambda tool: (tool["source"] != SHIPPED, tool["source"], tool["name"]))
    groups = [
        {
            "source": "Built in" if source == SHIPPED else source,
            "unreachable_since": items[0]["unreachable_since"],
            "tools": [_tool_view(item) for item in items],
        }
        for source, items in ((source, list(items)) for source, items in groupby(found, key=itemgetter("source")))
    ]
    context = {"query": show_invisible(query), "groups": groups, "found": len(found), "count": len(everything)}
    if may_administer(request, CHANGE):
        servers = [] if query else _attached_servers()
        context |= {"servers": servers, "manages": True, "may_add": may_administer(request, ADD)}
    else:
        # Servers without tools would else not show at all; a search does not find them.
        attached = [] if query else show_servers(user_id=reader_of(request))
        context["silent"] = [server for server in attached if not server["tools"]]
    return render(request, "agents_app/tools.html", context)


def _attached_servers() -> list[tuple[AttachedServer, dict[str, Any]]]:
    servers = list_servers()
    audiences = audiences_of([server.id for server in servers])
    return [
        (
            server,
            {"is_restricted": server.is_restricted} | dict(zip(("groups", "users"), audiences[server.id], strict=True)),
        )
        for server in servers
    ]


def _tool_view(tool: dict[str, Any]) -> dict[str, Any]:
    description = show_invisible(tool["description"])
    first, _, rest = description.partition("\n")
    schema = show_invisible(json.dumps(tool["parameters"], indent=2, ensure_ascii=False))
    scope = SCOPES[tool["scope"]]
    return tool | {"first_line": first, "rest": rest.strip(), "schema": schema, "scope_in_words": scope}


@administrators(ADD)
def server_add(request: HttpRequest) -> HttpResponse:
    return _entered_server(request, McpServerForm(request.POST if request.method == "POST" else None))


@administrators(CHANGE)
def server_change(request: HttpRequest, name: str) -> HttpResponse:
    row = _row(name)
    return _entered_server(request, McpServerForm(request.POST if request.method == "POST" else None, instance=row))


@administrators(CHANGE, methods=("POST",))
def server_refresh(request: HttpRequest, name: str) -> HttpResponse:
    try:
        server = waiting_for(list_again)(name)
    except ToolServerNotFound:
        raise Http404 from None
    except MnesisError as error:
        messages.error(request, f"The server {name} cannot be asked for its tools: {excerpt(error.message, 300)}")
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
        return render(request, "agents_app/server_tools.html", {"server": server})
    seen = set(request.POST.getlist("read_only"))
    # By digest: a tool that is listed otherwise by now is not the one that the administrator has seen.
    marked = [tool for tool in server.listing.tools if tool.digest in seen]
    mark_read_only(name, [tool.remote_name for tool in marked])
    if len(marked) < len(seen):
        messages.warning(request, "Some tools are listed otherwise since you looked, and are not marked. Look again.")
    many = f"{len(marked)} tool{'' if len(marked) == 1 else 's'}"
    messages.success(request, f"{many} of {name} {'is' if len(marked) == 1 else 'are'} marked as read-only.")
    return _back(name)


@administrators(CHANGE)
def server_remove(request: HttpRequest, name: str) -> HttpResponse:
    row = _row(name)
    if request.method != "POST":
        return render(request, "agents_app/server_remove.html", {"name": row.name})
    store.remove_server(name)
    messages.success(request, f"The server {name} is removed: no session is offered its tools from the next turn on.")
    return redirect("tools")


def _entered_server(request: HttpRequest, form: McpServerForm) -> HttpResponse:
    name = form.instance.name
    if request.method != "POST" or not form.is_valid():
        return render(request, "agents_app/server_form.html", {"form": form, "name": name})
    server = waiting_for(attach_server)(form.address, put=partial(store.enter_server, audience=form.chosen_audience))
    if server.problem:
        problem = excerpt(server.problem, 300)
        messages.error(
            request, f"The server {server.address.name} is attached, and cannot be asked for its tools: {problem}"
        )
    else:
        _say(request, server)
    return _back(server.address.name)


def _say(request: HttpRequest, server: AttachedServer) -> None:
    name, listing = server.address.name, server.listing
    left_out = f", {len(listing.left_out)} left out" if listing.left_out else ""
    messages.success(request, f"The server {name} brings {len(listing.tools)} tools{left_out}.")


def _row(name: str) -> McpServer:
    row: McpServer | None = McpServer.objects.filter(name=name, removed_at__isnull=True).first()
    if row is None:
        raise Http404
    return row


def _back(name: str) -> HttpResponse:
    return redirect(f"{reverse('tools')}#server-{name}")
