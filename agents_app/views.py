"""The page of tools."""

from __future__ import annotations

import json
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agents_app.server_showing import show_attached
from agents_app.server_views import ADD, CHANGE
from agents_app.toolbox import show_servers, show_tools
from agents_app.tools import SHIPPED
from sessions_app.administering import may_administer
from sessions_app.rendering import show_invisible
from sessions_app.views import reader_of, signed_in

LONGEST_QUERY = 100
"""Characters."""
SCOPES = {"session": "", "root": "not for sub-agents", "sub_agent": "for sub-agents only"}


@signed_in
def tools(request: HttpRequest) -> HttpResponse:
    """Every tool that sessions may be offered, by who brings it."""
    query = request.GET.get("q", "").strip()[:LONGEST_QUERY]
    everything = show_tools(user_id=reader_of(request))
    found = [tool for tool in everything if query.lower() in f"{tool['name']} {tool['description']}".lower()]
    found.sort(key=lambda tool: (tool["source"] != SHIPPED, tool["source"], tool["name"]))
    by_source = groupby(found, key=itemgetter("source"))
    groups = [_group(source, list(items)) for source, items in by_source]
    context = {"query": show_invisible(query), "groups": groups, "found": len(found), "count": len(everything)}
    return render(request, "agents_app/tools.html", context | _servers(request, query))


def _servers(request: HttpRequest, query: str) -> dict[str, Any]:
    """For administrators the servers that are attached; for everybody else those that have nothing to show yet."""
    if may_administer(request, CHANGE):
        return {"servers": [] if query else show_attached(), "manages": True, "may_add": may_administer(request, ADD)}
    return {"silent": _without_tools(query, reader_of(request))}


def _group(source: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "source": "Built in" if source == SHIPPED else source,
        "unreachable_since": items[0]["unreachable_since"],
        "tools": [_shown(item) for item in items],
    }


def _shown(tool: dict[str, Any]) -> dict[str, Any]:
    description = show_invisible(tool["description"])
    first, _, rest = description.partition("\n")
    schema = show_invisible(json.dumps(tool["parameters"], indent=2, ensure_ascii=False))
    scope = SCOPES[tool["scope"]]
    return tool | {"first_line": first, "rest": rest.strip(), "schema": schema, "scope_in_words": scope}


def _without_tools(query: str, user_id: int) -> list[dict[str, Any]]:
    """Servers that have nothing to show yet: a search does not find them."""
    return [] if query else [server for server in show_servers(user_id=user_id) if not server["tools"]]
