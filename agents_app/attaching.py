"""Attaching servers of the Model Context Protocol: what an administrator does, in the admin or at the terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection
from typing import TextIO

from agents_app import store
from agents_app.queries import load_server
from agents_app.tools.attached import ask_for_tools
from mnesis_core.attached import AttachedServer, ServerAddress, take_listing
from mnesis_core.errors import InvalidRequest, MnesisError
from sessions_app.database import db


async def attach_server(
    address: ServerAddress,
    *,
    put: Callable[[ServerAddress], str] = store.put_server,
    errors: TextIO | int = subprocess.DEVNULL,
) -> AttachedServer:
    """Attach a server, in place of the one with this name, and ask it for its tools.

    One that cannot be asked is attached all the same, without tools; its ``problem`` says why.

    :param put: writes it; by ``store.enter_server`` with who may be offered its tools, which else stays
    :raises InvalidRequest: a value is missing or out of its bounds.
    """
    await db(put, address)
    try:
        return await list_again(address.name, errors=errors)
    except MnesisError:
        return await db(load_server, address.name)


def mark_read_only(name: str, tools: Collection[str]) -> AttachedServer:
    """Say which tools of a server change nothing, as they are listed now; of all others that is not known from now on.

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
