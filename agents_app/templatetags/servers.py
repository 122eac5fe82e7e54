"""Filters that put a server of tools on the pages of its administrators."""

from __future__ import annotations

import shlex

from django import template

from mnesis_core.turns.mcp_servers import AttachedServer, AttachedTool, ServerAddress, hints_in_words

register = template.Library()


@register.filter
def reached_at(address: ServerAddress) -> str:
    return address.url or shlex.join(address.argv)


@register.filter
def count_read_only(server: AttachedServer) -> int:
    return sum(map(server.is_read_only, server.listing.tools))


@register.filter
def is_read_only(server: AttachedServer, tool: AttachedTool) -> bool:
    return server.is_read_only(tool)


@register.filter
def is_marked(server: AttachedServer, tool: AttachedTool) -> bool:
    """Return whether an administrator said that a tool changes nothing, as it is listed now."""
    return server.read_only_tools.get(tool.remote_name) == tool.digest


@register.filter
def was_marked(server: AttachedServer, tool: AttachedTool) -> bool:
    """Return whether an administrator said so, and the tool is listed otherwise since."""
    return tool.remote_name in server.read_only_tools and not is_marked(server, tool)


@register.filter
def hints(tool: AttachedTool) -> str:
    return hints_in_words(tool.hints)
