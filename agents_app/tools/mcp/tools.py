"""Tools that MCP servers bring, in the form of our own. The modules that use the SDK are loaded when a server is asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any, TextIO

from agents_app import store
from agents_app.queries import list_servers
from agents_app.tools.definition import Tool, ToolContext
from mnesis_core.errors import ToolServerUnreachable
from mnesis_core.turns.mcp_servers import AttachedServer, ListedTool, ServerAddress
from sessions_app.database.threads import db, load

_CONNECTIONS = "agents_app.tools.mcp.connections"  # importing the SDK takes more than a second


def attached_tools(server_names: Iterable[str] | None = None, *, user_id: int | None) -> dict[str, Tool]:
    """Return the tools of the attached servers (of these names), by name. Reads the database, asks no server.

    :param user_id: the owner of the sessions they are for; ``None``: the site itself asks
    """
    return {
        tool.spec.name: Tool(
            spec=tool.spec,
            run=partial(_call, server, tool.remote_name),
            arguments=None,
            timeout_seconds=server.address.timeout_seconds,
            read_only=server.is_read_only(tool),
            needs_approval=server.address.needs_approval,
            source=f"MCP server {server.address.name}",
            unreachable_since=server.unreachable_since,
        )
        for server in list_servers(server_names, user_id=user_id)
        for tool in server.listing.tools
    }


async def _call(server: AttachedServer, name: str, context: ToolContext, *, arguments: dict[str, Any]) -> str:
    try:
        output: str = await (await load(_CONNECTIONS)).call_tool(server, name, arguments)
    except ToolServerUnreachable as error:
        await db(store.note_problem, server.id, error.message)
        raise
    if server.unreachable_since is not None:
        await db(store.note_answer, server.id)
    return output


async def ask_for_tools(address: ServerAddress, *, errors: TextIO | int = subprocess.DEVNULL) -> list[ListedTool]:
    """Return the tools that a server lists now. ``errors`` gets what a program says on standard error.

    :raises ToolServerUnreachable: it cannot be connected to, or does not answer in time.
    :raises ToolFailed: it answers with an error, or with what is no list.
    """
    listed: list[ListedTool] = await (await load(_CONNECTIONS)).list_tools(address, errors=errors)
    return listed


async def close_connections() -> None:
    """End every connection of this event loop and every program started for one, when the process ends."""
    if _CONNECTIONS in sys.modules:
        await sys.modules[_CONNECTIONS].connections.close()
