"""Turns whose process died: closed as interrupted, with everything that was streamed, and never run again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.utils import timezone

from agents_app.turns.transactions import close_open_rows, load_progress
from mnesis_core.errors import MnesisError, TurnInterrupted
from mnesis_core.records import TurnState
from sessions_app.record import turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import launched_by_turn
from sessions_app.record.turn_queries import expired_turns, load_turn, open_turn

logger = logging.getLogger(__name__)
CLOSING_SECONDS = 30.0


def recover_turns(
    *, lease_owner: str, runs_here: Callable[[str], bool] | None = None, session_id: str | None = None
) -> int:
    """Close every turn that its process left, of one session or of all; return how many were closed.

    :param runs_here: says of a turn that ``lease_owner`` holds itself whether it runs
    """
    left = [
        turn
        for turn in expired_turns(session_id=session_id)
        if (
            not runs_here(turn.turn_id)
            if turn.lease_owner == lease_owner and runs_here is not None
            else turn.is_left(timezone.now())
        )
    ]
    return sum(
        recover_turn(turn.session_id, turn.turn_id, lease_owner=lease_owner, left_by=turn.lease_owner) for turn in left
    )


def recover_turn(session_id: str, turn_id: str, *, lease_owner: str, left_by: str | None = None) -> bool:
    """Close one turn if its lease ran out; return False if it is alive after all, or another process was first.

    :param left_by: the dead process that had it; a process that has it by now keeps it
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
        end_waiting(child_id, TurnState.INTERRUPTED, reason)  # its answer has no reader any more
    return True


def end_waiting(session_id: str, state: TurnState, reason: MnesisError | None = None) -> str | None:
    """End the turn that a session waits in, at once, for it has no lease; or request the end of one that runs.

    Return its id, or ``None`` where there is none.
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
