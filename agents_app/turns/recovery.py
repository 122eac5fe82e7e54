"""Turns whose process died: closed as interrupted, with everything that was streamed, and never run again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.utils import timezone

from agents_app.turns.progress import load_progress
from mnesis_core.errors import MnesisError, TurnCancelled, TurnInterrupted
from mnesis_core.llm.interface import Outcome
from mnesis_core.messages import ReasoningPart, TextPart
from mnesis_core.records import LiveText, MessageEnd, TurnState
from sessions_app.record import call_store, message_store, turn_store
from sessions_app.record.call_queries import running_calls
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import journal_texts, leaves_open, unanswered_tools, unfinished_messages
from sessions_app.record.session_queries import launched_by_turn
from sessions_app.record.turn_queries import ExpiredTurn, expired_turns, load_turn, open_turn

logger = logging.getLogger(__name__)
CLOSING_SECONDS = 30.0
CUT_OFF = "The turn was interrupted before this ended."
"""What stands in the place of a result that an interrupt kept from coming."""


def recover_turns(
    *, lease_owner: str, runs_here: Callable[[str], bool] | None = None, session_id: str | None = None
) -> int:
    """Close every turn that its process left, of one session or of all; returns how many.

    :param runs_here: says of a turn that ``lease_owner`` holds itself whether it runs
    """
    left = [one for one in expired_turns(session_id=session_id) if _is_left(one, lease_owner, runs_here)]
    return sum(
        recover_turn(one.session_id, one.turn_id, lease_owner=lease_owner, left_by=one.lease_owner) for one in left
    )


def _is_left(one: ExpiredTurn, lease_owner: str, runs_here: Callable[[str], bool] | None) -> bool:
    if one.lease_owner == lease_owner and runs_here is not None:
        return not runs_here(one.turn_id)
    return one.is_left(timezone.now())


def recover_turn(session_id: str, turn_id: str, *, lease_owner: str, left_by: str | None = None) -> bool:
    """Close one turn if its lease ran out; False if it is alive after all, or another process was first.

    :param left_by: who had it, and is dead: who has it by now is not asked
    """
    with change(session_id) as record:
        fence = turn_store.take_over_turn(
            record, turn_id, lease_owner=lease_owner, lease_seconds=CLOSING_SECONDS, left_by=left_by
        )
        if fence is None:
            return False
        reason = TurnInterrupted()
        close_open_rows(record, turn_id, error_code=reason.code, error_message=reason.message)
        turn_store.finish_turn(
            record,
            turn_id,
            state=TurnState.INTERRUPTED,
            fence=fence,
            error_code=reason.code,
            error_message=reason.message,
        )
    logger.warning("turn %s was left by its process and is closed as interrupted", turn_id)
    for child_id in launched_by_turn(session_id, turn_id):
        end_waiting(child_id, TurnState.INTERRUPTED, reason)  # nobody waits for its answer any more
    return True


def end_waiting(session_id: str, state: TurnState, reason: MnesisError | None = None) -> str | None:
    """End the turn that a session waits in, at once, for it has no lease; or ask for the end of one that runs.

    Returns its id, ``None`` where there is none.
    """
    code, message = (reason.code, reason.message) if reason else (None, None)
    with change(session_id) as record:
        found = open_turn(session_id)
        if found is None:
            return None
        turn = load_turn(found[0], session_id=session_id)
        if turn.state != TurnState.SUSPENDED:
            return turn_store.request_interrupt(session_id=session_id)
        close_open_rows(record, turn.id, error_code=code, error_message=message)
        turn_store.finish_turn(
            record,
            turn.id,
            state=state,
            before=TurnState.SUSPENDED,
            fence=turn.fence,
            usage=load_progress(turn).usage,
            error_code=code,
            error_message=message,
        )
    return turn.id


def close_open_rows(record: Change, turn_id: str, *, error_code: str | None, error_message: str | None) -> None:
    """End whatever a turn left open: streamed text becomes parts, calls and tools get its error, or that of a cut."""
    if not leaves_open(turn_id):
        return
    code, message = error_code or TurnCancelled.code, error_message or CUT_OFF
    end = MessageEnd(outcome=Outcome.BROKEN.value, error_code=code, error_message=message)
    for call_id in running_calls(turn_id):
        call_store.finish_call(record, call_id, end)
    for message_id in unfinished_messages(turn_id):
        texts = journal_texts(record.session_id, message_id=message_id)
        message_store.append_parts(record, message_id=message_id, parts=[_part(text) for text in texts])
        message_store.finalize_message(record, message_id, end)
        message_store.delete_journal(message_id=message_id)
    for part_id in unanswered_tools(turn_id):
        message_store.finish_tool(record, part_id, output=None, error=message)


def _part(text: LiveText) -> TextPart | ReasoningPart:
    return TextPart(text=text.text) if text.part_type == TextPart.type else ReasoningPart(text=text.text)
