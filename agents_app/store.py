"""Writes to inboxes, where one turn takes each message, and to the MCP servers that bring tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents_app.models import InboxMessage, McpServer, McpServerGrant
from agents_app.queries import list_servers, server_of
from mnesis_core.errors import Conflict, ToolServerNotFound
from mnesis_core.events import EventType
from mnesis_core.ledger import new_salt
from mnesis_core.turns.inbox import Draft
from mnesis_core.turns.mcp_servers import Listing, ServerAddress, check_address, write_listing
from mnesis_core.values import new_id
from sessions_app.catalogue.model_store import Audience
from sessions_app.conf import host_lists
from sessions_app.database.fast_sql import Table
from sessions_app.record.change import Change

_INBOX = Table(InboxMessage)
LONGEST_PROBLEM = 2_000  # characters: a server may say anything of its failure


def receive_message(record: Change, draft: Draft, *, idempotency_key: str | None = None) -> str:
    """Put a message into the inbox of the change's session, and return its id."""
    row = _INBOX.row(
        id=new_id("inbox"),
        session_id=record.session_id,
        seq=record.next_seq,
        sender_id=draft.sender,
        sender_turn_id=draft.sender_turn,
        kind=draft.kind.value,
        in_reply_to=draft.in_reply_to,
        text=draft.text,
        hops=draft.hops,
        idempotency_key=idempotency_key,
        created_at=record.now,
        salt=new_salt(),
    )
    record.insert(_INBOX, row)
    record.publish(EventType.INBOX_RECEIVED, inbox_id=row.id, sender_id=draft.sender, hops=draft.hops)
    return str(row.id)


def take_messages(record: Change, message_ids: Sequence[str], *, turn_id: str) -> None:
    """Give messages that wait to a turn of the change's session, all or none.

    :raises Conflict: another turn has one of them.
    """
    for id in message_ids:
        if not record.update(_INBOX, {"turn_id": turn_id}, id=id, session_id=record.session_id, turn_id=None):
            raise Conflict("another turn has taken this message", inbox_id=id)
    record.publish(EventType.INBOX_TAKEN, turn_id=turn_id, inbox_ids=list(message_ids))


def put_server(address: ServerAddress) -> str:
    """Attach a server, in place of the one with this name if there is one, and return the new row's id.

    Its audience stays. Its listing does not, nor do the marks of its read-only tools if it is reached in another way,
    which may mean another server.

    :raises InvalidRequest: a value is missing or out of its bounds.
    """
    check_address(address)
    row = McpServer(
        id=new_id("mcp"),
        name=address.name,
        argv=list(address.argv),
        url=address.url,
        secrets=dict(address.secrets),
        timeout_seconds=address.timeout_seconds,
        needs_approval=address.needs_approval,
        trust_annotations=address.trust_annotations,
        entered_on_host=address.entered_on_host,
        created_at=timezone.now(),
    )
    with transaction.atomic():
        replaced = _attached(address.name).select_for_update().first()
        if replaced is not None:
            row.is_restricted = replaced.is_restricted
            if server_of(replaced).address.reached == address.reached:
                row.read_only_tools = replaced.read_only_tools
            _attached(address.name).update(removed_at=row.created_at)
        row.save()
        McpServerGrant.objects.filter(server=replaced).update(server=row)
    return str(row.id)


def enter_server(address: ServerAddress, *, audience: Audience | None) -> str:
    """Attach a server from a page, for an audience (``None``: every user), and return the new row's id.

    :raises InvalidRequest: a value is missing or out of its bounds.
    :raises NotListed: how it is reached is not as a command on the host entered it, nor on the host's lists.
    """
    # In one transaction: at no moment is a restricted server there for all.
    with transaction.atomic():
        _attached(address.name).select_for_update().first()
        id = put_server(replace(address, entered_on_host=check_entered(address)))
        McpServer.objects.filter(id=id).update(is_restricted=audience is not None)
        McpServerGrant.objects.filter(server_id=id).delete()
        members = [] if audience is None else audience.members
        McpServerGrant.objects.bulk_create(McpServerGrant(server_id=id, **member) for member in members)
    return id


def check_entered(address: ServerAddress) -> bool:
    """Return whether a page leaves the way a server is reached as a command on the host entered it.

    :raises NotListed: it does not, and the host's lists do not hold the new way; ``field`` names the value.
    """
    known = list_servers([address.name])
    if known and known[0].address.entered_on_host and known[0].address.reached == address.reached:
        return True
    host_lists().check_server(address.argv, address.url, address.secrets)
    return False


def remove_server(name: str) -> None:
    """Detach a server from all sessions. Its row stays.

    :raises ToolServerNotFound: no attached server has this name.
    """
    if not _attached(name).update(removed_at=timezone.now()):
        raise ToolServerNotFound(server=name)


def put_listing(server_id: str, listing: Listing) -> None:
    McpServer.objects.filter(id=server_id).update(
        listing=write_listing(listing), listed_at=timezone.now(), problem="", unreachable_since=None
    )


def mark_read_only(server_id: str, digests: Mapping[str, str]) -> None:
    """Write the tools that change nothing, by digest of what the administrator saw listed; all other marks are removed."""
    McpServer.objects.filter(id=server_id).update(read_only_tools=dict(digests))


def note_answer(server_id: str) -> None:
    McpServer.objects.filter(id=server_id, unreachable_since__isnull=False).update(unreachable_since=None, problem="")


def note_problem(server_id: str, problem: str) -> None:
    found = McpServer.objects.filter(id=server_id)
    found.filter(unreachable_since__isnull=True).update(unreachable_since=timezone.now())
    found.update(problem=problem[:LONGEST_PROBLEM])


def _attached(name: str) -> QuerySet[Any]:
    return McpServer.objects.filter(name=name, removed_at__isnull=True)
