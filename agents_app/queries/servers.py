"""Reads of the servers of tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from agents_app.models import McpServer as Row
from agents_app.models import McpServerGrant
from mnesis_core.attached import AttachedServer, ServerAddress, read_listing
from mnesis_core.errors import ToolServerNotFound
from mnesis_core.text import decode_text, encode_text
from sessions_app.conf import allowed_to


def list_servers(names: Iterable[str] | None = None, *, user_id: int | None = None) -> list[AttachedServer]:
    """The servers that are attached, by name; with ``names`` only these, with ``user_id`` only those for this person."""
    rows = Row.objects.filter(removed_at__isnull=True)
    if user_id is not None:
        rows = rows.filter(allowed_to(user_id, McpServerGrant.objects.values("server")))
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


def audiences_of(server_ids: Collection[str]) -> dict[str, tuple[list[str], list[str]]]:
    """By server, the groups and the people whose sessions may be offered its tools if it is restricted; one query."""
    found: dict[str, tuple[list[str], list[str]]] = {id: ([], []) for id in server_ids}
    grants = McpServerGrant.objects.filter(server_id__in=list(server_ids)).select_related("group", "user")
    for grant in grants.order_by("group__name", "user__username"):
        groups, users = found[grant.server_id]
        if grant.group is not None:
            groups.append(grant.group.name)
        if grant.user is not None:
            users.append(grant.user.get_username())
    return found


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
            trust_annotations=row.trust_annotations,
            entered_on_host=row.entered_on_host,
        ),
        listing=read_listing(row.listing),
        listed_at=row.listed_at,
        problem=decode_text(row.problem),
        unreachable_since=row.unreachable_since,
        read_only_tools=dict(row.read_only_tools),
        is_restricted=row.is_restricted,
        created_at=row.created_at,
        removed_at=row.removed_at,
    )
