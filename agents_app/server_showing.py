"""Servers of tools as the page of tools shows them to administrators."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from datetime import datetime

from agents_app.queries import audiences_of, list_servers
from mnesis_core.attached import AttachedServer, AttachedTool, hints_in_words
from mnesis_core.visible import excerpt
from sessions_app.rendering import format_duration, show_invisible

LONGEST_PLACE, LONGEST_PROBLEM, LONGEST_SENTENCE, LONGEST_DESCRIPTION = 300, 300, 200, 400
"""Characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable that holds a secret; its value is known to nobody here."""

    name: str
    target: str
    """The program's own variable, or the header."""
    is_set: bool
    """In this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownServer:
    """One server that is attached."""

    name: str
    place: str
    is_program: bool
    variables: tuple[Variable, ...]
    timeout: str
    needs_approval: bool
    trusts_annotations: bool
    tools: int
    read_only_tools: int
    left_out: tuple[str, ...]
    listed_at: datetime | None
    unreachable_since: datetime | None
    problem: str
    is_restricted: bool
    groups: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """Names of those whose sessions may be offered the tools of a restricted one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTool:
    """One tool of a server, for who says whether it changes anything."""

    name: str
    description: str
    says: str
    """What the server says of it; empty: nothing."""
    digest: str
    """The digest of the listing that is shown."""
    is_marked: bool
    is_read_only: bool
    was_marked: bool
    """An administrator said that it changes nothing, and it is listed otherwise since."""


def show_tools_of(server: AttachedServer) -> list[ShownTool]:
    """The tools of a server, as it lists them."""
    return [_shown_tool(server, tool) for tool in server.listing.tools]


def _shown_tool(server: AttachedServer, tool: AttachedTool) -> ShownTool:
    marked = server.read_only_tools.get(tool.remote_name)
    return ShownTool(
        name=tool.spec.name,
        description=show_invisible(excerpt(tool.spec.description, LONGEST_DESCRIPTION)),
        says=hints_in_words(tool.hints),
        digest=tool.digest,
        is_marked=marked == tool.digest,
        is_read_only=server.is_read_only(tool),
        was_marked=marked is not None and marked != tool.digest,
    )


def show_attached() -> list[ShownServer]:
    """Every server that is attached, by name."""
    servers = list_servers()
    audiences = audiences_of([server.id for server in servers])
    return [_for(show_server(server), *audiences[server.id]) for server in servers]


def _for(shown: ShownServer, groups: list[str], users: list[str]) -> ShownServer:
    return replace(shown, groups=tuple(map(show_invisible, groups)), users=tuple(map(show_invisible, users)))


def show_server(server: AttachedServer) -> ShownServer:
    """How a server is reached, how far it is trusted, and whether it answers."""
    address = server.address
    return ShownServer(
        name=address.name,
        place=excerpt(address.url or shlex.join(address.argv), LONGEST_PLACE),
        is_program=bool(address.argv),
        variables=tuple(
            Variable(name=show_invisible(name), target=show_invisible(target), is_set=bool(os.environ.get(name)))
            for target, name in address.secrets.items()
        ),
        timeout=format_duration(address.timeout_seconds),
        needs_approval=address.needs_approval,
        trusts_annotations=address.trust_annotations,
        tools=len(server.listing.tools),
        read_only_tools=sum(map(server.is_read_only, server.listing.tools)),
        left_out=tuple(excerpt(sentence, LONGEST_SENTENCE) for sentence in server.listing.left_out),
        listed_at=server.listed_at,
        unreachable_since=server.unreachable_since,
        problem=excerpt(server.problem, LONGEST_PROBLEM),
        is_restricted=server.is_restricted,
    )
