"""Messages come into a session's inbox, and an idle session in host mode takes them as a turn.

Messages wait in the record: any process may take them, one does, and a process that dies loses none. Messages and the
turn that reads them are written in one transaction, so none is read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from agents_app import store
from agents_app.queries import count_waiting, find_sent, list_inbox, load_inbox_message, load_taken, spoken_at
from agents_app.turns.claim import stored_key
from compaction_app.context import load_frame, meter_of, read_newest_state
from mnesis_core.config import Config
from mnesis_core.errors import IdempotencyMismatch, InboxFull, NotInHostMode, SessionArchived, SessionNotFoundError
from mnesis_core.llm.interface import Usage, cost_micros
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import Message, TextPart
from mnesis_core.records import SessionRecord, TurnRecord
from mnesis_core.spending import highest_of, passed_by
from mnesis_core.turns.inbox import INBOX, Draft, InboxMessage, check_draft, fitting, hops_after, is_resting, joined
from sessions_app.conf import session_config
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.rows import prepare_parts
from sessions_app.record.session_queries import load_session, peer_names
from sessions_app.record.turn_queries import list_turns, load_turn
from sessions_app.usage.limits import limits_for, look

MOST_TAKEN = 100  # messages that one turn reads


def deliver(session_id: str, *, owner_id: int, draft: Draft, idempotency_key: str | None = None) -> InboxMessage:
    """Put a message into a session's inbox; a repeated request with its key returns the message that is there."""
    session = load_session(session_id, owner_id=owner_id)
    config = session_config(session.config)
    idempotency_key = stored_key(idempotency_key)
    if draft.sender_turn:
        load_session(draft.sender, owner_id=owner_id)
        draft = replace(draft, hops=hops_after(load_taken(draft.sender, draft.sender_turn)))
    check_draft(draft, config.inbox)
    if draft.in_reply_to:
        load_inbox_message(draft.in_reply_to, owner_id=owner_id)
    with change(session_id) as record:
        known = find_sent(session_id, idempotency_key) if idempotency_key else None
        if known is not None:
            before = (known.text, known.kind, known.sender, known.in_reply_to)
            if before != (draft.text, draft.kind, draft.sender, draft.in_reply_to):
                raise IdempotencyMismatch(inbox_id=known.id)
            return known
        if record.archived:
            raise SessionArchived(session_id=session_id)
        if not load_session(session_id).host_mode:
            raise NotInHostMode(session_id=session_id)
        if count_waiting(session_id) >= config.inbox.waiting:
            raise InboxFull(session_id=session_id, waiting=config.inbox.waiting)
        message_id = store.receive_message(record, draft, idempotency_key=idempotency_key)
    return load_inbox_message(message_id, owner_id=owner_id)


def claim_waiting(session_id: str, *, lease_owner: str) -> TurnRecord | None:
    """Claim an idle session in host mode for a turn that reads what waits; return ``None`` if no turn is to begin."""
    with suppress(SessionNotFoundError):  # deleted meanwhile
        session = load_session(session_id)
        config = session_config(session.config)
        if not session.host_mode or session.archived_at or session.running_turn_id:
            return None
        last = next(iter(list_turns(session.id, limit=1)), None)
        # Read before what waits: a message that ends the rest is then among those that the turn reads.
        if is_resting(last, spoken_at=spoken_at(session.id)):
            return None
        waiting = list_inbox(session.id, waiting=True, limit=MOST_TAKEN)
        messages = list(fitting(waiting, characters=config.inbox.message_characters))
        if messages:
            return _claim(session, config, messages, lease_owner)
    return None


def _claim(
    session: SessionRecord, config: Config, messages: Sequence[InboxMessage], lease_owner: str
) -> TurnRecord | None:
    senders = {message.sender for message in messages}
    text = joined(messages, peer_names(senders, owner_id=session.owner_id))
    # A message that no limit leaves room for waits until the day is over, or until a limit is raised.
    if limits := limits_for(session):
        state = read_newest_state(load_frame(session.id))
        most = Usage(
            input_tokens=min(meter_of(state).used_tokens + estimate_text(text), state.budget.usable),
            output_tokens=state.budget.reserved_output,
        )
        if passed_by(highest_of(most.total_tokens, cost_micros(state.spec, most)), look(limits)) is not None:
            return None

    said = Message(role="user", parts=(TextPart(text=text),))
    parts = prepare_parts(said.parts)
    with change(session.id) as record:
        # Another process may have begun a turn since the session was read.
        if record.turn_seq != session.turn_seq or record.archived or not load_session(session.id).host_mode:
            return None
        turn_id = turn_store.start_turn(
            record, model=session.model, origin=INBOX, lease_owner=lease_owner, lease_seconds=config.turn.lease_seconds
        )
        message_store.append_message(record, turn_id=turn_id, message=said, parts=parts)
        store.take_messages(record, [message.id for message in messages], turn_id=turn_id)
    return load_turn(turn_id, session_id=session.id)
