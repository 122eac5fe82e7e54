"""Turns whose process died: closed as interrupted, with everything that was streamed, and never run again."""

from __future__ import annotations

import logging

from mnesis_core.errors import TurnInterrupted
from mnesis_core.llm import Outcome
from mnesis_core.messages import ReasoningPart, TextPart
from mnesis_core.record import LiveText, MessageEnd, TurnState
from sessions_app import store
from sessions_app.ledger import Change, change
from sessions_app.queries import expired_turns, journal_texts, running_calls, unanswered_tools, unfinished_messages

logger = logging.getLogger(__name__)
CLOSING_SECONDS = 30.0


def recover_turns(*, lease_owner: str) -> int:
    """Close every turn whose lease ran out; returns how many."""
    return sum(recover_turn(session_id, turn_id, lease_owner=lease_owner) for session_id, turn_id in expired_turns())


def recover_turn(session_id: str, turn_id: str, *, lease_owner: str) -> bool:
    """Close one turn if its lease ran out; False if it is alive after all, or another process was first."""
    with change(session_id) as record:
        fence = store.take_over_turn(record, turn_id, lease_owner=lease_owner, lease_seconds=CLOSING_SECONDS)
        if fence is None:
            return False
        reason = TurnInterrupted()
        close_open_rows(record, turn_id, error_code=reason.code, error_message=reason.message)
        store.finish_turn(
            record,
            turn_id,
            state=TurnState.INTERRUPTED,
            fence=fence,
            error_code=reason.code,
            error_message=reason.message,
        )
    logger.warning("turn %s was left by its process and is closed as interrupted", turn_id)
    return True


def close_open_rows(record: Change, turn_id: str, *, error_code: str, error_message: str) -> None:
    """End whatever a turn left open: streamed text becomes parts, calls and tools get their error."""
    end = MessageEnd(outcome=Outcome.BROKEN.value, error_code=error_code, error_message=error_message)
    for call_id in running_calls(turn_id):
        store.finish_call(record, call_id, end)
    for message_id in unfinished_messages(turn_id):
        texts = journal_texts(record.session_id, message_id=message_id)
        store.append_parts(record, message_id=message_id, parts=[_part(text) for text in texts])
        store.finalize_message(record, message_id, end)
        store.delete_journal(message_id=message_id)
    for part_id in unanswered_tools(turn_id):
        store.finish_tool(record, part_id, output=None, error=error_message)


def _part(text: LiveText) -> TextPart | ReasoningPart:
    return TextPart(text=text.text) if text.part_type == TextPart.type else ReasoningPart(text=text.text)
