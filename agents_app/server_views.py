"""Servers of tools on the page of tools: attached, changed, asked again and removed by administrators."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agents_app import store
from agents_app.attaching import attach_server, list_again, mark_read_only
from agents_app.models import McpServer
from agents_app.queries import load_server
from agents_app.server_forms import PortalServerForm
from agents_app.server_showing import show_server, show_tools_of
from mnesis_core.attached import AttachedServer
from mnesis_core.errors import MnesisError, ToolServerNotFound
from mnesis_core.text import encode_text
from mnesis_core.visible import excerpt
from sessions_app.administering import administrators
from sessions_app.database import waiting_for

ADD, CHANGE = "agents_app.add_mcpserver", "agents_app.change_mcpserver"


@administrators(ADD)
def server_add(request: HttpRequest) -> HttpResponse:
    """Attach a server, and ask it for its tools."""
    return _entered(request, PortalServerForm(request.POST if request.method == "POST" else None))


@administrators(CHANGE)
def server_change(request: HttpRequest, name: str) -> HttpResponse:
    """Attach a server anew; its name stays."""
    row = _row(name)
    return _entered(request, PortalServerForm(request.POST if request.method == "POST" else None, instance=row))


@administrators(CHANGE, methods=("POST",))
def server_refresh(request: HttpRequest, name: str) -> HttpResponse:
    """Ask a server for its tools again: what it answers is offered from now on."""
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
    """Say which tools of a server change nothing, each as it is listed."""
    try:
        server = load_server(name)
    except ToolServerNotFound:
        raise Http404 from None
    if request.method != "POST":
        shown = {"name": server.address.name, "tools": show_tools_of(server)}
        return render(request, "agents_app/server_tools.html", shown | {"server": show_server(server)})
    seen = set(request.POST.getlist("read_only"))
    # By what was shown: what is listed otherwise since then was not looked at.
    marked = [tool for tool in server.listing.tools if tool.digest in seen]
    mark_read_only(name, [tool.remote_name for tool in marked])
    if len(marked) < len(seen):
        messages.warning(request, "Some tools are listed otherwise since you looked, and are not marked. Look again.")
    many = f"{len(marked)} tool{'' if len(marked) == 1 else 's'}"
    messages.success(request, f"{many} of {name} {'is' if len(marked) == 1 else 'are'} marked as read-only.")
    return _back(name)


@administrators(CHANGE)
def server_remove(request: HttpRequest, name: str) -> HttpResponse:
    """Take a server away, when somebody has said yes to it."""
    row = _row(name)
    if request.method != "POST":
        return render(request, "agents_app/server_remove.html", {"name": row.name})
    store.remove_server(name)
    messages.success(request, f"The server {name} is removed: no session is offered its tools from the next turn on.")
    return redirect("tools")


def _entered(request: HttpRequest, form: PortalServerForm) -> HttpResponse:
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
    shown = show_server(server)
    left_out = f", {len(shown.left_out)} left out" if shown.left_out else ""
    messages.success(request, f"The server {shown.name} brings {shown.tools} tools{left_out}.")


def _row(name: str) -> McpServer:
    row: McpServer | None = McpServer.objects.filter(name=encode_text(name), removed_at__isnull=True).first()
    if row is None:
        raise Http404
    return row


def _back(name: str) -> HttpResponse:
    return redirect(f"{reverse('tools')}#server-{name}")
