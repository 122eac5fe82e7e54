"""Changes to inboxes: a message comes once, and one turn takes it."""

from __future__ import annotations

from collections.abc import Sequence

from agents_app.models import InboxMessage
from mnesis_core.errors import Conflict
from mnesis_core.events import EventType
from mnesis_core.ids import new_id
from mnesis_core.inbox import Draft
from mnesis_core.ledger import new_salt
from mnesis_core.text import encode_text
from sessions_app.ledger import Change
from sessions_app.statements import Table

_INBOX = Table(InboxMessage)


def receive_message(record: Change, draft: Draft, *, idempotency_key: str | None = None) -> str:
    """Put a message into the inbox of the change's session; returns its id."""
    row = _INBOX.row(
        id=new_id("inbox"),
        session_id=record.session_id,
        seq=record.next_seq,
        sender_id=draft.sender,
        sender_turn_id=draft.sender_turn,
        kind=draft.kind.value,
        in_reply_to=draft.in_reply_to,
        text=encode_text(draft.text),
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
