"""A turn: started, recorded whole, answered and decided while it waits, waited for, interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from agents_app import suspended
from agents_app.claiming import StartedTurn, claim_recorded_turn, claim_turn
from agents_app.given_files import explored
from agents_app.lifecycle.sessions import create_session
from agents_app.recovery import end_waiting
from agents_app.runner import runner
from agents_app.suspended import ToolResult
from mnesis_core.errors import SessionNotRunning
from mnesis_core.events import EventType
from mnesis_core.messages import Message
from mnesis_core.record import SessionRecord, TurnRecord, TurnState
from mnesis_core.recording import RecordedTurn
from mnesis_core.turn_options import TurnOptions
from sessions_app import store
from sessions_app.conf import get_spec
from sessions_app.database import db
from sessions_app.live import hub
from sessions_app.queries import load_session, load_turn

TURN_ENDS = {EventType(f"turn.{state}") for state in TurnState if state.is_end}
"""The events of which each turn has one, its last."""
TURN_STOPS = {*TURN_ENDS, EventType.TURN_SUSPENDED}
"""The events after which a turn does nothing until somebody acts."""
LOOK_AGAIN_SECONDS = 5.0
"""Whoever waits for a turn looks by themselves after this, should every word about news get lost."""
LOOK_PAUSE_SECONDS = 0.1
"""And never more often: another process's turn may have news with every word."""
PLAIN = TurnOptions()
"""As the session says."""


async def begin_session(*, owner: AbstractBaseUser, message: str, **values: Any) -> tuple[SessionRecord, StartedTurn]:
    """Create a session and start its first turn in this process; when either is refused, neither is there.

    :param values: as ``create_session`` takes them
    :raises MnesisError: as ``create_session`` and ``start_turn`` do
    """
    with runner.permit(owner.pk):
        session = await db(create_session, owner=owner, first_message=message, **values)
        return session, await _set_going(claim_turn, session.id, owner_id=owner.pk, message=message)


async def start_turn(
    session_id: str,
    *,
    owner_id: int,
    message: str | None,
    options: TurnOptions = PLAIN,
    earlier: Sequence[Message] = (),
    idempotency_key: str | None = None,
    files: Sequence[str] = (),
) -> StartedTurn:
    """Write the user's message, claim the session and set the turn going in this process; returns at once.

    :param message: ``None`` when what happened elsewhere is itself what is to be answered: results of tools
    :param earlier: what happened elsewhere before the message, kept as a turn of its own; no part of the request's digest
    :param files: ids of files of the session that go with the message
    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises ModelNotFoundError: there is no such model.
    :raises FileReferenceNotFoundError: the session has no such file.
    :raises SessionBusy: another turn is running, or waits.
    :raises SessionArchived: the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another request.
    :raises PeerNameTaken: another session of the owner in host mode has this one's name.
    :raises InvalidRequest: the message is empty or too long, or an option is out of its bounds.
    :raises AtCapacity: this process runs as many turns as it may.
    :raises TooManyTurns: it runs as many of this person's as it may.
    """
    if options.model:
        await db(get_spec, options.model, user_id=owner_id)
    await explored(session_id, files, owner_id=owner_id)
    with runner.permit(owner_id):
        return await _set_going(
            claim_turn,
            session_id,
            owner_id=owner_id,
            message=message,
            files=files,
            earlier=earlier,
            idempotency_key=idempotency_key,
            options=options,
        )


async def _set_going(
    claim: Callable[..., StartedTurn], *place: str, owner_id: int, is_resumed: bool = False, **values: Any
) -> StartedTurn:
    """Claim a turn for this process, and run it here if this claim has it."""
    started = await db(claim, *place, owner_id=owner_id, lease_owner=runner.owner, **values)
    if started.is_new:
        runner.start(started.turn, is_resumed=is_resumed, owner_id=owner_id)
    return started


async def answer_tools(session_id: str, turn_id: str, *, owner_id: int, results: Sequence[ToolResult]) -> StartedTurn:
    """Give a turn the results of tools that its caller runs; it goes on here when nothing is waited for any more.

    All results are taken or none. One that comes after its turn has ended is kept with that turn, and goes no further.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises TurnNotFoundError: the session has no such turn.
    :raises ToolCallNotFoundError: the turn made no call with this id.
    :raises ToolCallAnswered: the call has its result.
    :raises ToolCallNotCallers: the tool runs here.
    :raises InvalidRequest: there is no result, or two for one call, or one that is neither output nor error.
    :raises AtCapacity: this process runs as many turns as it may.
    :raises TooManyTurns: it runs as many of this person's as it may.
    """
    with runner.permit(owner_id):
        return await _set_going(
            suspended.answer_tools, session_id, turn_id, is_resumed=True, owner_id=owner_id, results=tuple(results)
        )


async def decide_approval(
    session_id: str, part_id: str, *, owner_id: int, approved: bool, note: str = ""
) -> TurnRecord:
    """Say yes or no to a tool call that waits for it; its turn goes on here when nothing is waited for any more.

    :param note: what the person says to it; the model is told why a call was refused
    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises PartNotFoundError: the session has no such tool call.
    :raises ApprovalNotPending: it was decided already, or does not wait for an approval.
    :raises AtCapacity: this process runs as many turns as it may.
    :raises TooManyTurns: it runs as many of this person's as it may.
    """
    with runner.permit(owner_id):
        decided = await _set_going(
            suspended.decide_approval,
            session_id,
            part_id,
            is_resumed=True,
            owner_id=owner_id,
            approved=approved,
            note=note,
        )
    return decided.turn


async def wait_turn(session_id: str, turn_id: str, *, owner_id: int) -> TurnRecord:
    """The turn when it has ended or is suspended, wherever it runs.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises TurnNotFoundError: the session has no such turn.
    """
    await db(load_session, session_id, owner_id=owner_id)
    with hub.follow(session_id) as follower:
        while True:
            await runner.wait(turn_id)
            turn = await db(load_turn, turn_id, session_id=session_id)
            if turn.state != TurnState.RUNNING:
                return turn
            await asyncio.sleep(LOOK_PAUSE_SECONDS)
            await follower.news(seconds=LOOK_AGAIN_SECONDS)


def record_turn(
    session_id: str, *, owner_id: int, turn: RecordedTurn, idempotency_key: str | None = None
) -> StartedTurn:
    """Write a turn that the caller ran with its own model client, whole and ended, and ask for a compaction if due.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionBusy: a turn is running, or waits.
    :raises SessionArchived: the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another request.
    :raises InvalidRequest: a value is missing or out of its bounds.
    :raises FileReferenceNotFoundError: a part names a file that the owner does not have.
    """
    return claim_recorded_turn(
        session_id, owner_id=owner_id, turn=turn, idempotency_key=idempotency_key, lease_owner=runner.owner
    )


def interrupt(session_id: str, *, owner_id: int) -> TurnRecord:
    """Ask for the end of the running turn, from any process, or end a suspended one at once; what was said is kept.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionNotRunning: no turn is running, and none waits.
    """
    load_session(session_id, owner_id=owner_id)
    try:
        turn_id: str | None = store.request_interrupt(session_id=session_id)
    except SessionNotRunning:
        turn_id = end_waiting(session_id, TurnState.CANCELLED)
    if turn_id is None:
        raise SessionNotRunning(session_id=session_id)
    return load_turn(turn_id, session_id=session_id)
