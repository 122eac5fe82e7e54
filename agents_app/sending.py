"""Story: a message is put into an inbox, and whoever may take it here is called."""

from __future__ import annotations

from agents_app.inbox import deliver
from agents_app.runner import runner
from mnesis_core.inbox import Draft, InboxMessage
from sessions_app.database import db


async def send_message(
    session_id: str, *, owner_id: int, draft: Draft, idempotency_key: str | None = None
) -> InboxMessage:
    """Put a message into the inbox of a session in host mode, which takes it when it is idle; returns at once.

    :raises SessionNotFoundError: the session, or that of the sender, is not there, or belongs to somebody else.
    :raises SessionArchived: it takes no more turns, so no messages either.
    :raises NotInHostMode: it does not stay alive for messages.
    :raises InboxFull: too many messages wait there.
    :raises TooManyHops: too many agents have answered each other.
    :raises InboxMessageNotFoundError: what it answers is no message to a session of this person.
    :raises IdempotencyMismatch: the key was used for another message.
    :raises InvalidRequest: the text is empty or too long, or a response answers nothing.
    """
    message = await db(deliver, session_id, owner_id=owner_id, draft=draft, idempotency_key=idempotency_key)
    runner.check_inbox(session_id)
    return message
