"""Tools, and the servers that bring some of them, as every door shows them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from ninja import Schema

from agents_app.queries import list_servers
from agents_app.tools import Tool, list_tools
from mnesis_core.attached import AttachedServer
from sessions_app.conf import site_config


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
    """Every tool there is for a person's sessions, by name."""
    default = set(site_config().turn.tools)
    return [_tool_out(tool, is_default=tool.spec.name in default) for tool in list_tools(user_id=user_id)]


def _tool_out(tool: Tool, *, is_default: bool) -> dict[str, Any]:
    return {
        **asdict(tool.spec),
        "scope": tool.scope.value,
        "timeout_seconds": tool.timeout_seconds,
        "read_only": tool.read_only,
        "needs_approval": tool.needs_approval,
        "source": tool.source,
        "is_default": is_default,
        "unreachable_since": tool.unreachable_since,
    }


def show_servers(*, user_id: int | None) -> list[dict[str, Any]]:
    """Every server that is attached for a person's sessions, by name."""
    return [server_out(server) for server in list_servers(user_id=user_id)]


def server_out(server: AttachedServer) -> dict[str, Any]:
    """A server as its administrator sees it. Secrets are names of variables; their values are known to nobody here."""
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
