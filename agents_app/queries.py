"""Reads of inboxes and of the MCP servers that bring tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from django.db.models import Max

from agents_app.models import InboxMessage as InboxRow
from agents_app.models import McpServer as ServerRow
from agents_app.models import McpServerGrant
from mnesis_core.errors import InboxMessageNotFoundError, ToolServerNotFound
from mnesis_core.turns.inbox import InboxMessage, MessageKind
from mnesis_core.turns.mcp_servers import AttachedServer, ServerAddress, read_listing
from sessions_app.conf import allowed_to
from sessions_app.database.fast_sql import fetch

_WAITING_SESSIONS = (
    "SELECT DISTINCT inbox_messages.session_id FROM inbox_messages"
    " JOIN sessions ON sessions.id = inbox_messages.session_id"
    " WHERE inbox_messages.turn_id IS NULL AND inbox_messages.session_id > %s"
    " AND sessions.host_mode AND sessions.archived_at IS NULL AND sessions.deleted_at IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session_id = sessions.id AND turns.ended_at IS NULL)"
    " ORDER BY inbox_messages.session_id LIMIT %s"
)


def list_inbox(session_id: str, *, waiting: bool | None = None, after: int = 0, limit: int = 50) -> list[InboxMessage]:
    """Return messages of a session's inbox, oldest first: those that wait, those that were taken, or all."""
    rows = InboxRow.objects.filter(session_id=session_id, seq__gt=after)
    if waiting is not None:
        rows = rows.filter(turn__isnull=waiting)
    return [_message(row) for row in rows.order_by("seq")[:limit]]


def load_waiting(session_id: str, *, limit: int) -> list[InboxMessage]:
    return list_inbox(session_id, waiting=True, limit=limit)


def load_taken(session_id: str, turn_id: str) -> list[InboxMessage]:
    return [_message(row) for row in InboxRow.objects.filter(session_id=session_id, turn_id=turn_id).order_by("seq")]


def count_waiting(session_id: str) -> int:
    return InboxRow.objects.filter(session_id=session_id, turn__isnull=True).count()


def load_inbox_message(message_id: str, *, owner_id: int) -> InboxMessage:
    """:raises InboxMessageNotFoundError: no inbox of this person has it."""
    rows = InboxRow.objects.filter(id=message_id, session__owner_id=owner_id, session__deleted_at__isnull=True)
    row = rows.first()
    if row is None:
        raise InboxMessageNotFoundError(inbox_id=message_id)
    return _message(row)


def find_sent(session_id: str, idempotency_key: str) -> InboxMessage | None:
    row = InboxRow.objects.filter(session_id=session_id, idempotency_key=idempotency_key).first()
    return None if row is None else _message(row)


def spoken_at(session_id: str) -> datetime | None:
    """Return when the newest message came that waits and that no agent sent."""
    waiting = InboxRow.objects.filter(session_id=session_id, turn__isnull=True, sender_id="")
    newest: datetime | None = waiting.aggregate(at=Max("created_at"))["at"]
    return newest


def waiting_sessions(*, after: str = "", limit: int) -> list[str]:
    """Return sessions in host mode that are idle while messages wait, by id, after the id given."""
    return [id for (id,) in fetch(_WAITING_SESSIONS, [after, limit])]


def _message(row: InboxRow) -> InboxMessage:
    return InboxMessage(
        id=row.id,
        session_id=row.session_id,
        seq=row.seq,
        sender=row.sender_id,
        kind=MessageKind(row.kind),
        in_reply_to=row.in_reply_to,
        text=row.text,
        hops=row.hops,
        created_at=row.created_at,
        turn_id=row.turn_id,
    )


def list_servers(names: Iterable[str] | None = None, *, user_id: int | None = None) -> list[AttachedServer]:
    """Return the attached servers, by name; with ``names`` only these, with ``user_id`` only those for this person."""
    rows = ServerRow.objects.filter(removed_at__isnull=True)
    if user_id is not None:
        rows = rows.filter(allowed_to(user_id, McpServerGrant.objects.values("server")))
    if names is not None:
        rows = rows.filter(name__in=list(names))
    return [server_of(row) for row in rows.order_by("name")]


def load_server(name: str) -> AttachedServer:
    """:raises ToolServerNotFound: no attached server has this name."""
    found = list_servers([name])
    if not found:
        raise ToolServerNotFound(server=name)
    return found[0]


def audiences_of(server_ids: Collection[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return by server the names of the groups and users that may be offered its tools; in one query."""
    found: dict[str, tuple[list[str], list[str]]] = {id: ([], []) for id in server_ids}
    grants = McpServerGrant.objects.filter(server_id__in=list(server_ids)).select_related("group", "user")
    for grant in grants.order_by("group__name", "user__username"):
        groups, users = found[grant.server_id]
        if grant.group is not None:
            groups.append(grant.group.name)
        if grant.user is not None:
            users.append(grant.user.get_username())
    return found


def server_of(row: ServerRow) -> AttachedServer:
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
        problem=row.problem,
        unreachable_since=row.unreachable_since,
        read_only_tools=dict(row.read_only_tools),
        is_restricted=row.is_restricted,
        created_at=row.created_at,
        removed_at=row.removed_at,
    )
