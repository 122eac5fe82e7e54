"""Calls that draw on limits, as a turn makes them: drawn and written in one change, ended in another."""

from __future__ import annotations

import functools
import os
from datetime import datetime

from mnesis_core.errors import BudgetExhausted
from mnesis_core.llm.interface import Outcome
from mnesis_core.messages import Message, ToolPart
from mnesis_core.records import MessageEnd, TurnRecord, UsageRecord
from mnesis_core.spending import highest_of
from sessions_app.llm import limits as spending
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_call, load_turn
from tests.support.processes.writers import fork

MOST = 100
"""Tokens that each call may take."""


def open_turn(session_id: str, *, options: str = "") -> TurnRecord:
    """A turn that runs."""
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo", options=options)
    return load_turn(turn_id, session_id=session_id)


def begin_call(turn: TurnRecord, *, tokens: int = MOST, micros: int | None = 0, at: datetime | None = None) -> str:
    """Draw, and write the call.

    :raises BudgetExhausted: a limit would be passed.
    """
    limits = spending.limits_for(load_session(turn.session_id), turn=turn)
    with change(turn.session_id, now=at) as record:
        spending.draw(record, limits, highest_of(tokens, micros))
        message_id = message_store.append_message(record, turn_id=turn.id, message=Message(role="assistant", parts=()))
        return turn_store.start_call(
            record,
            turn_id=turn.id,
            message_id=message_id,
            model="demo",
            provider_model="demo",
            parameters=highest_of(tokens, micros).as_parameters(),
            manifest=[],
            context_seq=1,
            digest="0" * 64,
            estimated_tokens=1,
        )


def end_call(
    turn: TurnRecord, call_id: str, *, tokens: int, micros: int | None = 0, at: datetime | None = None
) -> None:
    """The call's bill."""
    usage = UsageRecord(tokens_input=tokens, tokens_output=0, usage_source="provider", cost_micros=micros)
    with change(turn.session_id, now=at) as record:
        turn_store.finish_call(record, call_id, MessageEnd(outcome=Outcome.COMPLETE.value, usage=usage))


def spend(turn: TurnRecord, tokens: int, *, at: datetime | None = None) -> None:
    """One call from its beginning to its end."""
    end_call(turn, begin_call(turn, tokens=tokens, at=at), tokens=tokens, at=at)


def ask_tool(turn: TurnRecord) -> str:
    """A call that asks for a tool; returns the part."""
    call_id = begin_call(turn, tokens=1)
    end_call(turn, call_id, tokens=1)
    message_id = load_call(call_id).message_id or ""
    with change(turn.session_id) as record:
        [part_id] = message_store.append_parts(
            record, message_id=message_id, parts=[ToolPart(tool_name="t", tool_call_id="1", input="{}")]
        )
    return part_id


def main(sessions: str, bill: str) -> int:
    """A process for each session (ids, with commas) that calls until nothing is left, each call billed so many tokens."""
    pids = [fork(functools.partial(spend_all, id, int(bill))) for id in sessions.split(",")]
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)


def spend_all(session_id: str, bill: int) -> None:
    """Call after call, until a limit says no; prints how many there were."""
    turn, calls = open_turn(session_id), 0
    try:
        while True:
            call_id = begin_call(turn)
            calls += 1
            end_call(turn, call_id, tokens=bill)
    except BudgetExhausted:
        os.write(1, f"{calls}\n".encode())
