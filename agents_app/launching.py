"""Turns of sub-agents, whoever launches them: each has an end, whatever becomes of who waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec

from agents_app import lifecycle, steps
from agents_app.runner import runner
from agents_app.steps import TurnEnd
from mnesis_core.errors import SessionNotFoundError, SessionNotRunning
from mnesis_core.messages import text_of
from mnesis_core.record import TurnRecord, TurnState, UsageRecord
from sessions_app.database import db
from sessions_app.queries import load_messages_by_ids, open_turn

P = ParamSpec("P")
logger = logging.getLogger(__name__)


async def launched(launch: Callable[P, TurnRecord], *args: P.args, **kwargs: P.kwargs) -> TurnRecord:
    """The turn that a function claims in a database thread; where this is cancelled meanwhile, the turn is ended."""
    launching = asyncio.ensure_future(db(launch, *args, **kwargs))
    try:
        return await asyncio.shield(launching)
    except asyncio.CancelledError:
        await _take_back(launching)
        raise


async def _take_back(launching: asyncio.Future[TurnRecord]) -> None:
    """The thread goes on after a cancellation: what it claims must have an end, and not by its lease running out."""
    try:
        turn = await launching
        await db(steps.finish_turn, turn, TurnEnd(state=TurnState.CANCELLED), step=None, usage=UsageRecord())
    except Exception:
        # Not raised: an error in the place of a cancellation would let the interrupted turn go on.
        logger.info("a sub-agent was not launched, as its parent was interrupted", exc_info=True)


async def end_turn(turn: TurnRecord, *, owner_id: int) -> None:
    """End a sub-agent's turn, wherever it runs, and wait for its end where that is here. Never raises."""
    try:
        await db(_interrupt, turn, owner_id=owner_id)
    except (SessionNotRunning, SessionNotFoundError):
        return
    except Exception:
        # Not raised, as in _take_back; and here it can be ended without the database.
        logger.exception("the interrupt of sub-agent %s was not written", turn.session_id)
    runner.interrupt(turn.id)
    await runner.wait(turn.id)


def _interrupt(turn: TurnRecord, *, owner_id: int) -> None:
    """:raises SessionNotRunning: the turn has ended, though another one may run in its session by now."""
    found = open_turn(turn.session_id)
    if found is None or found[0] != turn.id:
        raise SessionNotRunning(session_id=turn.session_id)
    lifecycle.interrupt(turn.session_id, owner_id=owner_id)


def last_text(turn: TurnRecord) -> str:
    """What a turn said last; empty where it said nothing."""
    last = load_messages_by_ids(turn.message_ids[-1:], session_id=turn.session_id)
    said = [message for message in last if message.role == "assistant"]
    return "\n".join(text_of(tuple(stored.part for stored in message.parts)) for message in said)
