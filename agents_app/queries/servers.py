"""Reads of the servers of tools."""

from __future__ import annotations

from collections.abc import Iterable

from agents_app.models import McpServer as Row
from mnesis_core.attached import AttachedServer, ServerAddress, read_listing
from mnesis_core.errors import ToolServerNotFound
from mnesis_core.text import decode_text, encode_text


def list_servers(names: Iterable[str] | None = None) -> list[AttachedServer]:
    """The servers that are attached, by name; with ``names`` only these."""
    rows = Row.objects.filter(removed_at__isnull=True)
    if names is not None:
        rows = rows.filter(name__in=[encode_text(name) for name in names])
    return [server_of(row) for row in rows.order_by("name")]


def load_server(name: str) -> AttachedServer:
    """The attached server of this name.

    :raises ToolServerNotFound: there is none.
    """
    found = list_servers([name])
    if not found:
        raise ToolServerNotFound(server=name)
    return found[0]


def server_of(row: Row) -> AttachedServer:
    """A server's row as a value."""
    return AttachedServer(
        id=row.id,
        address=ServerAddress(
            name=row.name,
            argv=tuple(row.argv),
            url=row.url,
            secrets=dict(row.secrets),
            timeout_seconds=row.timeout_seconds,
            needs_approval=row.needs_approval,
            read_only=row.read_only,
        ),
        listing=read_listing(row.listing),
        listed_at=row.listed_at,
        problem=decode_text(row.problem),
        unreachable_since=row.unreachable_since,
        created_at=row.created_at,
        removed_at=row.removed_at,
    )
